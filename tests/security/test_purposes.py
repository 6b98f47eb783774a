"""A table of claims, and the purposes of use that are read from them."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.security.purposes import LONGEST, purposes
from ipf.security.tokens import caller_of
from tests.security.issuer import RULES, claims

OID = "urn:oid:2.16.840.1.113883.5.8"
TREAT = {"system": OID, "code": "TREAT"}


def iua(value: Any) -> dict[str, Any]:
    """The claim as IHE IUA places it."""
    return {"extensions": {"ihe_iua": {"purpose_of_use": value}}}


class PurposeTests(TestCase):
    """Claims of verified tokens."""

    def test_claims(self) -> None:
        rows: list[tuple[dict[str, Any], tuple[str, ...]]] = [
            ({}, ()),
            (iua([TREAT]), (f"{OID}|TREAT",)),
            (iua(TREAT), (f"{OID}|TREAT",)),
            (iua([{"code": "TREAT"}, {**TREAT, "code": "ETREAT"}, TREAT, TREAT]),
             ("TREAT", f"{OID}|ETREAT", f"{OID}|TREAT")),
            ({"extensions": {"hl7-b2b": {"purpose_of_use": [f"{OID}#TREAT"]}}}, (f"{OID}|TREAT",)),
            ({"purpose_of_use": "TREAT"}, ("TREAT",)),
            ({"purpose_of_use": [f"{OID}|TREAT", "HPAYMT"]}, (f"{OID}|TREAT", "HPAYMT")),
            ({"purpose_of_use": "ETREAT", **iua("TREAT")}, ("TREAT", "ETREAT")),
            ({"purpose_of_use": [f"P{number}" for number in range(20)]}, tuple(f"P{number}" for number in range(8))),
        ]  # fmt: skip
        for value in (
            None, 7, True, "", " ", "a b", "a|b|c", "a\nb", "\x00", "x" * (LONGEST + 1), {}, {"code": 7},
            {"system": OID}, {"system": OID, "code": {"a": 1}}, {"system": 7, "code": []},
            {"system": "a b", "code": "c"}, [[TREAT]], "|", "a|", "|b",
        ):  # fmt: skip
            rows += [(iua(value), ()), ({"purpose_of_use": [value]}, ())]
        rows += [({"extensions": value}, ()) for value in (None, "x", [], {"ihe_iua": 7, "hl7-b2b": []})]
        for sent, expected in rows:
            self.assertEqual(purposes(sent), expected, sent)

    def test_callers_carry_them(self) -> None:
        self.assertEqual(caller_of(claims(**iua([TREAT])), RULES).purpose, (f"{OID}|TREAT",))
