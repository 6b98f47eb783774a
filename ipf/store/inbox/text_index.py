"""The index of words inside messages, written behind the inbox.

Messages are taken in the order of id, in chunks of 1,024 ids; for each word of a chunk the index has which of its
messages have the word (`word_blocks`).  So a word that stands in every message costs little, and the number of messages
that hold several words is counted by AND-ing bits: exactly, and in milliseconds on a million messages.

Nothing is written twice: a chunk is indexed when all its ids are there, as one part.  Only where messages are so large
that looking at them one by one would take long (`tail_bytes`) a chunk becomes several parts.

A part is one transaction: it holds the one row of `message_index_state`, so one process at a time indexes, and a
message that is removed meanwhile waits (`message_index_forget`).  What survives a kill: all committed parts.

Ids are drawn before their transactions commit, so an id may appear after greater ones.  A part therefore never goes
beyond a *horizon*: an id that had been drawn when transactions began that have all ended by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ipf.hl7.words import PATIENT, SYSTEM, TYPE, folded, patients_in, read, runs_of
from ipf.ports import MessageIndex
from ipf.store.inbox.word_blocks import BITS, CHUNK, Part, plain, posting
from ipf.store.postgres.database import Database, Row, Session
from ipf.store.postgres.quoting import Statement, joined, script

TAIL_BYTES = 4_000_000
"""Messages of so many bytes are not left to be looked at one by one."""

_SLICE = 32

Bits = dict[int, int]
"""Of each chunk, the bits of its messages."""

HORIZON = Statement(
    "index_horizon",
    "",
    """
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')), 0),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
       (SELECT indexed_to FROM message_index_state WHERE single)""",
)
STATE = Statement("index_state", "", "SELECT indexed_to FROM message_index_state WHERE single")
TAKE = Statement("index_take", "", "SELECT indexed_to FROM message_index_state WHERE single FOR UPDATE SKIP LOCKED")
WEIGHT = Statement(
    "index_weight",
    "bigint, bigint",
    "SELECT coalesce(sum(octet_length(raw_message)), 0) FROM message_bodies WHERE id > $1 AND id <= $2",
)
BATCH = Statement(
    "index_batch",
    "bigint, bigint, bigint",
    """
SELECT id, tenant, source_system, message_type, charset, substring(raw_message FROM 1 FOR 500000), every FROM (
    SELECT *, row_number() OVER (ORDER BY id) AS place, count(*) OVER () AS every,
           sum(least(octet_length(raw_message), 500000)) OVER (ORDER BY id) AS bytes
    FROM message_bodies WHERE id > $1 AND id <= $2
) b WHERE bytes <= $3 OR place = 1 ORDER BY id""",
)
LIVE = Statement("index_live", "bigint", "SELECT tenant, live FROM message_chunks WHERE chunk = $1")
ADD_PART = Statement("index_add_part", "bigint", "INSERT INTO message_parts (part) VALUES ($1)")
ADD_FIELDS = Statement(
    "index_add_fields",
    "bigint, text, text",
    r"""
INSERT INTO message_fields (part, word, ids)
SELECT $1, * FROM unnest(string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f'))""",
)
ADD_BLOCKS = Statement(
    "index_add_blocks",
    "bigint, text, text",
    r"""
INSERT INTO message_word_blocks (part, first_word, words)
SELECT $1, * FROM unnest(string_to_array($2, E'\x1f'), string_to_array($3, E'\x1f'))""",
)
ADD_LIVE = Statement(
    "index_add_live",
    "text, text, text, text",
    r"""
INSERT INTO message_chunks (tenant, chunk, live, n)
SELECT * FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f')::bigint[],
                     string_to_array($3, E'\x1f')::bytea[], string_to_array($4, E'\x1f')::integer[])
ON CONFLICT (tenant, chunk) DO UPDATE SET live = excluded.live, n = excluded.n""",
)
ADVANCE = Statement("index_advance", "bigint", "UPDATE message_index_state SET indexed_to = $1 WHERE single")
EMPTY = Statement(
    "index_empty",
    "",
    """
SELECT chunk FROM message_chunks WHERE chunk < (SELECT indexed_to / 1024 FROM message_index_state WHERE single)
GROUP BY chunk HAVING sum(n) = 0 ORDER BY chunk LIMIT 20""",
)
DROP_BLOCKS = Statement(
    "index_drop_blocks",
    "bigint",
    "DELETE FROM message_word_blocks WHERE part >= $1 * 1024 AND part < ($1 + 1) * 1024",
)
DROP_FIELDS = Statement(
    "index_drop_fields",
    "bigint",
    "DELETE FROM message_fields WHERE part >= $1 * 1024 AND part < ($1 + 1) * 1024",
)
DROP_PARTS = Statement(
    "index_drop_parts", "bigint", "DELETE FROM message_parts WHERE part >= $1 * 1024 AND part < ($1 + 1) * 1024"
)
DROP_CHUNK = Statement("index_drop_chunk", "bigint", "DELETE FROM message_chunks WHERE chunk = $1")

STATEMENTS = (
    HORIZON, STATE, TAKE, WEIGHT, BATCH, LIVE, ADD_PART, ADD_FIELDS, ADD_BLOCKS, ADD_LIVE, ADVANCE, EMPTY, DROP_BLOCKS,
    DROP_FIELDS, DROP_PARTS, DROP_CHUNK,
)  # fmt: skip


@dataclass(slots=True)
class _Mark:
    """An id that had been drawn at a moment; `xmax`: first transaction id not yet given out a while later."""

    id: int
    seen_at: float
    xmax: int | None = None


