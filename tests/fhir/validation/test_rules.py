"""One table a kind of rule: a resource, and the errors (or warnings) that it must and must not give."""

from __future__ import annotations

import copy
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.fhir.fhirpath import Host, compile
from ipf.fhir.json import loads
from ipf.fhir.profiles.library import Structures
from ipf.fhir.validation.findings import Finding, Policy, Run, Scope, outcome
from ipf.fhir.validation.invariants import NATIVE
from ipf.fhir.validation.validator import Validator

Json = dict[str, Any]
PATIENT: Json = {"resourceType": "Patient"}
OBSERVATION: Json = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "718-7"}]},
}
VALIDATOR = Validator()


def with_(resource: Json, **members: Any) -> Json:
    """A copy of a resource with some members."""
    return {**copy.deepcopy(resource), **members}


def found(resource: Json, severity: str = "error", **more: Any) -> list[tuple[str, str]]:
    """(code, place) of the findings of one severity."""
    return [(one.code, one.place) for one in VALIDATOR.validate(resource, **more) if one.severity == severity]


class Base(TestCase):
    """A table is rows of (resource, findings)."""

    def check(self, rows: list[tuple[Json, list[tuple[str, str]]]], severity: str = "error") -> None:
        """Each resource gives exactly these."""
        for resource, expected in rows:
            self.assertEqual(found(resource, severity), expected, resource)


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

    def test_deep_nesting_ends(self) -> None:
        inner: Json = {"url": "http://x.test/a", "valueString": "x"}
        for _ in range(150):
            inner = {"url": "http://x.test/a", "extension": [inner]}
        self.assertIn("structure", {code for code, _ in found(with_(PATIENT, extension=[inner]))})


class Primitives(Base):
    """A form a type."""

    def test_forms(self) -> None:
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
            ("Base64Binary", "YW"),
            ("PositiveInt", 0),
            ("UnsignedInt", -1),
        ]
        for rows, expected in ((good, []), (bad, ["invalid"])):
            for kind, value in rows:
                resource = with_(PATIENT, extension=[{"url": "http://x.test/e", "value" + kind: value}])
                self.assertEqual([code for code, _ in found(resource)], expected, (kind, value))


class Codes(Base):
    """Bindings and what codings must keep to."""

    def test_required_and_extensible(self) -> None:
        marital = {"coding": [{"system": "http://x.test/cs", "code": "M"}]}
        self.check([(with_(PATIENT, gender="man"), [("code-invalid", "Patient.gender")])])
        self.check([(with_(PATIENT, maritalStatus=marital), [])])
        self.assertIn(
            ("code-invalid", "Patient.maritalStatus"), found(with_(PATIENT, maritalStatus=marital), "warning")
        )
        clinical = {"resourceType": "Condition", "subject": {"reference": "Patient/1"}}
        self.check(
            [
                (with_(clinical, clinicalStatus={"text": "x"}), [("code-invalid", "Condition.clinicalStatus")]),
                (
                    with_(clinical, clinicalStatus={"coding": [{"system": "http://x.test/cs", "code": "active"}]}),
                    [("code-invalid", "Condition.clinicalStatus")],
                ),
            ]
        )

    def test_what_cannot_be_known_is_said(self) -> None:
        profile = {
            "resourceType": "StructureDefinition",
            "url": "http://x.test/p",
            "type": "Observation",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Observation",
            "derivation": "constraint",
            "differential": {
                "element": [
                    {
                        "id": "Observation.code",
                        "path": "Observation.code",
                        "binding": {"strength": "required", "valueSet": "http://x.test/vs"},
                    }
                ]
            },
        }
        validator = Validator(Structures(lambda url: profile if url == "http://x.test/p" else None))
        findings = validator.validate(OBSERVATION, ["http://x.test/p"])
        self.assertIn(("information", "Observation.code"), {(one.severity, one.place) for one in findings})
        self.assertNotIn("error", {one.severity for one in findings})

    def test_codings(self) -> None:
        def coded(**coding: str) -> Json:
            return with_(OBSERVATION, code={"coding": [coding]})

        observation_status = "http://hl7.org/fhir/observation-status"
        self.check(
            [
                (coded(system="#x", code="a"), [("invalid", "Observation.code.coding[0].system")]),
                (
                    coded(system="http://hl7.org/fhir/ValueSet/observation-status", code="a"),
                    [("invalid", "Observation.code.coding[0].system")],
                ),
                (coded(system=observation_status, code="final"), []),
                (coded(system=observation_status, code="nil"), [("code-invalid", "Observation.code.coding[0].code")]),
                (coded(system="http://snomed.info/sct", code="1"), []),
            ]
        )


