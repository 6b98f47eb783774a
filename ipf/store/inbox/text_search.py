"""Full-text search in messages: which hold the words of a filter, and how many.

What arrives: a filter.  What leaves: `Matches`: the query that the index answers, and the ids of those among the newest
messages, not indexed yet, that match.  A word that ends in `*` stands for every word with this prefix.

The query is a `tsquery` of quoted lexemes, all of which a message must have.  It never passes PostgreSQL's text parser:
the words are those of `hl7.words` on both sides.

Source: https://www.postgresql.org/docs/current/datatype-textsearch.html
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.hl7.words import FIELD, PATIENT, SYSTEM, TENANT, TYPE, contains_words, patients_of, query_words
from ipf.ports import MessageFilter
from ipf.ports.inbox import EVERY_TENANT
from ipf.store.inbox.text_index import field_lexeme, indexed_to, patient_lexeme
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import bigints, literal

TAIL = 3_000

BY_WORDS = "SET LOCAL enable_indexscan = off;\n"
"""Goes before a statement that is to find messages by their words: the index of words is used by bitmap scans alone."""

# Preselection among messages that are not indexed, by PostgreSQL: the words stand in them as they are.
# What may hold more than ASCII is left to `contains_words`, which knows codecs and accents.
_RAW = "substring(raw_message FROM 1 FOR 500000)"
_PLAIN = f"lower(encode({_RAW}, 'escape') COLLATE \"C\")"
_IS_NOT_ASCII = "octet_length(plain) - octet_length(raw) > 2"  # an escape adds 3 to a byte, 1 to a backslash


@dataclass(frozen=True, slots=True)
class Matches:
    """Messages that match: by `query` those that are indexed, in `tail` the others.

    `lag`: how many messages were not indexed; when they are more than TAIL, the oldest of them were not looked at.
    A message that is indexed after the search has begun may be found both ways; it counts once.
    """

    query: str
    tail: frozenset[int]
    lag: int

    async def ids(self, database: Database, most: int) -> list[int] | None:
        """Their ids; None when there are more than `most`."""
        found = await database.many(
            f"{BY_WORDS}SELECT message_id FROM message_text WHERE {self._indexed} LIMIT {int(most) + 1}"
        )
        ids = self.tail.union(row[0] for row in found)
        return sorted(ids) if len(ids) <= most else None

    async def count(self, database: Database) -> int:
        """How many there are."""
        tail = f"SELECT count(*) FROM unnest({self._tail}) AS t (id)"
        row = await database.one(
            f"{BY_WORDS}SELECT (SELECT count(*) FROM message_text WHERE {self._indexed}) + "
            f"({tail} WHERE NOT EXISTS (SELECT 1 FROM message_text m WHERE m.message_id = t.id))"
        )
        return int(row[0])

    def condition(self, column: str) -> str:
        """SQL that tests one message, found by its id.  PostgreSQL never makes a join of a scalar subquery."""
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
    """Messages of the tenant that hold the words of `text`, the patient, the system and the type of the filter."""
    query = tsquery(_lexemes(wanted))
    indexed = await indexed_to(database)  # first: what is indexed meanwhile is looked at as well
    lag, tail = await _unindexed(database, wanted, indexed)
    return Matches(query, tail, lag)


def _lexemes(wanted: MessageFilter) -> list[str]:
    words = query_words(wanted.text) if wanted.text else []
    if wanted.text and not words:
        raise Problem(Category.VALUE, "text must hold a word of at most 64 letters or digits")
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
    """The text of a `tsquery` for all these words; a `*` at the end of a word, not of a field, asks for a prefix."""
    return " & ".join(map(_operand, words))


def _operand(word: str) -> str:
    is_prefix = word.endswith("*") and not word.startswith(FIELD)
    lexeme = (word[:-1] if is_prefix else word).replace("\\", "\\\\").replace("'", "''")
    return f"'{lexeme}':*" if is_prefix else f"'{lexeme}'"


async def _unindexed(database: Database, wanted: MessageFilter, indexed: int) -> tuple[int, frozenset[int]]:
    """How many messages are not indexed, and which of the newest TAIL of them match."""
    newest = (
        "SELECT id, tenant, source_system, message_type, charset, raw_message FROM message_bodies "
        f"WHERE id > {int(indexed)} ORDER BY id DESC LIMIT {TAIL}"
    )
    of_fields = [of_tenant(wanted)]
    for name in ("source_system", "message_type"):
        if getattr(wanted, name) is not None:
            of_fields.append(f"{name} = {literal(getattr(wanted, name))}")
    asked = query_words(wanted.text or "")
    patient = patient_lexeme(wanted.patient)[len(PATIENT) :] if wanted.patient else None
    parts = [word.rstrip("*") for word in asked] + ([patient.rpartition("|")[2]] if patient else [])
    columns = f"SELECT id, charset, {_PLAIN} AS plain, {_RAW} AS raw" if parts else "SELECT id"
    query = f"{columns} FROM ({newest}) AS b WHERE {' AND '.join(of_fields)} OFFSET 0"
    holding = " AND ".join(f"strpos(plain, {literal(part)}) > 0" for part in parts if part.isascii()) or "true"
    if parts:
        query = f"SELECT id, charset, raw FROM ({query}) AS c WHERE {_IS_NOT_ASCII} OR ({holding})"
    rows = await database.many(query)
    (count,) = await database.one(f"SELECT count(*) FROM message_bodies WHERE id > {int(indexed)}")
    ids = frozenset(row[0] for row in rows if not parts or _holds(bytes(row[2]), row[1], asked, patient))
    return int(count), ids


def _holds(raw: bytes, charset: str, asked: list[str], patient: str | None) -> bool:
    return contains_words(raw, charset, asked) and (patient is None or patient in patients_of(raw, charset))
