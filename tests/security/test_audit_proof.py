"""The offline check of the audit trail: each kind of tampering is found and named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from ipf.ports.audit.chain import COLUMNS, Chain, Head, Link, Waiting
from ipf.security.audit.chain import BadKey, SigningKey, is_signed, next_links, public_pem, read_public_pem
from ipf.security.audit.proof import (
    CONTENT,
    INSERTED,
    MISSING,
    REORDERED,
    SIGNATURE,
    UNREADABLE,
    Proof,
    Verifier,
)
from tests.audit_chains import KEY, OTHER_KEY, record

INSTALLATION = "5b0f2e9c-0000-4000-8000-000000000001"
DAYS = ("2026-02-01", "2026-02-02", "2026-02-04")
PER_DAY = 4
KEYS = {KEY.id: KEY.public_key}

Lines = list[dict[str, Any]]


def export(key: SigningKey = KEY, *, installation: str = INSTALLATION, change: str = "client-a") -> Lines:
    """An export of two chains over three days, with a head at each day's end."""
    tails: dict[Chain, Link] = {}
    records: Lines = []
    heads: list[Head] = []
    for day in DAYS:
        rows = [record(len(records) + one, agent=change) for one in range(PER_DAY * 2)]
        rows = [row | {"surface": "admin" if number % 2 else "fhir"} for number, row in enumerate(rows)]
        waiting = [Waiting("default", row["surface"], row["recorded_at"], row["id"], row) for row in rows]
        links, _ = next_links(installation, waiting, tails, len(records), day)
        tails.update({link.chain: link for link in links})
        records += [
            {"type": "record", "link": link._asdict(), "record": row} for link, row in zip(links, rows, strict=True)
        ]
        heads += [key.signed(tail, f"{day}T23:59:59+00:00", "day") for tail in tails.values()]
    return [
        {"type": "export", "version": 1, "installation": installation, "tenant": None, "surface": None, "since": None,
         "until": None},
        {"type": "key", "key_id": key.id, "public_key": key.public_key},
        *({"type": "head", "head": head._asdict()} for head in heads),
        *records,
        {"type": "end", "waiting": 0},
    ]  # fmt: skip


def verified(lines: Lines, keys: dict[str, str] = KEYS) -> Proof:
    """The result for lines."""
    verifier = Verifier(keys)
    verifier.read(orjson.dumps(line) for line in lines)
    return verifier.finish()


def first_record(lines: Lines) -> int:
    """The index of the first record."""
    return next(index for index, line in enumerate(lines) if line["type"] == "record")


def _content(lines: Lines) -> None:
    lines[first_record(lines) + 6]["record"]["agent"] = "someone else"


def _removed_row(lines: Lines) -> None:
    lines[first_record(lines) + 6]["record"] = None


def _removed(lines: Lines) -> None:
    del lines[first_record(lines) + 6]


def _swapped(lines: Lines) -> None:
    at = first_record(lines)
    lines[at], lines[at + 2] = lines[at + 2], lines[at]


def _repeated(lines: Lines) -> None:
    at = first_record(lines)
    lines.insert(at + 3, lines[at + 2])


def _inserted_row(lines: Lines) -> None:
    lines.insert(-1, {"type": "unlinked", "record": record(99)})


def _tail(lines: Lines) -> None:
    del lines[-3:-1]


def _day(lines: Lines) -> None:
    at = first_record(lines) + PER_DAY * 2
    del lines[at : at + PER_DAY * 2]


def _first_day(lines: Lines) -> None:
    at = first_record(lines)
    del lines[at : at + PER_DAY * 2]


def _replaced_day(lines: Lines) -> None:
    """With hashes that fit each other."""
    at = first_record(lines) + PER_DAY * 2
    lines[at : at + PER_DAY * 2] = export(change="other")[at : at + PER_DAY * 2]


def _replaced_tail(lines: Lines) -> None:
    """The last day with hashes that fit all before, but not the head."""
    at = first_record(lines) + PER_DAY * 4
    tails = {link.chain: link for link in (Link(**line["link"]) for line in lines[at - 2 : at])}
    rows = [line["record"] | {"status": 201} for line in lines[at:-1]]
    waiting = [Waiting("default", row["surface"], row["recorded_at"], row["id"], row) for row in rows]
    links, _ = next_links(INSTALLATION, waiting, tails, PER_DAY * 4, DAYS[2])
    lines[at:-1] = [
        {"type": "record", "link": link._asdict(), "record": row} for link, row in zip(links, rows, strict=True)
    ]


def _head(lines: Lines) -> None:
    lines[2]["head"]["number"] += 1


