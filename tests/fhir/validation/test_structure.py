"""Members, cardinalities and the forms of values."""

from __future__ import annotations

import copy
from typing import Any

from ipf.fhir.model.json import loads
from tests.fhir.validation.rules import OBSERVATION, PATIENT, Base, Json, found, with_


class Structure(Base):
    """Members, JSON shapes, cardinalities, choices."""

    def test_members(self) -> None:
        self.check(
            [
                (PATIENT, []),
                (with_(PATIENT, nme="x"), [("structure", "Patient.nme")]),
                (with_(PATIENT, name={"family": "A"}), [("structure", "Patient.name")]),
                (with_(PATIENT, name=[]), [("structure", "Patient.name")]),
                (with_(PATIENT, name=[{}]), [("invariant", "Patient.name[0]")]),
                (with_(PATIENT, name=["A"]), [("structure", "Patient.name[0]")]),
                (with_(PATIENT, gender=["male"]), [("structure", "Patient.gender")]),
                (with_(PATIENT, name=[{"given": ["A", None]}]), [("invariant", "Patient.name[0].given[1]")]),
                (with_(PATIENT, _name=[{"id": "x"}]), [("structure", "Patient._name")]),
                (with_(PATIENT, contact=[{"name": {"famly": "A"}}]), [("structure", "Patient.contact[0].name.famly")]),
                ({"resourceType": "Unknown"}, [("structure", "Unknown")]),
                ({}, [("structure", "None")]),
            ]
        )

    def test_cardinalities(self) -> None:
        self.check(
            [
                ({"resourceType": "Observation"}, [("required", "Observation")] * 2),
                (with_(PATIENT, communication=[{"preferred": True}]), [("required", "Patient.communication[0]")]),
                (with_(PATIENT, link=[{"type": "seealso"}]), [("required", "Patient.link[0]")]),
                (with_(OBSERVATION, valueString="x", valueInteger=1), [("structure", "Observation")]),
                (with_(OBSERVATION, valueAddress={}), [("structure", "Observation.valueAddress")]),
            ]
        )

    def test_a_primitive_may_have_only_extensions(self) -> None:
        absent = {"extension": [{"url": "http://hl7.org/fhir/StructureDefinition/data-absent-reason"}]}
        reason = copy.deepcopy(absent)
        reason["extension"][0]["valueCode"] = "unknown"  # type: ignore[assignment,index]
        rows: list[tuple[Json, list[tuple[str, str]]]] = [
            (with_(PATIENT, _birthDate=reason), []),
            (
                with_(PATIENT, _birthDate=absent),
                [("required", "Patient.birthDate.extension[0]"), ("invariant", "Patient.birthDate.extension[0]")],
            ),
            (with_(PATIENT, _birthDate={"id": "x"}), [("invariant", "Patient.birthDate")]),
            (with_(PATIENT, name=[{"given": [None, "B"], "_given": [reason, None]}]), []),
            (with_(PATIENT, name=[{"given": ["A"], "_given": [None, None]}]), [("structure", "Patient.name[0].given")]),
        ]
        self.check(rows)

    def test_deep_nesting_is_an_error(self) -> None:
        inner: Json = {"url": "http://x.test/a", "valueString": "x"}
        for _ in range(150):
            inner = {"url": "http://x.test/a", "extension": [inner]}
        self.assertIn("structure", {code for code, _ in found(with_(PATIENT, extension=[inner]))})


class Primitives(Base):
    """A form a type."""

    def test_formats(self) -> None:
        good: list[tuple[str, Any]] = [
            ("Boolean", False),
            ("Integer", -3),
            ("Decimal", loads(b"1.10")),
            ("Decimal", 3),
            ("String", " a b\n"),
            ("Uri", "urn:uuid:C757873D-EC9A-4326-A141-556F43239520"),
            ("Date", "2024-02-29"),
            ("Date", "2024"),
            ("DateTime", "2024-02-29T23:59:60.5+14:00"),
            ("Instant", "2024-02-29T23:59:59Z"),
            ("Time", "23:59:59"),
            ("Code", "a b"),
            ("Oid", "urn:oid:1.2.840.0"),
            ("Id", "a-1.B"),
            ("Base64Binary", "YWJj\nZGU="),
            ("PositiveInt", 1),
            ("UnsignedInt", 0),
        ]
        bad: list[tuple[str, Any]] = [
            ("Boolean", "true"),
            ("Integer", loads(b"1.0")),
            ("Integer", 2**31),
            ("Decimal", "1"),
            ("String", ""),
            ("String", "  "),
            ("String", "a\x00"),
            ("Uri", "a b"),
            ("Uri", "urn:uuid:1"),
            ("Uri", "urn:oid:a"),
            ("Date", "2023-02-29"),
            ("Date", "2024-1-01"),
            ("Date", "2024-01-01T00:00:00Z"),
            ("DateTime", "2024-02-29T23:59"),
            ("DateTime", "2024-02-29T23:59:59"),
            ("Instant", "2024-02-29"),
            ("Time", "24:00:00"),
            ("Code", " a"),
            ("Oid", "1.2.3"),
            ("Id", "a_b"),
            ("Base64Binary", "YWJj" + "  YWJj" * 10_000 + "!"),  # no exponential time
            ("Base64Binary", "YW"),
            ("PositiveInt", 0),
            ("UnsignedInt", -1),
        ]
        for rows, expected in ((good, []), (bad, ["invalid"])):
            for kind, value in rows:
                resource = with_(PATIENT, extension=[{"url": "http://x.test/e", "value" + kind: value}])
                self.assertEqual([code for code, _ in found(resource)], expected, (kind, value))
