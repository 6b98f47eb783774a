"""Full-text search in messages.

`search` takes a filter and returns `Matches`: a query on the index, and the ids of matches among the newest messages,
which are not indexed yet.  A word that ends in `*` matches every word with this prefix.

The query is a `tsquery` of quoted lexemes, combined with AND.  PostgreSQL's text parser is not used: `hl7.words` splits
messages and filters into words.

Source: https://www.postgresql.org/docs/current/datatype-textsearch.html
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.hl7.words import FIELD, PATIENT, SYSTEM, TENANT, TYPE, contains_words, patients_of, query_words
from ipf.ports import MessageFilter
from ipf.ports.messages.inbox import EVERY_TENANT
from ipf.store.inbox.text_index import field_lexeme, indexed_to, patient_lexeme
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import bigints, literal

TAIL = 3_000

BY_WORDS = "SET LOCAL enable_indexscan = off;\n"
"""Prefix of a statement that searches by words: only bitmap scans use the index of words."""

# PostgreSQL preselects unindexed messages that contain the words literally.  `contains_words` checks messages that may
# have non-ASCII characters, with codecs and accents.
_RAW = "substring(raw_message FROM 1 FOR 500000)"
_PLAIN = f"lower(encode({_RAW}, 'escape') COLLATE \"C\")"
_IS_NOT_ASCII = "octet_length(plain) - octet_length(raw) > 2"  # an escape adds 3 to a byte, 1 to a backslash


@dataclass(frozen=True, slots=True)
class Matches:
    """Matching messages: `query` finds indexed ones, `tail` contains the others.

    `lag`: number of unindexed messages; if it exceeds TAIL, the oldest of them were not searched.  A message that is
    indexed during the search may be in both; it counts once.
    """

    query: str
    tail: frozenset[int]
    lag: int

    async def ids(self, database: Database, most: int) -> list[int] | None:
        """The ids of all matches; None when there are more than `most`."""
        found = await database.many(
            f"{BY_WORDS}SELECT message_id FROM message_text WHERE {self._indexed} LIMIT {int(most) + 1}"
        )
        ids = self.tail.union(row[0] for row in found)
        return sorted(ids) if len(ids) <= most else None

    async def count(self, database: Database) -> int:
        """Number of matches."""
        tail = f"SELECT count(*) FROM unnest({self._tail}) AS t (id)"
        row = await database.one(
            f"{BY_WORDS}SELECT (SELECT count(*) FROM message_text WHERE {self._indexed}) + "
            f"({tail} WHERE NOT EXISTS (SELECT 1 FROM message_text m WHERE m.message_id = t.id))"
        )
        return int(row[0])

    def condition(self, column: str) -> str:
        """SQL that tests one message by id.  A scalar subquery, because PostgreSQL does not turn it into a join."""
        held = f"SELECT {self._indexed} FROM message_text m WHERE m.message_id = {column}"
        return f"coalesce(({held}), {column} = ANY ({self._tail}))"

    @property
    def _indexed(self) -> str:
        return f"words @@ {literal(self.query)}::tsquery"

    @property
    def _tail(self) -> str:
        return bigints(sorted(self.tail))


def of_tenant(wanted: MessageFilter, column: str = "tenant") -> str:
    """The condition that a row belongs to the tenant of a filter."""
    return "true" if wanted.tenant == EVERY_TENANT else f"{column} = {literal(wanted.tenant)}"


async def search(database: Database, wanted: MessageFilter) -> Matches:
    """Messages with the tenant, words of `text`, patient, system and type of the filter."""
    query = tsquery(_lexemes(wanted))
    indexed = await indexed_to(database)  # first, so that messages indexed meanwhile are searched as well
    lag, tail = await _unindexed(database, wanted, indexed)
    return Matches(query, tail, lag)


def _lexemes(wanted: MessageFilter) -> list[str]:
    words = query_words(wanted.text) if wanted.text else []
    if wanted.text and not words:
        raise Problem(Category.VALUE, "text must contain a word of at most 64 letters or digits")
    if wanted.patient:
        words.append(patient_lexeme(wanted.patient))
    if wanted.tenant != EVERY_TENANT:
        words.append(field_lexeme(TENANT, wanted.tenant))
    if wanted.source_system is not None:
        words.append(field_lexeme(SYSTEM, wanted.source_system))
    if wanted.message_type is not None:
        words.append(field_lexeme(TYPE, wanted.message_type))
    return words


def tsquery(words: list[str]) -> str:
    """The text of a `tsquery` for all these words; a `*` at the end of a word (not of a field) matches a prefix."""
    return " & ".join(map(_operand, words))


def _operand(word: str) -> str:
    is_prefix = word.endswith("*") and not word.startswith(FIELD)
    lexeme = (word[:-1] if is_prefix else word).replace("\\", "\\\\").replace("'", "''")
    return f"'{lexeme}':*" if is_prefix else f"'{lexeme}'"


async def _unindexed(database: Database, wanted: MessageFilter, indexed: int) -> tuple[int, frozenset[int]]:
    """Number of unindexed messages, and the matches among the newest TAIL of them."""
    newest = (
        "SELECT id, tenant, source_system, message_type, charset, raw_message FROM message_bodies "
        f"WHERE id > {int(indexed)} ORDER BY id DESC LIMIT {TAIL}"
    )
    of_fields = [of_tenant(wanted)]
    for name in ("source_system", "message_type"):
        if getattr(wanted, name) is not None:
            of_fields.append(f"{name} = {literal(getattr(wanted, name))}")
    words = query_words(wanted.text or "")
    patient = patient_lexeme(wanted.patient)[len(PATIENT) :] if wanted.patient else None
    parts = [word.rstrip("*") for word in words] + ([patient.rpartition("|")[2]] if patient else [])
    columns = f"SELECT id, charset, {_PLAIN} AS plain, {_RAW} AS raw" if parts else "SELECT id"
    query = f"{columns} FROM ({newest}) AS b WHERE {' AND '.join(of_fields)} OFFSET 0"
    holding = " AND ".join(f"strpos(plain, {literal(part)}) > 0" for part in parts if part.isascii()) or "true"
    if parts:
        query = f"SELECT id, charset, raw FROM ({query}) AS c WHERE {_IS_NOT_ASCII} OR ({holding})"
    rows = await database.many(query)
    (count,) = await database.one(f"SELECT count(*) FROM message_bodies WHERE id > {int(indexed)}")
    ids = frozenset(row[0] for row in rows if not parts or _holds(bytes(row[2]), row[1], words, patient))
    return int(count), ids


def _holds(raw: bytes, charset: str, words: list[str], patient: str | None) -> bool:
    return contains_words(raw, charset, words) and (patient is None or patient in patients_of(raw, charset))