def _no_heads(lines: Lines) -> None:
    lines[:] = [line for line in lines if line["type"] != "head"]


def _rechained(lines: Lines) -> None:
    lines[:] = export(OTHER_KEY, change="other")


def _other_installation(lines: Lines) -> None:
    lines[0]["installation"] = INSTALLATION[::-1]


def _cut_file(lines: Lines) -> None:
    del lines[-1]


def _lost_before(lines: Lines) -> None:
    """The sequencer found no row."""
    lines[first_record(lines)]["record"] = None


ATTACKS: tuple[tuple[Callable[[Lines], None], str, str], ...] = (
    (_content, CONTENT, "the record is not the one that was chained here"),
    (_removed_row, MISSING, "the record was removed"),
    (_removed, MISSING, "links between 2026-02-01 number 3 and this one"),
    (_swapped, MISSING, "the beginning of the chain"),
    (_repeated, REORDERED, "it comes after 2026-02-01 number 2"),
    (_inserted_row, INSERTED, "the record is in no chain"),
    (_tail, MISSING, "the signed head of 2026-02-04T23:59:59+00:00 says that the chain had this link"),
    (_day, CONTENT, "the link is not the one that was chained here"),
    (_first_day, MISSING, "the beginning of the chain"),
    (_replaced_day, CONTENT, "the link is not the one that was chained here"),
    (_replaced_tail, CONTENT, "the signed head of 2026-02-04T23:59:59+00:00 has another hash"),
    (_head, SIGNATURE, "the signature does not fit"),
    (_no_heads, SIGNATURE, "no head of this chain is signed by a trusted key"),
    (_rechained, SIGNATURE, "its key is not trusted"),
    (_other_installation, MISSING, "the beginning of the chain"),
    (_cut_file, MISSING, "the file ends early"),
    (_lost_before, MISSING, "the record was removed"),
)


