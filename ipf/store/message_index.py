"""The index of words inside messages, written behind the inbox; and what it knows of a question.

Messages are taken in the order of id, in chunks of 1,024 ids: a row holds, for one word and one chunk, which messages
of the chunk have the word.  So a word that stands in every message costs a row a chunk, and the number of messages that
hold several words is counted by AND-ing bits: exactly, and in milliseconds on a million messages.

A batch is one transaction: it holds the one row of `message_index_state`, so one process at a time indexes, and a
message that is removed meanwhile waits (`message_index_forget`).  What survives a kill: all committed batches.

Ids are drawn before their transactions commit, so an id may appear after greater ones.  A batch therefore never goes
beyond a *horizon*: an id that had been drawn when transactions began that have all ended by now.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from struct import unpack

from ipf.hl7.words import PATIENT, SYSTEM, TYPE, folded, patients_of, words_of
from ipf.ports import MessageIndex
from ipf.store.database import Database, Row, Session
from ipf.store.quoting import Statement, joined, printable, script

CHUNK = 1024
BITS = CHUNK // 8
_LIST_MOST = BITS // 2 - 1
_SLICE = 32
_BYTES = 4_000_000

Bits = dict[int, int]
"""Of each chunk, the bits of its messages."""

HORIZON = Statement(
    "index_horizon",
    "",
    """
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('message_bodies', 'id')), 0),
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_snapshot_xmax(pg_current_snapshot())::text::bigint""",
)
STATE = Statement("index_state", "", "SELECT indexed_to FROM message_index_state WHERE single")
TAKE = Statement(
    "index_take", "", "SELECT indexed_to FROM message_index_state WHERE single FOR UPDATE SKIP LOCKED"
)
BATCH = Statement(
    "index_batch",
    "bigint, bigint, integer, bigint",
    """
SELECT id, tenant, source_system, message_type, charset, substring(raw_message FROM 1 FOR 500000) FROM (
    SELECT *, row_number() OVER (ORDER BY id) AS place,
           sum(least(octet_length(raw_message), 500000)) OVER (ORDER BY id) AS bytes
    FROM (SELECT * FROM message_bodies WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3) b
) b WHERE bytes <= $4 OR place = 1 ORDER BY id""",
)
KNOWN = Statement(
    "index_known",
    "bigint, text",
    r"""
SELECT m.word, m.ids FROM unnest(string_to_array($2, E'\x1f')) AS w(word)
JOIN message_words m ON m.word = w.word COLLATE "C" AND m.chunk = $1""",
)
LIVE = Statement("index_live", "bigint", "SELECT tenant, live FROM message_chunks WHERE chunk = $1")
ADD = Statement(
    "index_add",
    "text, text, text",
    r"""
INSERT INTO message_words (word, chunk, ids)
SELECT * FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f')::bigint[],
                     string_to_array($3, E'\x1f')::bytea[])
