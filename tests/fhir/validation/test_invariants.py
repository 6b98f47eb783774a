"""Invariants of elements and resources, in their Python forms and in FHIRPath."""

from __future__ import annotations

from ipf.fhir.fhirpath import Host, compile
from ipf.fhir.validation.checks.invariants import NATIVE
from ipf.fhir.validation.findings import Run, Scope
from tests.fhir.validation.rules import OBSERVATION, PATIENT, Base, Json, found, with_


class Invariants(Base):
    """Invariants in FHIRPath and in Python."""

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

    def test_ranges(self) -> None:
        """rng-2, in units of UCUM and of other systems; units that cannot be compared decide nothing."""
        other, ucum = {"system": "http://x.test", "code": "kg"}, {"system": "http://unitsofmeasure.org", "code": "kg"}
        place = [("invariant", "Observation.value.ofType(Range)")]
        rows: list[tuple[Json, Json, bool]] = [
            (other, other, True), (ucum, ucum, True), ({"unit": "x"}, {"unit": "x"}, True), (ucum, other, False),
        ]  # fmt: skip
        for low, high, is_decided in rows:
            for first, second in ((1, 2), (2, 1)):
                range_ = {"low": {**low, "value": first}, "high": {**high, "value": second}}
                expected = place if is_decided and first > second else []
                self.check([(with_(OBSERVATION, valueRange=range_), expected)])

    def test_native_invariants_agree_with_fhirpath(self) -> None:
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
        def patient_with_narrative(div: str) -> Json:
            return with_(PATIENT, text={"status": "generated", "div": div})

        head = '<div xmlns="http://www.w3.org/1999/xhtml">'
        wrong = [("invariant", "Patient.text.div")]
        self.check(
            [
                (patient_with_narrative(f"{head}<p class='a'>x</p></div>"), []),
                (patient_with_narrative(f"{head}<script>x</script></div>"), wrong),
                (patient_with_narrative(f"{head}<p onclick='x'>x</p></div>"), wrong),
                (patient_with_narrative(f"{head} </div>"), wrong),
                (patient_with_narrative("<p xmlns='http://www.w3.org/1999/xhtml'>x</p>"), wrong),
                (patient_with_narrative(f"{head}<p>x</div>"), [("invalid", "Patient.text.div")]),
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
