"""Questions to the index of words: which messages hold them, and how many.

What arrives: a filter.  What leaves: `Matches`, the bits of the indexed messages that hold every word, and the ids of
those among the newest, not yet indexed ones that do.  Counting is exact.  A word that ends in `*` stands for every word
that begins so; when there are too many of those the question is refused (COSTLY).
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.hl7.words import FIELD, PATIENT, SYSTEM, TYPE, asked_words, holds_words, patients_of
from ipf.ports import MessageFilter
from ipf.ports.inbox import EVERY_TENANT
from ipf.store.inbox.text_index import Bits, field_word, indexed_to, numbers_of, patient_word
from ipf.store.inbox.word_blocks import CHUNK, beginning_with, bits_of, united
from ipf.store.postgres.database import Database
from ipf.store.postgres.quoting import Statement, joined, literal

MOST_BEGINNINGS = 100_000
TAIL = 3_000
_MOST_BLOCKS = 10_000

WORDS = Statement(
    "find_words",
    "text, bigint",
    r"""
SELECT w.word, p.part, split_part(split_part(b.words, E'\n' || w.word || E'\t', 2), E'\n', 1)
FROM unnest(string_to_array($1, E'\x1f')) AS w(word) CROSS JOIN message_parts p CROSS JOIN LATERAL (
    SELECT l.words FROM message_word_blocks l WHERE l.part = p.part AND l.first_word <= w.word COLLATE "C"
    ORDER BY l.first_word DESC LIMIT 1
) b WHERE p.part <= $2 AND strpos(b.words, E'\n' || w.word || E'\t') > 0""",
)
FIELDS = Statement(
    "find_fields",
    "text, bigint",
    r"""
SELECT f.word, f.part, f.ids FROM unnest(string_to_array($1, E'\x1f')) AS w(word)
JOIN message_fields f ON f.word = w.word COLLATE "C" AND f.part <= $2""",
)
BEGINNING = Statement(
    "find_beginning",
    "text, text, bigint, integer",
    r"""