class References(Base):
    """Targets, contained resources."""

    def test_targets(self) -> None:
        self.check(
            [
                (with_(OBSERVATION, subject={"reference": "Patient/1"}), []),
                (with_(OBSERVATION, subject={"reference": "https://x.test/fhir/Location/1/_history/2"}), []),
                (with_(OBSERVATION, subject={"reference": "Medication/1"}), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, subject={"type": "Medication"}), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, subject={"reference": "urn:uuid:c757873d-ec9a-4326-a141-556f43239520"}), []),
                (with_(OBSERVATION, subject={"reference": "#p"}), [("invariant", "Observation.subject")]),
            ]
        )

    def test_contained(self) -> None:
        patient = {"resourceType": "Patient", "id": "p"}
        medication = {"resourceType": "Medication", "id": "p"}
        of_p = {"reference": "#p"}
        self.check(
            [
                (with_(OBSERVATION, contained=[patient], subject=of_p), []),
                (with_(OBSERVATION, contained=[medication], subject=of_p), [("structure", "Observation.subject")]),
                (with_(OBSERVATION, contained=[patient]), [("invariant", "Observation")]),
                (
                    with_(OBSERVATION, contained=[with_(patient, gender="x")], subject=of_p),
                    [("code-invalid", "Observation.contained[0].gender")],
                ),
                (
                    with_(OBSERVATION, contained=[with_(patient, meta={"versionId": "1"})], subject=of_p),
                    [("invariant", "Observation")],
                ),
            ]
        )

    def test_whether_a_target_exists_can_be_asked(self) -> None:
        resource = with_(OBSERVATION, subject={"reference": "Patient/1"})
        self.assertEqual(found(resource, policy=Policy(exists=lambda reference: True)), [])
        missing = found(resource, policy=Policy(exists=lambda reference: False))
        self.assertEqual(missing, [("not-found", "Observation.subject")])


class Extensions(Base):
    """Known and unknown ones, and where they may stand."""

    def test_known(self) -> None:
        birth_place = "http://hl7.org/fhir/StructureDefinition/patient-birthPlace"
        own_prefix = "http://hl7.org/fhir/StructureDefinition/humanname-own-prefix"
        family = [{"family": "van A", "_family": {"extension": [{"url": own_prefix, "valueString": "van"}]}}]
        self.check(
            [
                (with_(PATIENT, extension=[{"url": birth_place, "valueAddress": {"city": "X"}}]), []),
                (
                    with_(PATIENT, extension=[{"url": birth_place, "valueString": "X"}]),
                    [("structure", "Patient.extension[0].valueString"), ("required", "Patient.extension[0]")],
                ),
                (
                    with_(OBSERVATION, extension=[{"url": birth_place, "valueAddress": {"city": "X"}}]),
                    [("extension", "Observation.extension[0]")],
                ),
                (with_(PATIENT, name=family), []),
                (with_(PATIENT, contact=[{"name": family[0]}]), []),
            ]
        )

    def test_unknown(self) -> None:
        own = {"url": "http://x.test/e", "valueString": "x"}
        self.check([(with_(PATIENT, extension=[own]), []), (with_(PATIENT, modifierExtension=[own]), [])])
        self.assertIn(("extension", "Patient.extension[0]"), found(with_(PATIENT, extension=[own]), "information"))
        self.assertIn(
            ("extension", "Patient.modifierExtension[0]"), found(with_(PATIENT, modifierExtension=[own]), "warning")
        )
        refused = found(with_(PATIENT, extension=[own]), policy=Policy(unknown_extensions="error"))
        self.assertEqual(refused, [("extension", "Patient.extension[0]")])

    def test_shape(self) -> None:
        inner = {"url": "a", "valueString": "x"}
        both = {"url": "http://x.test/e", "valueString": "x", "extension": [inner]}
        self.check(
            [
                (with_(PATIENT, extension=[{"url": "http://x.test/e"}]), [("invariant", "Patient.extension[0]")]),
                (with_(PATIENT, extension=[both]), [("invariant", "Patient.extension[0]")]),
                (with_(PATIENT, extension=[{"url": "http://x.test/e", "extension": [inner]}]), []),
                (with_(PATIENT, extension=[inner]), [("extension", "Patient.extension[0]")]),
            ]
        )


