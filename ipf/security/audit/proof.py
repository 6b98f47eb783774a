"""Verifies an export of the audit trail, line by line, without a database and without trust in who made it.

Arrives: the lines of `GET /admin/audit/export` and public keys that the auditor trusts.  Leaves: the faults, the first
one of each kind of chain in detail, and what could not be checked.  Memory grows with the number of chains and heads,
not with records.  A line that cannot be read is a fault.

What is proved: the records up to a signed head are those that were chained, complete and in order, unless the holder of
a key signed others.  What is not: records after the last head, and those changed before they were chained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ipf.ports.audit.chain import Chain, Head, Link
from ipf.security.audit.chain import VERSION, digest_of, genesis, hash_of, is_signed

CONTENT, MISSING, REORDERED, INSERTED, SIGNATURE, UNREADABLE = (
    "content", "missing", "reordered", "inserted", "head signature", "unreadable",
)  # fmt: skip
MOST_SHOWN = 20


class Fault(NamedTuple):
    """What differs, and where.  `id`, `recorded_at`: of the record, as far as known."""

    kind: str
    text: str
    id: str = ""
    recorded_at: str = ""
    tenant: str = ""
    surface: str = ""
    day: str = ""
    number: int = 0


@dataclass(slots=True)
class ChainProof:
    """What is known of one chain.  `last`: its last link; `signed`: number of links up to its last signed head."""

    links: int = 0
    signed: int = 0
    purged: int = 0
    last: Link | None = None
    begins: str = ""
    is_part: bool = False
    last_head: Head | None = None


@dataclass(slots=True)
class Proof:
    """The result.  `faults`: the first ones; `count`: all of them."""

    faults: list[Fault] = field(default_factory=list)
    count: Counter[str] = field(default_factory=Counter)
    chains: dict[Chain, ChainProof] = field(default_factory=dict)
    waiting: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, fault: Fault) -> None:
        """Count a fault; the first ones are kept."""
        self.count[fault.kind] += 1
        if len(self.faults) < MOST_SHOWN:
            self.faults.append(fault)


class Verifier:
    """`read` takes the lines, `finish` gives the result.  `keys`: trusted public keys by key id."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = keys
        self._proof = Proof()
        self._header: dict[str, Any] | None = None
        self._heads: dict[tuple[Chain, str, int], list[Head]] = {}
        self._before: dict[Chain, str] = {}
        self._cuts: dict[Chain, tuple[str, int]] = {}
        self._anchors: dict[Chain, Link] = {}
        self._ended = False
        self._line = 0

    def read(self, lines: Iterable[bytes]) -> None:
        """Check these lines."""
        for line in lines:
            self._line += 1
            try:
                self._read_line(orjson.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError):
                self._proof.add(Fault(UNREADABLE, f"line {self._line} cannot be read"))

    def add_heads(self, lines: Iterable[bytes]) -> None:
        """Heads that were kept elsewhere, one a line, such as log lines in JSON.  Call it before `read`."""
        for line in lines:
            if line.strip():
                self._head(_head_of(orjson.loads(line)))

    def _read_line(self, line: dict[str, Any]) -> None:
        kind = line["type"]
        if kind == "record":
            self._link(_link_of(line["link"]), line["record"])
        elif kind == "head":
            self._head(_head_of(line["head"]))
        elif kind == "unlinked":
            self._unlinked(line["record"])
        elif kind == "anchor":
            link = _link_of(line["link"])
            self._anchors[link.chain] = link
        elif kind == "export":
            self._header = line
            genesis(line["installation"], ("", ""))
        elif kind == "end":
            self._ended = True
            self._proof.waiting = int(line["waiting"])
        elif kind != "key":
            raise ValueError

    # -- heads

    def _head(self, head: Head) -> None:
        key = self._keys.get(head.key_id)
        if key is None or not is_signed(head, key):
            why = "its key is not trusted" if key is None else "the signature does not fit"
            text = f"{why} (key {head.key_id}, signed {head.at}, {head.reason})"
            self._proof.add(Fault(SIGNATURE, text, "", "", *head.chain, head.day, head.number))
            return
        self._heads.setdefault((head.chain, head.day, head.number), []).append(head)
        self._proof.chains.setdefault(head.chain, ChainProof())
        if head.reason == "retention" and head.before is not None:
            self._before[head.chain] = max(self._before.get(head.chain, ""), head.before)
            self._cuts[head.chain] = max(self._cuts.get(head.chain, ("", 0)), (head.day, head.number))

    # -- links

    def _link(self, link: Link, record: dict[str, Any] | None) -> None:
        chain = self._proof.chains.setdefault(link.chain, ChainProof())
        previous = self._begin(chain, link) if chain.last is None else self._follows(chain.last, link)
        if previous is not None and hash_of(previous, link) != link.hash:
            self._fault(CONTENT, "the link is not the one that was chained here", link)
        self._check_record(chain, link, record)
        chain.links += 1
        chain.last = link
        for head in self._heads.pop((link.chain, link.day, link.number), ()):
            if head.hash != link.hash:
                self._fault(CONTENT, f"the signed head of {head.at} has another hash", link)
            chain.signed, chain.last_head = chain.links, head

    def _begin(self, chain: ChainProof, link: Link) -> str | None:
        """The hash before the first link of a chain in the file; None when its own hash is known to be right."""
        anchor = self._anchors.get(link.chain)
        heads = self._heads.get((link.chain, link.day, link.number), ())
        if any(head.reason == "retention" and head.hash == link.hash for head in heads):
            chain.begins = f"after records that retention removed ({link.day} number {link.number})"
            return None
        header = self._header or {"installation": ""}
        start = genesis(header["installation"], link.chain)
        if link.number == 1 and hash_of(start, link) == link.hash:
            chain.begins = "with the first record"
            return None
        if anchor is None or header.get("since") is None:
            self._fault(MISSING, "the beginning of the chain", link)
            return None
        if not _is_next(anchor, link):
            self._fault(MISSING, f"links between {anchor.day} number {anchor.number} and this one", link)
            return None
        for head in self._heads.pop((anchor.chain, anchor.day, anchor.number), ()):
            if head.hash != anchor.hash:
                self._fault(CONTENT, f"the signed head of {head.at} has another hash", anchor)
        chain.is_part = True
        chain.begins = f"after {anchor.day} number {anchor.number}; nothing before is in the file"
        return anchor.hash

    def _follows(self, last: Link, link: Link) -> str | None:
        """The hash of the last link; None with a fault when this one is not the next."""
        if _is_next(last, link) and (link.day == last.day or not self._has_later_head(last)):
            return last.hash
        at = f"{last.day} number {last.number}"
        if (link.day, link.number) <= (last.day, last.number):
            self._fault(REORDERED, f"it comes after {at}", link)
        else:
            self._fault(MISSING, f"links between {at} and this one", link)
        return None

    def _has_later_head(self, last: Link) -> bool:
        """Whether a head says that this was not the last link of its day."""
        return any(key[0] == last.chain and key[1] == last.day and key[2] > last.number for key in self._heads)

    def _check_record(self, chain: ChainProof, link: Link, record: dict[str, Any] | None) -> None:
        if record is None:
            if link.digest is not None and link.recorded_at and self._is_purged(link):
                chain.purged += 1
            elif link.digest is None:
                self._fault(MISSING, "the record was removed before it was chained", link)
            else:
                self._fault(MISSING, "the record was removed", link)
        elif link.version != VERSION:
            self._fault(UNREADABLE, f"version {link.version} is not known to this program", link)
        elif digest_of(record) != link.digest:
            self._fault(CONTENT, "the record is not the one that was chained here", link)
        elif (record["id"], record["recorded_at"], record["surface"]) != (link.id, link.recorded_at, link.surface):
            self._fault(CONTENT, "the link names another record", link)

    def _is_purged(self, link: Link) -> bool:
        before = self._before.get(link.chain)
        return before is not None and datetime.fromisoformat(link.recorded_at) < datetime.fromisoformat(before)

    def _unlinked(self, record: dict[str, Any]) -> None:
        id_, recorded_at, surface = (str(record.get(name, "")) for name in ("id", "recorded_at", "surface"))
        self._proof.add(Fault(INSERTED, "the record is in no chain", id_, recorded_at, "", surface))

    def _fault(self, kind: str, text: str, link: Link) -> None:
        self._proof.add(Fault(kind, text, link.id, link.recorded_at, *link.chain, link.day, link.number))

    # -- the end

    def finish(self) -> Proof:
        """The result, after the last line."""
        proof = self._proof
        if self._header is None:
            proof.add(Fault(UNREADABLE, "the file is no export: its first line is missing"))
        if not self._ended:
            proof.add(Fault(MISSING, "the file ends early"))
        for (chain, day, number), heads in sorted(self._heads.items()):
            if self._is_expected(chain, day, number):
                head = heads[0]
                text = f"the signed head of {head.at} says that the chain had this link"
                proof.add(Fault(MISSING, text, "", "", *chain, day, number))
        self._note()
        return proof

    def _is_expected(self, chain: Chain, day: str, number: int) -> bool:
        """Whether a link that a head names had to be in the file."""
        header = self._header or {}
        if header.get("tenant") not in (None, chain[0]) or header.get("surface") not in (None, chain[1]):
            return False
        if (header.get("since") or "") > day or (header.get("until") or "9999") < day:
            return False
        return (day, number) >= self._cuts.get(chain, ("", 0))

    def _note(self) -> None:
        notes = self._proof.notes
        for (tenant, surface), chain in sorted(self._proof.chains.items()):
            name = f"{tenant}/{surface}"
            if chain.links and not chain.signed and not chain.is_part:
                text = "no head of this chain is signed by a trusted key"
                self._proof.add(Fault(SIGNATURE, text, "", "", tenant, surface))
            elif chain.links > chain.signed:
                unsigned = chain.links - chain.signed
                notes.append(f"{name}: {unsigned} records after the last signed head, which its writer could replace")
            if chain.purged:
                notes.append(f"{name}: {chain.purged} records were removed by retention, as a signed head says")
        if self._proof.waiting:
            notes.append(f"{self._proof.waiting} records were in no chain yet when the export was made")


def _is_next(last: Link, link: Link) -> bool:
    if link.position <= last.position:
        return False
    return link.number == last.number + 1 if link.day == last.day else link.day > last.day and link.number == 1


def _link_of(value: dict[str, Any]) -> Link:
    link = Link(**value)
    texts = (link.tenant, link.surface, link.day, link.id, link.recorded_at, link.hash)
    if not all(isinstance(one, str) for one in texts) or not isinstance(link.number, int) or len(link.hash) != 64:
        raise ValueError
    bytes.fromhex(link.hash)
    datetime.fromisoformat(link.recorded_at)
    return link


def _head_of(value: dict[str, Any]) -> Head:
    head = Head(**{name: value[name] for name in Head._fields})
    texts = (head.tenant, head.surface, head.day, head.key_id)
    if not isinstance(head.number, int) or not all(isinstance(one, str) for one in texts):
        raise ValueError
    return head
