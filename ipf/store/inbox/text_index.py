"""The full-text index of messages, which lags behind the inbox.

Messages are indexed in the order of their ids.  Each has a row of `message_text`: a `tsvector` of its words
(`hl7.words`), its patient identifiers, and its tenant, sender and type.  `message_totals` counts the indexed messages
of each sender and type.

A batch is one transaction and locks the single row of `message_index_state`: one process indexes at a time, and the
deletion of a message waits (`message_index_forget`).  Committed batches survive a crash.

A batch ends at the horizon (`horizon.py`), so that no message is missed.

Source: https://www.postgresql.org/docs/current/datatype-textsearch.html,
https://www.postgresql.org/docs/current/textsearch-limitations.html
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable

from twisted.logger import Logger

from ipf.hl7.words import PATIENT, SYSTEM, TENANT, TYPE, folded, patients_in, read, runs_of, words_of_run
from ipf.ports import MessageIndex
from ipf.store.inbox.horizon import HORIZON, SETTLE_SECONDS, Horizon
from ipf.store.postgres.database import Database, Row
from ipf.store.postgres.quoting import Statement, joined, script

log = Logger()

BATCH = 500
"""Maximum number of messages in one transaction."""
BATCH_BYTES = 4_000_000
"""Maximum size of a batch; it has at least one message."""

MOST_BYTES = 1_000_000
"""Bytes of all lexemes of one message; a tsvector holds less than 1 MiB.  Further lexemes are not indexed."""
LONGEST_LEXEME = 2_000
"""Bytes of one lexeme; a tsvector holds at most 2,046."""

_SLICE = 32
_CONTROL = re.compile("[\x00-\x1f]")

STATE = Statement("index_state", "", "SELECT indexed_to FROM message_index_state WHERE single")
TAKE = Statement("index_take", "", "SELECT indexed_to FROM message_index_state WHERE single FOR UPDATE SKIP LOCKED")
NEXT = Statement(
    "index_next",
    "bigint, bigint, integer, bigint",
    """
SELECT id, tenant, source_system, message_type, charset, raw FROM (
    SELECT *, row_number() OVER (ORDER BY id) AS place, sum(octet_length(raw)) OVER (ORDER BY id) AS bytes FROM (
        SELECT id, tenant, source_system, message_type, charset, substring(raw_message FROM 1 FOR 500000) AS raw
        FROM message_bodies WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3
    ) m
) b WHERE bytes <= $4 OR place = 1 ORDER BY id""",
)
ADD = Statement(
    "index_add",
    "text, text",
    r"""
INSERT INTO message_text (message_id, words)
SELECT id::bigint, array_to_tsvector(string_to_array(words, E'\n'))
FROM unnest(string_to_array($1, E'\x1f'), string_to_array($2, E'\x1f')) AS m(id, words)""",
)
ADD_TOTALS = Statement(
    "index_add_totals",
    "bigint, bigint",
    """
INSERT INTO message_totals AS t (tenant, source_system, message_type, count)
SELECT tenant, source_system, message_type, count(*) FROM message_bodies WHERE id > $1 AND id <= $2 GROUP BY 1, 2, 3
ON CONFLICT (tenant, source_system, message_type) DO UPDATE SET count = t.count + excluded.count""",
)
ADVANCE = Statement("index_advance", "bigint", "UPDATE message_index_state SET indexed_to = $1 WHERE single")

STATEMENTS = (HORIZON, STATE, TAKE, NEXT, ADD, ADD_TOTALS, ADVANCE)


class PostgresMessageIndex:
    """`ports.MessageIndex`.

    `seconds`: a clock.  `settle_seconds`: see `Horizon`.  `batch`: maximum number of messages in one transaction.
    """

    def __init__(
        self,
        database: Database,
        seconds: Callable[[], float],
        settle_seconds: float = SETTLE_SECONDS,
        batch: int = BATCH,
    ) -> None:
        self._database = database
        self._horizon = Horizon(database, seconds, settle_seconds)
        self._batch = batch

    async def index_next(self, pause: Callable[[], Awaitable[object]]) -> int:
        """See `ports.MessageIndex.index_next`."""
        horizon, indexed = await self._horizon.move(), await self._indexed()
        if horizon <= indexed:
            return 0
        async with self._database.session() as session:
            state = await session.maybe(TAKE.call())
            if state is None or state[0] != indexed:
                return 0
            rows = await session.many(NEXT.call(indexed, horizon, self._batch, BATCH_BYTES))
            words = await _words(rows, pause)
            reached = rows[-1][0] if rows else horizon
            add = ADD.call(joined(row[0] for row in rows), joined(words)) if rows else ""
            await session.commit(script(add, ADD_TOTALS.call(indexed, reached), ADVANCE.call(reached)))
        return len(rows)

    async def lag(self) -> int:
        """See `ports.MessageIndex.lag`."""
        return max(0, await self._horizon.last_id() - await self._indexed())

    async def _indexed(self) -> int:
        """The last id that is indexed."""
        return int((await self._database.one(STATE.call()))[0])


async def _words(rows: Iterable[Row], pause: Callable[[], Awaitable[object]]) -> list[str]:
    """The lexemes of each message, a line each."""
    words = []
    for number, (id, tenant, system, message_type, charset, raw) in enumerate(rows, 1):
        fields = field_lexeme(TENANT, tenant), field_lexeme(SYSTEM, system), field_lexeme(TYPE, message_type)
        try:
            content = _lexemes_of(bytes(raw), charset)
        except Exception:  # it is found by its columns alone
            log.failure("event=message_not_indexed message_id={id}", event="message_not_indexed", id=id)
            content = []
        words.append("\n".join(bounded((*fields, *content))))
        if number % _SLICE == 0:
            await pause()
    return words


def _lexemes_of(raw: bytes, charset: str) -> list[str]:
    text = read(raw, charset)
    patients = [_lexeme(PATIENT, identifier) for identifier in patients_in(text)]
    return patients + sorted({word for run in runs_of(text) for word in words_of_run(run)})


def bounded(lexemes: Iterable[str], most: int = MOST_BYTES) -> list[str]:
    """The first lexemes, as many as a tsvector can hold."""
    found, size = [], 0
    for lexeme in lexemes:
        size += len(lexeme) if lexeme.isascii() else len(lexeme.encode())
        if size > most:
            break
        found.append(lexeme)
    return found


def field_lexeme(field: str, value: str) -> str:
    """The lexeme of an exact value of a field."""
    return _lexeme(field, value[:200])


def patient_lexeme(value: str) -> str:
    """The lexeme of a patient identifier, `value` or `authority|value`."""
    return _lexeme(PATIENT, folded(value.strip()))


def _lexeme(field: str, value: str) -> str:
    return field + _CONTROL.sub(" ", value).encode()[:LONGEST_LEXEME].decode("utf-8", "ignore")


async def indexed_to(database: Database) -> int:
    """The last indexed id."""
    return int((await database.one(STATE.call()))[0])


_: type[MessageIndex] = PostgresMessageIndex