class Invariants(Base):
    """FHIRPath and its Python forms."""

    def test_some(self) -> None:
        quantity = {"value": 1, "code": "g"}
        self.check(
            [
                (with_(PATIENT, contact=[{"gender": "male"}]), [("invariant", "Patient.contact[0]")]),
                (with_(OBSERVATION, valueQuantity=quantity), [("invariant", "Observation.value.ofType(Quantity)")]),
                (
                    with_(OBSERVATION, referenceRange=[{"appliesTo": [{"text": "x"}]}]),
                    [("invariant", "Observation.referenceRange[0]")],
                ),
                (
                    with_(OBSERVATION, valueInteger=1, dataAbsentReason={"text": "x"}),
                    [("invariant", "Observation")],
                ),
                (
                    with_(OBSERVATION, effectivePeriod={"start": "2024-01-02", "end": "2024-01-01"}),
                    [("invariant", "Observation.effective.ofType(Period)")],
                ),
            ]
        )
        self.assertIn(("invariant", "Patient"), found(PATIENT, "warning"))  # dom-6, a best practice

    def test_the_python_forms_agree_with_fhirpath(self) -> None:
        patient = {"resourceType": "Patient", "id": "p"}
        of_p = {"reference": "#p"}
        resources = [
            OBSERVATION,
            with_(OBSERVATION, contained=[patient]),
            with_(OBSERVATION, contained=[patient], subject=of_p),
            with_(OBSERVATION, contained=[with_(patient, meta={"versionId": "1"})], subject=of_p),
            with_(OBSERVATION, contained=[with_(patient, meta={"security": [{"code": "R"}]})], subject=of_p),
            with_(OBSERVATION, contained=[with_(patient, contained=[patient])], subject=of_p),
            with_(OBSERVATION, text={"status": "empty", "div": "<div xmlns='http://www.w3.org/1999/xhtml'>x</div>"}),
        ]
        for key in ("dom-2", "dom-3", "dom-4", "dom-5", "dom-6"):
            text, test = NATIVE[key]
            for resource in resources:
                run = Run(Scope(resource, resource, lambda reference: None, "Observation"))
                variables = {"resource": resource, "rootResource": resource}
                self.assertEqual(
                    test(resource, run), compile(text).test(resource, variables, host=Host()), (key, resource)
                )
        text, test = NATIVE["ref-1"]
        for resource in resources:
            for reference in ({"reference": "#p"}, {"reference": "Patient/1"}, {"reference": "#q"}):
                run = Run(Scope(resource, resource, lambda reference: None, "Observation"))
                expected = compile(text, base_type="Reference").test(reference, {"rootResource": resource})
                self.assertEqual(test(reference, run), expected, (reference, resource))

    def test_narratives(self) -> None:
        def told(div: str) -> Json:
            return with_(PATIENT, text={"status": "generated", "div": div})

        head = '<div xmlns="http://www.w3.org/1999/xhtml">'
        wrong = [("invariant", "Patient.text.div")]
        self.check(
            [
                (told(f"{head}<p class='a'>x</p></div>"), []),
                (told(f"{head}<script>x</script></div>"), wrong),
                (told(f"{head}<p onclick='x'>x</p></div>"), wrong),
                (told(f"{head} </div>"), wrong),
                (told("<p xmlns='http://www.w3.org/1999/xhtml'>x</p>"), wrong),
                (told(f"{head}<p>x</div>"), [("invalid", "Patient.text.div")]),
            ]
        )

    def test_attachments(self) -> None:
        media = {"resourceType": "Media", "status": "completed"}
        self.check(
            [
                (with_(media, content={"contentType": "text/plain", "data": "YWJj", "size": 3}), []),
                (
                    with_(media, content={"contentType": "text/plain", "data": "YWJj", "size": 4}),
                    [("structure", "Media.content")],
                ),
            ]
        )