class ProofTests(TestCase):
    """Changes of an export."""

    def test_an_intact_export(self) -> None:
        proof = verified(export())
        self.assertEqual((proof.faults, proof.notes), ([], []))
        for chain in proof.chains.values():
            self.assertEqual((chain.links, chain.signed, chain.begins), (12, 12, "with the first record"))

    def test_attacks(self) -> None:
        for attack, kind, text in ATTACKS:
            lines = export()
            attack(lines)
            proof = verified(lines)
            self.assertTrue(proof.faults, attack.__name__)
            self.assertEqual(proof.faults[0].kind, kind, attack.__name__)
            self.assertTrue(proof.faults[0].text.startswith(text), (attack.__name__, proof.faults[0].text))

    def test_a_fault_names_the_record(self) -> None:
        lines = export()
        _content(lines)
        (fault,) = verified(lines).faults
        self.assertEqual(fault[2:], (record(6)["id"], record(6)["recorded_at"], "default", "fhir", DAYS[0], 4))

    def test_every_column_is_covered(self) -> None:
        for column in COLUMNS:
            lines = export()
            lines[-4]["record"][column] = "x"
            self.assertEqual(len(verified(lines).faults), 1, column)

    def test_the_tail_without_a_head_is_named(self) -> None:
        lines = [line for line in export() if not (line["type"] == "head" and line["head"]["day"] == DAYS[2])]
        lines[-1]["waiting"] = 3
        proof = verified(lines)
        self.assertEqual((proof.faults, len(proof.notes)), ([], 3))
        self.assertTrue(proof.notes[0].startswith("default/admin: 4 records after the last signed head"))

    def test_a_head_that_was_kept_elsewhere_finds_a_removed_tail(self) -> None:
        lines = export()
        kept = [
            orjson.dumps(line["head"]) for line in lines if line["type"] == "head" and line["head"]["day"] == DAYS[2]
        ]
        lines = [line for line in lines if DAYS[2] not in (line.get("head") or line.get("link") or {"day": ""})["day"]]
        self.assertEqual(verified(lines).faults, [])
        verifier = Verifier(KEYS)
        verifier.add_heads(kept)
        verifier.read(orjson.dumps(line) for line in lines)
        self.assertEqual([fault.kind for fault in verifier.finish().faults], [MISSING, MISSING])

    def test_retention_is_no_tampering(self) -> None:
        lines = export()
        at = first_record(lines)
        cut = Link(**lines[at + 6]["link"])  # number 4 of the chain fhir
        head = KEY.signed(cut, "2026-02-05T00:00:00+00:00", "retention", lines[at + 8]["record"]["recorded_at"])
        kept = [line for line in lines[at:] if line["type"] == "end" or line["link"]["surface"] == "fhir"]
        heads = [line for line in lines[2:at] if line["head"]["surface"] == "fhir"]
        trail = [lines[0] | {"surface": "fhir"}, {"type": "head", "head": head._asdict()}, *heads[1:], *kept[3:]]
        trail[-10]["record"] = None
        proof = verified(trail)
        self.assertEqual([one.text for one in proof.faults], [])
        (chain,) = proof.chains.values()
        self.assertEqual((chain.purged, chain.links), (1, 9))
        kept[4]["record"] = None  # not older than what the head says
        self.assertEqual([one.kind for one in verified(trail).faults], [MISSING])
        unsigned = [trail[0], {"type": "head", "head": head._asdict() | {"before": "2027-01-01T00:00:00+00:00"}}]
        self.assertEqual(verified([*unsigned, *trail[2:]]).faults[0].kind, SIGNATURE)

    def test_a_part_begins_after_its_anchor(self) -> None:
        lines = export()
        at = first_record(lines) + PER_DAY * 2
        anchors = [{"type": "anchor", "link": line["link"]} for line in lines[at - 2 : at]]
        part = [lines[0] | {"since": DAYS[1]}, *lines[2:8], *anchors, *lines[at:]]
        proof = verified(part)
        self.assertEqual(proof.faults, [])
        self.assertEqual({chain.is_part for chain in proof.chains.values()}, {True})
        self.assertEqual(verified([lines[0], *part[1:]]).faults[0].kind, MISSING)
        anchors[0]["link"] = dict(anchors[0]["link"], hash="0" * 64)
        self.assertEqual(verified(part).faults[0].kind, CONTENT)

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_any_flipped_bit_is_found(self, data: st.DataObject) -> None:
        """In any byte of a record, a link or a head."""
        lines = [orjson.dumps(line) for line in EXPORTED]
        index = data.draw(st.integers(2, len(lines) - 2))
        at = data.draw(st.integers(0, len(lines[index]) * 8 - 1))
        changed = bytearray(lines[index])
        changed[at // 8] ^= 1 << (at % 8)
        lines[index] = bytes(changed)
        verifier = Verifier(KEYS)
        verifier.read(b"\n".join(lines).split(b"\n"))
        self.assertTrue(verifier.finish().faults, lines[index])

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_any_removed_repeated_or_moved_line_is_found(self, data: st.DataObject) -> None:
        lines = list(EXPORTED)
        first, last = first_record(lines), len(lines) - 2
        index, to = data.draw(st.integers(first, last)), data.draw(st.integers(first, last))
        line = lines[index]
        how = data.draw(st.sampled_from(("remove", "repeat", "move")))
        if how != "repeat":
            del lines[index]
        if how != "remove":
            lines.insert(to, line)
        same = [one["link"] for one in lines[first:-1] if one["link"]["surface"] == "fhir"]
        other = [one["link"] for one in lines[first:-1] if one["link"]["surface"] == "admin"]
        before = [one["link"] for one in EXPORTED[first:-1]]
        is_same = [*same, *other] == [one for name in ("fhir", "admin") for one in before if one["surface"] == name]
        self.assertEqual(bool(verified(lines).faults), not is_same)  # chains may be mixed in any way

    def test_lines_that_cannot_be_read(self) -> None:
        for line in (
            b"{",
            b"[]",
            b'{"type":"x"}',
            b'{"type":"record"}',
            b'{"type":"record","link":{},"record":{}}',
            b"\xff",
        ):
            verifier = Verifier(KEYS)
            verifier.read([orjson.dumps(EXPORTED[0]), line, orjson.dumps(EXPORTED[-1])])
            self.assertEqual([fault.kind for fault in verifier.finish().faults], [UNREADABLE], line)
        self.assertEqual({fault.kind for fault in Verifier(KEYS).finish().faults}, {UNREADABLE, MISSING})


class KeyTests(TestCase):
    """Keys and signatures."""

    def test_public_keys(self) -> None:
        self.assertEqual(read_public_pem(public_pem(KEY.public_key)), KEY.public_key)
        for text in ("", "x", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"):
            with self.assertRaises(BadKey):
                read_public_pem(text)
            with self.assertRaises(BadKey):
                SigningKey(text)

    def test_a_signature_has_one_form(self) -> None:
        head = KEY.signed(Link(**EXPORTED[-2]["link"]), "2026-02-05T00:00:00+00:00", "stop")
        self.assertTrue(is_signed(head, KEY.public_key))
        for changed in (head._replace(signature=head.signature.upper()), head._replace(reason="day"),
                        head._replace(signature="x"), head._replace(signature="")):  # fmt: skip
            self.assertFalse(is_signed(changed, KEY.public_key))
        self.assertFalse(is_signed(head, OTHER_KEY.public_key))


EXPORTED = export()