class PostgresMessageIndex:
    """`ports.MessageIndex`.

    `seconds` is a clock; `settle_seconds`: how long after an id was drawn its transaction surely has written something;
    `tail_bytes`: messages of so many bytes are indexed before their chunk is full; 0: all are.
    """

    def __init__(
        self,
        database: Database,
        seconds: Callable[[], float],
        settle_seconds: float = 0.5,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        self._database = database
        self._seconds = seconds
        self._settle_seconds = settle_seconds
        self._tail_bytes = tail_bytes
        self._mark: _Mark | None = None
        self._safe = 0
        self._light = 0  # messages up to this one weigh little

    async def work(self, pause: Callable[[], Awaitable[object]]) -> int:
        """See `ports.MessageIndex.work`."""
        indexed = await self._look()
        last = min(_last_of_chunk(indexed + 1), self._safe)
        if last <= indexed or (last == self._safe and not await self._is_due(indexed, last)):
            return 0
        async with self._database.session() as session:
            state = await session.maybe(TAKE.call())
            if state is None or state[0] != indexed:
                return 0
            rows = await session.many(BATCH.call(indexed, last, self._tail_bytes or TAIL_BYTES))
            calls = await self._calls(session, rows, indexed, pause) if rows else []
            reached = rows[-1][0] if rows and len(rows) < rows[0][-1] else last
            await session.commit(script(*calls, ADVANCE.call(reached)))
        return len(rows)

    async def tidy(self) -> int:
        """See `ports.MessageIndex.tidy`."""
        empty = [int(row[0]) for row in await self._database.many(EMPTY.call())]
        for chunk in empty:
            await self._database.many(
                script(*(drop.call(chunk) for drop in (DROP_BLOCKS, DROP_FIELDS, DROP_PARTS, DROP_CHUNK)))
            )
        return len(empty)

    async def lag(self) -> int:
        """See `ports.MessageIndex.lag`."""
        last, _, _, indexed = await self._database.one(HORIZON.call())
        return max(0, int(last) - int(indexed))

    async def _look(self) -> int:
        """Move the horizon, when it may be moved; where the index ends."""
        last, xmin, xmax, indexed = (int(value) for value in await self._database.one(HORIZON.call()))
        now, mark = self._seconds(), self._mark
        if mark is not None and mark.xmax is None and now - mark.seen_at >= self._settle_seconds:
            mark.xmax = xmax
        if mark is not None and mark.xmax is not None and xmin >= mark.xmax:
            self._safe, mark = max(self._safe, mark.id), None
        if mark is None and last > self._safe:
            mark = _Mark(last, now)
        self._mark = mark
        return indexed

    async def _is_due(self, indexed: int, last: int) -> bool:
        """Whether messages up to the horizon are to be indexed though their chunk is not full."""
        if last == _last_of_chunk(indexed + 1):
            return True
        if last <= self._light:
            return False
        weight = int((await self._database.one(WEIGHT.call(indexed, last)))[0])
        if weight < self._tail_bytes:
            self._light = last
        return weight >= self._tail_bytes

    async def _calls(
        self, session: Session, rows: list[Row], indexed: int, pause: Callable[[], Awaitable[object]]
    ) -> list[str]:
        """The statements that add these messages of one chunk."""
        first = int(rows[0][0])
        part, chunk, live = Part(), first // CHUNK, dict[str, int]()
        fields: dict[str, list[int]] = {}
        for done, (id_, tenant, system, kind, charset, raw, _) in enumerate(rows):
            number, text = id_ % CHUNK, read(bytes(raw), charset)
            part.add(number, runs_of(text), [_patient_word(patient) for patient in patients_in(text)])
            for field in (field_word(SYSTEM, system), field_word(TYPE, kind)):
                fields.setdefault(field, []).append(number)
            live[tenant] = live.get(tenant, 0) | 1 << number
            if done % _SLICE == _SLICE - 1:
                await pause()
        if indexed >= chunk * CHUNK:
            for tenant, bits in await session.many(LIVE.call(chunk)):
                live[tenant] = live.get(tenant, 0) | int.from_bytes(bytes(bits), "little")
        blocks = await part.blocks(pause)
        return [ADD_PART.call(first), _fields_call(first, fields), _blocks_call(first, blocks), _live_call(chunk, live)]


def _last_of_chunk(message_id: int) -> int:
    return message_id // CHUNK * CHUNK + CHUNK - 1


def field_word(field: str, value: str) -> str:
    """The word under which an exact value of a field is found."""
    return field + plain(value[:200])


def patient_word(value: str) -> str:
    """The word of a patient identifier, `value` or `authority|value`."""
    return _patient_word(folded(value.strip()))


def _patient_word(identifier: str) -> str:
    return PATIENT + plain(identifier)


def _fields_call(part: int, fields: Mapping[str, Sequence[int]]) -> str:
    words = sorted(fields)
    return ADD_FIELDS.call(part, joined(words), joined(posting(fields[word]) for word in words))


def _blocks_call(part: int, blocks: Sequence[tuple[str, str]]) -> str:
    return ADD_BLOCKS.call(part, joined(first for first, _ in blocks), joined(words for _, words in blocks))


def _live_call(chunk: int, live: Mapping[str, int]) -> str:
    tenants = sorted(live)
    return ADD_LIVE.call(
        joined(tenants),
        joined([chunk] * len(tenants)),
        joined(live[tenant].to_bytes(BITS, "little") for tenant in tenants),
        joined(live[tenant].bit_count() for tenant in tenants),
    )


def numbers_of(bits: int) -> Iterable[int]:
    """Which bits are set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


async def indexed_to(database: Database) -> int:
    """Every message up to this id is in the index."""
    return int((await database.one(STATE.call()))[0])


_: type[MessageIndex] = PostgresMessageIndex