ON CONFLICT (word, chunk) DO UPDATE SET ids = excluded.ids""",
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
DROP_WORDS = Statement("index_drop_words", "bigint", "DELETE FROM message_words WHERE chunk = $1")
DROP_CHUNK = Statement("index_drop_chunk", "bigint", "DELETE FROM message_chunks WHERE chunk = $1")

STATEMENTS = (
    HORIZON, STATE, TAKE, BATCH, KNOWN, LIVE, ADD, ADD_LIVE, ADVANCE, EMPTY, DROP_WORDS, DROP_CHUNK,
)  # fmt: skip


@dataclass(slots=True)
class _Mark:
    """An id that had been drawn at a moment; `xmax`: first transaction id not yet given out a while later."""

    id: int
    seen_at: float
    xmax: int | None = None


class PostgresMessageIndex:
    """`ports.MessageIndex`.  `seconds` is a clock; `settle_seconds`: how long after an id was drawn its transaction
    surely has written something."""

    def __init__(self, database: Database, seconds: Callable[[], float], settle_seconds: float = 0.5) -> None:
        self._database = database
        self._seconds = seconds
        self._settle_seconds = settle_seconds
        self._mark: _Mark | None = None
        self._safe = 0

    async def work(self, limit: int, pause: Callable[[], Awaitable[object]]) -> int:
        """See `ports.MessageIndex.work`."""
        await self._look()
        async with self._database.session() as session:
            state = await session.maybe(TAKE.call())
            if state is None or state[0] >= self._safe:
                return 0
            rows = await session.many(BATCH.call(state[0], self._safe, limit, _BYTES))
            reached = rows[-1][0] if rows else self._safe
            calls = await self._calls(session, rows, int(state[0]), pause) if rows else []
            await session.commit(script(*calls, ADVANCE.call(reached)))
        return len(rows)

    async def tidy(self) -> int:
        """See `ports.MessageIndex.tidy`."""
        empty = [int(row[0]) for row in await self._database.many(EMPTY.call())]
        for chunk in empty:
            await self._database.many(script(DROP_WORDS.call(chunk), DROP_CHUNK.call(chunk)))
        return len(empty)

    async def lag(self) -> int:
        """See `ports.MessageIndex.lag`."""
        return max(0, int((await self._database.one(HORIZON.call()))[0]) - await indexed_to(self._database))

    async def _look(self) -> None:
        """Move the horizon, when it may be moved."""
        last, xmin, xmax = (int(value) for value in await self._database.one(HORIZON.call()))
        now, mark = self._seconds(), self._mark
        if mark is not None and mark.xmax is None and now - mark.seen_at >= self._settle_seconds:
            mark.xmax = xmax
        if mark is not None and mark.xmax is not None and xmin >= mark.xmax:
            self._safe, mark = max(self._safe, mark.id), None
        if mark is None and last > self._safe:
            mark = _Mark(last, now)
        self._mark = mark

    async def _calls(
        self, session: Session, rows: list[Row], indexed: int, pause: Callable[[], Awaitable[object]]
    ) -> list[str]:
        """The statements that add these messages."""
        words: dict[int, dict[str, int]] = {}
        live: dict[tuple[str, int], int] = {}
        for number, (id_, tenant, system, kind, charset, raw) in enumerate(rows):
            chunk, bit = id_ // CHUNK, 1 << id_ % CHUNK
            of_chunk = words.setdefault(chunk, {})
            for word in _all_words(bytes(raw), charset, system, kind):
                of_chunk[word] = of_chunk.get(word, 0) | bit
            live[tenant, chunk] = live.get((tenant, chunk), 0) | bit
            if number % _SLICE == _SLICE - 1:
                await pause()
        if rows[0][0] // CHUNK * CHUNK <= indexed:
            await self._merge(session, rows[0][0] // CHUNK, words, live)
        calls = [_add_call(chunk, of_chunk) for chunk, of_chunk in words.items()]
        return [*calls, _live_call(live)]

    async def _merge(
        self, session: Session, chunk: int, words: Mapping[int, dict[str, int]], live: dict[tuple[str, int], int]
    ) -> None:
        """Add what the chunk has already."""
        for word, ids in await session.many(KNOWN.call(chunk, joined(words[chunk]))):
            words[chunk][word] |= bits_of(bytes(ids))
        for tenant, bits in await session.many(LIVE.call(chunk)):
            live[tenant, chunk] = live.get((tenant, chunk), 0) | bits_of(bytes(bits))


def _all_words(raw: bytes, charset: str, system: str, kind: str) -> Iterable[str]:
    yield from words_of(raw, charset)
    yield from (PATIENT + word for word in patients_of(raw, charset))
    yield field_word(SYSTEM, system)
    yield field_word(TYPE, kind)


def field_word(field: str, value: str) -> str:
    """The word under which an exact value of a field is found."""
    return field + (printable(value, 200) or "")


def patient_word(value: str) -> str:
    """The word of a patient identifier, `value` or `authority|value`."""
    return PATIENT + folded(value.strip())


def _add_call(chunk: int, words: Mapping[str, int]) -> str:
    names = sorted(words)
    return ADD.call(joined(names), joined([chunk] * len(names)), joined(bytes_of(words[name]) for name in names))


def _live_call(live: Mapping[tuple[str, int], int]) -> str:
    keys = sorted(live)
    return ADD_LIVE.call(
        joined(tenant for tenant, _ in keys),
        joined(chunk for _, chunk in keys),
        joined(live[key].to_bytes(BITS, "little") for key in keys),
        joined(live[key].bit_count() for key in keys),
    )


def bytes_of(bits: int) -> bytes:
    """Bits of a chunk as they are stored."""
    if bits.bit_count() > _LIST_MOST:
        return bits.to_bytes(BITS, "little")
    return b"".join(number.to_bytes(2, "big") for number in numbers_of(bits))


def bits_of(stored: bytes) -> int:
    """Stored bits of a chunk."""
    if len(stored) == BITS:
        return int.from_bytes(stored, "little")
    bits = 0
    for number in unpack(f">{len(stored) // 2}H", stored):
        bits |= 1 << number
    return bits


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
