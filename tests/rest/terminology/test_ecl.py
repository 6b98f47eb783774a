"""Expression constraints of SNOMED CT on an imported edition, as implicit value sets, filters, and in searches."""

from __future__ import annotations

from urllib.parse import quote

from ipf.fhir.model.json import loads
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem
from tests.rest.terminology.imported import SCT, ImportedInMemory, ImportedOnPostgres, ImportedSuite, compose
from tests.rest.terminology.test_terminology import said

FINDING, HEART, LUNG, SITE = "100000001", "100000002", "100000003", "363698007"


def snomed() -> NewSystem:
    """Findings with a finding site, sites, a reference set, and an inactive concept."""
    in_set = ("refset", "700043003")
    rows = [
        NewConcept(FINDING, "Finding"),
        NewConcept("100000011", "Heart finding", parents=[FINDING], properties=[(SITE, HEART)]),
        NewConcept("100000012", "Valve finding", parents=["100000011"], properties=[(SITE, "100000021")]),
        NewConcept("100000013", "Lung finding", parents=[FINDING], properties=[(SITE, LUNG), in_set]),
        NewConcept(HEART, "Heart"),
        NewConcept("100000021", "Valve", parents=[HEART]),
        NewConcept(LUNG, "Lung"),
        NewConcept("100000099", "Old", is_active=False),
    ]
    concepts, properties = {one.code: one for one in rows}, {SITE: "code", "refset": "code"}
    return NewSystem(SCT, f"{SCT}/1/version/2", "SNOMED CT", properties=properties, concepts=concepts)


class EclSuite(ImportedSuite):
    """Rows of expressions."""

    async def test_expression_constraints(self) -> None:
        """Rows of (expression, codes), of an implicit value set, of a filter, and for each code."""
        await self.load(snomed())
        table = [
            (f"<< {FINDING}", "100000001 100000011 100000012 100000013"),
            (f"< {FINDING} |Finding| : {SITE} |Finding site| = << {HEART}", "100000011 100000012"),
            (f"< {FINDING} : {SITE} = {HEART}", "100000011"),
            (f"< {FINDING} : {SITE} != {LUNG}", "100000011 100000012"),
            (f"< {FINDING} : {SITE} = >> 100000021", "100000011 100000012"),
            (f"< {FINDING} MINUS (* : {SITE} = << {HEART})", "100000013"),
            (f"* : {SITE} = (<< {HEART} MINUS (* : {SITE} = << {LUNG}))", "100000011 100000012"),
            ("^ 700043003 OR >! 100000012", "100000011 100000013"),
            (f"* MINUS (<< {FINDING} OR << {HEART})", LUNG),
        ]
        for text, expected in table:
            url = quote(f"{SCT}?fhir_vs=ecl/{text}", safe="")
            self.assertEqual(set(await self.codes(f"ValueSet/$expand?url={url}")), set(expected.split()), text)
            encoded = quote(f"{SCT}?fhir_vs=ecl/{quote(text)}", safe="")
            self.assertEqual(set(await self.codes(f"ValueSet/$expand?url={encoded}")), set(expected.split()), text)
            for code in snomed().concepts:
                answer = await self.world.send("GET", f"ValueSet/$validate-code?url={url}&system={SCT}&code={code}")
                self.assertEqual(said(answer)["result"], code in expected.split(), (text, code))
        filtered = compose({"system": SCT, "filter": [{"property": "constraint", "op": "=", "value": f"<! {FINDING}"}]})
        answer = await self.world.send("POST", "ValueSet/$expand", filtered)
        self.assertEqual(len(loads(answer.body)["expansion"]["contains"]), 2)
        answer = await self.world.send("GET", f"ValueSet/$expand?url={SCT}?fhir_vs=ecl/%3C%3C+x")
        self.assertEqual(answer.status, 400)
        self.assertIn("character 4: expected a concept id", loads(answer.body)["issue"][0]["diagnostics"])


class EclInMemory(ImportedInMemory, EclSuite):
    """On the fakes."""


class EclOnPostgres(ImportedOnPostgres, EclSuite):
    """SQL evaluates constraints."""

    async def test_expression_constraints_in_searches(self) -> None:
        await self.load(snomed())
        code = {"coding": [{"system": SCT, "code": "100000012"}]}
        await self.world.send("POST", "Observation", {"resourceType": "Observation", "status": "final", "code": code})
        for text, matches in ((f"< {FINDING} : {SITE} = << {HEART}", 1), ("^ 700043003", 0)):
            url = quote(f"{SCT}?fhir_vs=ecl/{text}", safe="")
            answer = await self.world.send("GET", f"Observation?code:in={url}")
            self.assertEqual(loads(answer.body)["total"], matches, text)
