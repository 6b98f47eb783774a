"""Tables: protected labels, scopes and labelled resources in, decisions out."""

from __future__ import annotations

from datetime import UTC, datetime

from twisted.trial.unittest import TestCase

from ipf.fhir.index.extract import extract
from ipf.fhir.search.evaluation.match import matches
from ipf.ports import SYSTEM, Caller
from ipf.ports.queries.search import Query, Term
from ipf.security.privacy.labels import ACT_CODE, CONFIDENTIALITY, LabelRules
from ipf.security.privacy.policy import Privacy
from tests.security.privacy.consents import labelled, observation

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LOCAL = "https://hospital.example/labels"
PLAIN = observation("plain", "p1")
R, V, N = (labelled(observation(code, "p1"), CONFIDENTIALITY, code) for code in "RVN")
ETH = labelled(observation("ETH", "p1"), ACT_CODE, "ETH")
VIP = labelled(observation("VIP", "p1"), LOCAL, "VIP")
OLD = labelled(observation("old", "p1"), "http://hl7.org/fhir/v3/Confidentiality", "R")
BARE = {**observation("bare", "p1"), "meta": {"security": [{"code": "R"}]}}
BOTH = {**observation("both", "p1"), "meta": {"security": [*R["meta"]["security"], *ETH["meta"]["security"]]}}
EVENT = {"resourceType": "AuditEvent", "id": "event"}
ALL = (PLAIN, N, R, V, ETH, VIP, OLD, BARE, BOTH, EVENT)
SYSTEMS = "user/*.rs"

CASES: list[tuple[str, str, str]] = [
    ("R", SYSTEMS, "plain N ETH VIP"),
    ("R", f"{SYSTEMS} conf/R", "plain N R ETH VIP old bare both"),
    ("R", f"{SYSTEMS} conf/V", "plain N R V ETH VIP old bare both event"),
    ("V", SYSTEMS, "plain N R ETH VIP old bare both"),
    (f"R {ACT_CODE}|ETH", f"{SYSTEMS} conf/V", "plain N R V VIP old bare"),
    (f"R {ACT_CODE}|ETH", f"{SYSTEMS} conf/V sens/ETH", "plain N R V ETH VIP old bare both event"),
    (f"{LOCAL}|VIP", SYSTEMS, "plain N R V ETH old bare both"),
    (f"{LOCAL}|VIP", f"{SYSTEMS} label/{LOCAL}|VIP", "plain N R V ETH VIP old bare both event"),
    (f"{LOCAL}|VIP", f"{SYSTEMS} label/VIP conf/V sens/VIP conf/ label/", "plain N R V ETH old bare both"),
]
"""Protected labels, scopes, the ids of what is seen."""


class LabelTests(TestCase):
    def test_cases(self) -> None:
        for words, scopes, expected in CASES:
            privacy = Privacy(LabelRules.of(words.split()))
            caller = Caller("a", "app", tuple(scopes.split()))
            self.assertEqual(self.seen(privacy, caller), expected.split(), (words, scopes))

    def seen(self, privacy: Privacy, caller: Caller) -> list[str]:
        """The ids of the resources that pass."""
        found = []
        for one in ALL:
            kind = str(one["resourceType"])
            test = privacy.limit(caller, kind, "r")
            query = Query(kind, () if test is None else (Term("", "", test),))
            if matches(query, extract(one), id=str(one["id"]), last_updated=NOW, resource=one):
                found.append(str(one["id"]))
        return found

    def test_who_is_not_limited(self) -> None:
        """The server itself, a break-glass request, trusted clients, and what a caller creates."""
        privacy = Privacy(LabelRules.of(["R"]), trusted_clients=frozenset({"feed"}))
        self.assertTrue(privacy.concerns(Caller("a", "app"), "r"))
        for caller in (SYSTEM, Caller("a", "feed"), Caller("a", "app", break_glass=True)):
            self.assertFalse(privacy.concerns(caller, "r"))
        self.assertFalse(privacy.concerns(Caller("a", "app"), "c"))

    def test_wrong_words(self) -> None:
        for word in ("X", "|R", "system|"):
            self.assertRaises(ValueError, LabelRules.of, [word])