class Bundles(Base):
    """Full urls, documents, messages, searches."""

    def test_bundles(self) -> None:
        def bundle(kind: str, *entries: Json) -> Json:
            return {"resourceType": "Bundle", "type": kind, "entry": list(entries)}

        patient = with_(PATIENT, id="1")
        url = "http://x.test/fhir/Patient/1"
        self.check(
            [
                (bundle("collection", {"fullUrl": url, "resource": patient}), []),
                (
                    bundle("collection", {"fullUrl": "Patient/1", "resource": patient}),
                    [("invalid", "Bundle.entry[0].fullUrl")],
                ),
                (
                    bundle("collection", {"fullUrl": url, "resource": with_(patient, id="2")}),
                    [("invalid", "Bundle.entry[0].fullUrl")],
                ),
                (
                    bundle("collection", {"fullUrl": url, "resource": with_(patient, gender="x")}),
                    [("code-invalid", "Bundle.entry[0].resource.gender")],
                ),
                (
                    bundle("searchset", {"fullUrl": url, "resource": patient, "search": {"mode": "outcome"}}),
                    [("invalid", "Bundle.entry[0].resource")],
                ),
            ]
        )
        message = found(bundle("message", {"fullUrl": url, "resource": patient}))
        self.assertIn(("invalid", "Bundle.entry[0]"), message)

    def test_a_document_has_what_it_refers_to(self) -> None:
        composition = {
            "resourceType": "Composition",
            "id": "c",
            "status": "final",
            "type": {"text": "x"},
            "date": "2024",
            "title": "x",
            "author": [{"reference": "Patient/1"}],
        }
        document = {
            "resourceType": "Bundle",
            "type": "document",
            "identifier": {"system": "urn:ietf:rfc:3986", "value": "urn:uuid:c757873d-ec9a-4326-a141-556f43239520"},
            "timestamp": "2024-01-01T00:00:00Z",
            "entry": [
                {"fullUrl": "http://x.test/fhir/Composition/c", "resource": composition},
                {"fullUrl": "http://x.test/fhir/Patient/1", "resource": with_(PATIENT, id="1")},
            ],
        }
        self.assertEqual(found(document), [])
        lost = copy.deepcopy(document)
        lost["entry"][1]["fullUrl"] = "http://y.test/fhir/Patient/1"  # type: ignore[index]
        self.assertEqual(found(lost), [("not-found", "Bundle.entry[0].resource.author[0]")])


class Outcomes(TestCase):
    """OperationOutcome."""

    def test_outcome(self) -> None:
        made = outcome([Finding("error", "value", "text", "Patient.name")])
        issue = {"severity": "error", "code": "value", "diagnostics": "text", "expression": ["Patient.name"]}
        self.assertEqual(made, {"resourceType": "OperationOutcome", "issue": [issue]})
        self.assertEqual(outcome([])["issue"][0]["severity"], "information")