SELECT p.part, b.words FROM message_parts p CROSS JOIN LATERAL (
    SELECT l.words FROM message_word_blocks l WHERE l.part = p.part AND l.first_word < $2 AND l.first_word >= coalesce(
        (SELECT max(f.first_word) FROM message_word_blocks f WHERE f.part = p.part AND f.first_word <= $1), '')
) b WHERE p.part <= $3 AND strpos(b.words, E'\n' || $1) > 0 LIMIT $4""",
)
LIVE = Statement("find_live", "text", "SELECT chunk, live FROM message_chunks WHERE tenant = $1")

# A first look at messages that are not indexed, by PostgreSQL: whether the words asked for stand in them as they are.
# What may hold more than ASCII is left to the second look, which knows codecs and accents.
_RAW = "substring(raw_message FROM 1 FOR 500000)"
_PLAIN = f"lower(encode({_RAW}, 'escape') COLLATE \"C\")"
_IS_NOT_ASCII = "octet_length(plain) - octet_length(raw) > 2"  # an escape adds 3 to a byte, 1 to a backslash

STATEMENTS = (WORDS, FIELDS, BEGINNING, LIVE)


@dataclass(frozen=True, slots=True)
class Matches:
    """What holds every word: bits of indexed messages, ids of those that are not indexed, and how many are not."""

    bits: Bits
    tail: frozenset[int]
    lag: int
    among: int  # messages of the tenant that are indexed

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(bits.bit_count() for bits in self.bits.values()) + len(self.tail)

    def holds(self, message_id: int) -> bool:
        """Whether this message is one of them."""
        return bool(self.bits.get(message_id // CHUNK, 0) >> message_id % CHUNK & 1) or message_id in self.tail

    def ids(self) -> list[int]:
        """All of them, ascending."""
        indexed = [chunk * CHUNK + bit for chunk in sorted(self.bits) for bit in numbers_of(self.bits[chunk])]
        return indexed + sorted(self.tail)


def of_tenant(wanted: MessageFilter, column: str = "tenant") -> str:
    """The condition that a row belongs to the tenant of a filter."""
    return "true" if wanted.tenant == EVERY_TENANT else f"{column} = {literal(wanted.tenant)}"


async def matches(database: Database, wanted: MessageFilter) -> Matches:
    """Messages of the tenant that hold the words of `text`, the patient, the system and the type of the filter."""
    words = _words(wanted)
    indexed = await indexed_to(database)  # first: what is indexed meanwhile is cut off again
    bits = await _live(database, wanted.tenant, indexed)
    among = sum(one.bit_count() for one in bits.values())
    for found in await _found(database, words, indexed):
        bits = {chunk: both for chunk, one in bits.items() if (both := one & found.get(chunk, 0))}
    newest, tail = await _tail(database, wanted, indexed)
    return Matches(bits, tail, newest, among)


def _words(wanted: MessageFilter) -> list[str]:
    words = asked_words(wanted.text) if wanted.text else []
    if wanted.text and not words:
        raise Problem(Category.VALUE, "text must hold a word of at most 64 letters or digits")
    if wanted.patient:
        words.append(patient_word(wanted.patient))
    if wanted.source_system is not None:
        words.append(field_word(SYSTEM, wanted.source_system))
    if wanted.message_type is not None:
        words.append(field_word(TYPE, wanted.message_type))
    return words


async def _live(database: Database, tenant: str, indexed: int) -> Bits:
    every = "SELECT chunk, live FROM message_chunks"
    rows = await database.many(every if tenant == EVERY_TENANT else LIVE.call(tenant))
    bits: Bits = {}
    for chunk, live in rows:  # of every tenant: several may have messages in one chunk
        if chunk * CHUNK <= indexed:
            bits[int(chunk)] = bits.get(int(chunk), 0) | int.from_bytes(bytes(live), "little")
    last = indexed // CHUNK
    if last in bits:
        bits[last] &= (1 << indexed % CHUNK + 1) - 1
    return bits


async def _found(database: Database, words: list[str], indexed: int) -> list[Bits]:
    """The bits of each word."""
    found: dict[str, Bits] = {word: {} for word in words}
    fields = [word for word in words if word.startswith((SYSTEM, TYPE))]
    exact = [word for word in words if not _is_beginning(word) and word not in fields]
    for statement, asked in ((FIELDS, fields), (WORDS, exact)):
        if asked:
            for word, part, posting in await database.many(statement.call(joined(asked), indexed)):
                _add(found[word], int(part), posting)
    for word in words:
        if _is_beginning(word):
            found[word] = await _beginning(database, word[:-1], indexed)
    return list(found.values())


def _add(bits: Bits, part: int, posting: str) -> None:
    bits[part // CHUNK] = bits.get(part // CHUNK, 0) | bits_of(posting)


def _is_beginning(word: str) -> bool:
    return word.endswith("*") and not word.startswith(FIELD)


async def _beginning(database: Database, start: str, indexed: int) -> Bits:
    rows = await database.many(BEGINNING.call(start, start + "\U0010ffff", indexed, _MOST_BLOCKS + 1))
    bits: Bits = {}
    count = 0
    for part, words in rows:
        postings = beginning_with(start, words)
        count += len(postings)
        if count > MOST_BEGINNINGS or len(rows) > _MOST_BLOCKS:
            raise Problem(Category.COSTLY, f"too many words begin with {start!r}: give more of the word")
        for posting in united(postings):
            _add(bits, int(part), posting)
    return bits


async def _tail(database: Database, wanted: MessageFilter, indexed: int) -> tuple[int, frozenset[int]]:
    """How many of the newest are not indexed (at most 3,000 are looked at), and which of them match."""
    newest = (
        "SELECT id, tenant, source_system, message_type, charset, raw_message FROM message_bodies "
        f"WHERE id > {int(indexed)} ORDER BY id DESC LIMIT {TAIL}"
    )
    of_fields = [of_tenant(wanted)]
    for name in ("source_system", "message_type"):
        if getattr(wanted, name) is not None:
            of_fields.append(f"{name} = {literal(getattr(wanted, name))}")
    asked = asked_words(wanted.text or "")
    patient = patient_word(wanted.patient)[len(PATIENT) :] if wanted.patient else None
    parts = [word.rstrip("*") for word in asked] + ([patient.rpartition("|")[2]] if patient else [])
    looked_at = f"SELECT id, charset, {_PLAIN} AS plain, {_RAW} AS raw" if parts else "SELECT id"
    query = f"{looked_at} FROM ({newest}) AS b WHERE {' AND '.join(of_fields)} OFFSET 0"
    holding = " AND ".join(f"strpos(plain, {literal(part)}) > 0" for part in parts if part.isascii()) or "true"
    if parts:
        query = f"SELECT id, charset, raw FROM ({query}) AS c WHERE {_IS_NOT_ASCII} OR ({holding})"
    rows = await database.many(query)
    (count,) = await database.one(f"SELECT count(*) FROM message_bodies WHERE id > {int(indexed)}")
    ids = frozenset(row[0] for row in rows if not parts or _holds(bytes(row[2]), row[1], asked, patient))
    return int(count), ids


def _holds(raw: bytes, charset: str, asked: list[str], patient: str | None) -> bool:
    return holds_words(raw, charset, asked) and (patient is None or patient in patients_of(raw, charset))
