"""The operations on an imported code system: a polyhierarchy with designations and properties."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from ipf.fhir.model.json import loads
from ipf.ports import Caller, Json
from ipf.ports.fhir.terminology_import import NewConcept, NewSystem
from ipf.rest.write.conformance import ENFORCE
from tests.contracts.terminology import URL, clinical
from tests.rest.terminology.imported import (
    SCT,
    ImportedInMemory,
    ImportedOnPostgres,
    ImportedSuite,
    compose,
    served,
    where,
)
from tests.rest.terminology.test_terminology import said


class OperationsSuite(ImportedSuite):
    """Tables of requests."""

    async def test_filters(self) -> None:
        """Rows of (include, codes), expanded; each code is also validated alone."""
        await self.load(clinical())
        leaf, every = "left right leaf", "root old left right leaf"
        rows: list[tuple[Json, str]] = [
            (compose({"system": URL}), every),
            (compose(where("concept", "is-a", "root")), f"root {leaf}"),
            (compose(where("concept", "descendent-of", "root")), leaf),
            (compose(where("concept", "is-not-a", "left")), "root old right"),
            (compose(where("concept", "generalizes", "leaf")), f"root {leaf}"),
            (compose(where("concept", "in", "leaf,old")), "old leaf"),
            (compose(where("concept", "not-in", "leaf,old")), "root left right"),
            (compose(where("parent", "=", "root")), "left right"),
            (compose(where("child", "=", "leaf")), "left right"),
            (compose(where("site", "=", "muscle")), "leaf"),
            (compose(where("site", "in", "muscle,heart")), "left leaf"),
            (compose(where("site", "exists", "true")), "left leaf"),
            (compose(where("site", "exists", "false")), "root old right"),
            (compose(where("site", "regex", "h.*t")), "left leaf"),
            (compose(where("code", "regex", "l.*")), "left leaf"),
            (compose(where("inactive", "=", "true")), "old"),
            (compose({"system": URL, "concept": [{"code": "leaf"}, {"code": "old"}]}), "leaf old"),
            (compose({"system": URL}, exclude=[where("concept", "is-a", "left")]), "root old right"),
            (compose(where("concept", "is-a", "root"), exclude=[{"system": URL, "concept": [{"code": "leaf"}]}]),
             "root left right"),
            (compose({"system": URL, "concept": [{"code": "leaf"}, {"code": "old"}]},
                     exclude=[where("concept", "is-a", "left")]), "old"),
            (compose({"system": URL, "version": "1"}), every),
        ]  # fmt: skip
        for body, expected in rows:
            found = await self.codes("ValueSet/$expand", body)
            self.assertEqual(set(found), set(expected.split()), body)
            for code in every.split():
                asked = {**body, "parameter": [*body["parameter"], {"name": "system", "valueUri": URL},
                                               {"name": "code", "valueCode": code}]}  # fmt: skip
                answer = await self.world.send("POST", "ValueSet/$validate-code", asked)
                self.assertEqual(said(answer)["result"], code in found, (body, code))

    async def test_filters_that_are_refused(self) -> None:
        await self.load(clinical())
        rows = [
            (compose(where("none", "=", "x")), 400, "does not support the filter none = x"),
            (compose(where("site", "is-a", "x")), 400, "does not support the filter site is-a x"),
            (compose(where("code", "regex", "(?=a)")), 400, "regular expression"),
            (compose({"system": URL, "version": "7"}), 400, f"not loaded: {URL}"),
            (compose({"system": "http://loinc.org"}), 400, "not loaded: http://loinc.org"),
        ]
        for body, status, reason in rows:
            answer = await self.world.send("POST", "ValueSet/$expand", body)
            self.assertEqual(answer.status, status, body)
            self.assertIn(reason, loads(answer.body)["issue"][0]["diagnostics"])

    async def test_parameters_of_expand(self) -> None:
        """Rows of (parameters, codes), on the value set of all codes."""
        await self.load(clinical())
        value_set = {"resourceType": "ValueSet", "id": "all", "url": "http://x.test/all", "status": "active",
                     "compose": {"include": [{"system": URL}]}}  # fmt: skip
        await self.world.send("PUT", "ValueSet/all", value_set)
        rows = [
            ("", "old root left right leaf"),
            ("&activeOnly=true", "root left right leaf"),
            ("&filter=DISOR", "left right leaf"),
            ("&filter=heart dis", "left leaf"),
            ("&filter=-", ""),
            ("&count=2", "old root"),
            ("&count=2&offset=3", "right leaf"),
            ("&count=0", ""),
            ("&excludeNotForUI=true&count=9", "old root left right leaf"),
            (f"&exclude-system={URL}", ""),
            (f"&system-version={URL}|1", "old root left right leaf"),
            (f"&check-system-version={URL}|1", "old root left right leaf"),
        ]
        for asked, expected in rows:
            found = await self.codes(f"ValueSet/$expand?url=http://x.test/all{asked}")
            self.assertEqual(found, expected.split(), asked)
        for asked, status in (
            ("force-system-version=x", 400),
            (f"force-system-version={URL}|2", 400),
            ("count=x", 400),
        ):
            answer = await self.world.send("GET", f"ValueSet/$expand?url=http://x.test/all&{asked}")
            self.assertEqual(answer.status, status, asked)
        answer = await self.world.send(
            "GET", "ValueSet/all/$expand?filter=myo&displayLanguage=de&includeDesignations=true"
        )
        (one,) = loads(answer.body)["expansion"]["contains"]
        self.assertEqual((one["display"], len(one["designation"])), ("Herzmuskelentzündung", 2))
        answer = await self.world.send("GET", "ValueSet/all/$expand?count=1&includeDefinition=false")
        self.assertEqual((loads(answer.body).get("compose"), loads(answer.body)["expansion"]["total"]), (None, 5))

    async def test_too_costly_at_once(self) -> None:
        many = {str(n): NewConcept(str(n), f"Number {n}") for n in range(10_001)}
        await self.load(NewSystem("http://x.test/many", "1", "Many", concepts=many))
        body = compose({"system": "http://x.test/many"})
        answer = await self.world.send("POST", "ValueSet/$expand", body)
        self.assertEqual((answer.status, loads(answer.body)["issue"][0]["code"]), (400, "too-costly"))
        body["parameter"].append({"name": "count", "valueInteger": 3})
        self.assertEqual(await self.codes("ValueSet/$expand", body), ["0", "1", "2"])

    async def test_lookup(self) -> None:
        await self.load(clinical())
        answer = await self.world.send("GET", f"CodeSystem/$lookup?system={URL}&code=leaf")
        self.assertEqual((said(answer)["name"], said(answer)["version"]), ("Clinical", "1"))
        parts = [one["part"] for one in loads(answer.body)["parameter"] if one["name"] == "property"]
        pairs = [(one[0]["valueCode"], *[value for name, value in one[1].items() if name != "name"]) for one in parts]
        for expected in (("parent", "left"), ("parent", "right"), ("site", "heart"), ("inactive", False)):
            self.assertIn(expected, pairs)
        answer = await self.world.send(
            "GET", f"CodeSystem/$lookup?system={URL}&code=leaf&property=child&displayLanguage=de"
        )
        self.assertEqual(sorted(said(answer)), ["display", "name", "version"])
        self.assertEqual(said(answer)["display"], "Herzmuskelentzündung")
        for url, status in ((f"system={URL}&code=none", 404), (f"system={URL}&code=leaf&version=2", 404)):
            self.assertEqual((await self.world.send("GET", f"CodeSystem/$lookup?{url}")).status, status, url)

    async def test_supplements(self) -> None:
        """A supplement of a client adds designations and properties."""
        await self.load(clinical())
        concept = {"code": "left", "designation": [{"language": "fr", "value": "Cardiopathie"}],
                   "property": [{"code": "rank", "valueInteger": 3}]}  # fmt: skip
        supplement = {"resourceType": "CodeSystem", "id": "s", "url": "http://x.test/s", "status": "active",
                      "content": "supplement", "supplements": URL, "concept": [concept]}  # fmt: skip
        await self.world.send("PUT", "CodeSystem/s", supplement)
        answer = await self.world.send(
            "GET", f"CodeSystem/$lookup?system={URL}&code=left&displayLanguage=fr&property=rank"
        )
        self.assertEqual((said(answer)["display"], said(answer)["property"][1]["valueInteger"]), ("Cardiopathie", 3))
        answer = await self.world.send("GET", f"CodeSystem/$validate-code?url={URL}&code=left&display=Cardiopathie")
        self.assertTrue(said(answer)["result"])

    async def test_validate_code(self) -> None:
        await self.load(clinical())
        rows = [
            ("code=leaf", True), ("code=none", False), ("code=old", True), ("code=right&abstract=false", False),
            ("code=right&abstract=true", True), ("code=leaf&display=myocarditis of the heart", True),
            ("code=leaf&display=Herzmuskelentzündung", True), ("code=leaf&display=Cold", False),
            ("code=leaf&version=1", True),
        ]  # fmt: skip
        for asked, expected in rows:
            answer = await self.world.send("GET", f"CodeSystem/$validate-code?url={URL}&{asked}")
            self.assertEqual((answer.status, said(answer).get("result")), (200, expected), asked)
        answer = await self.world.send("GET", f"CodeSystem/$validate-code?url={URL}&code=leaf&version=2")
        self.assertEqual(answer.status, 422)
        self.assertIn("loaded: version 1", loads(answer.body)["issue"][0]["diagnostics"])
        answer = await self.world.send("GET", f"CodeSystem/$validate-code?url={URL}&code=leaf&displayLanguage=de")
        self.assertEqual(said(answer)["display"], "Herzmuskelentzündung")

    async def test_a_new_import_counts_with_the_next_request(self) -> None:
        await self.load(clinical())
        url = f"CodeSystem/$validate-code?url={URL}&code=new"
        self.assertFalse(said(await self.world.send("GET", url))["result"])
        await self.load(clinical(new=NewConcept("new", parents=["leaf"])))
        self.assertTrue(said(await self.world.send("GET", url))["result"])

    async def test_subsumes(self) -> None:
        await self.load(clinical())
        rows = [
            ("codeA=root&codeB=leaf", "subsumes"), ("codeA=leaf&codeB=right", "subsumed-by"),
            ("codeA=left&codeB=right", "not-subsumed"), ("codeA=left&codeB=left", "equivalent"),
        ]  # fmt: skip
        for asked, expected in rows:
            answer = await self.world.send("GET", f"CodeSystem/$subsumes?system={URL}&{asked}")
            self.assertEqual(said(answer).get("outcome"), expected, asked)
        gender = "http://hl7.org/fhir/administrative-gender"
        answer = await self.world.send("GET", f"CodeSystem/$subsumes?system={gender}&codeA=male&codeB=female")
        self.assertEqual(said(answer)["outcome"], "not-subsumed")
        for asked, status in ((f"system={URL}&codeA=none&codeB=leaf", 404), (f"system={SCT}&codeA=1&codeB=2", 404),
                              (f"system={URL}&codeA=leaf", 400)):  # fmt: skip
            self.assertEqual((await self.world.send("GET", f"CodeSystem/$subsumes?{asked}")).status, status, asked)

    async def test_closure(self) -> None:
        """Each answer has what is new; a version tells it again; the table is the caller's."""
        await self.load(clinical())

        async def ask(*codes: str, **more: Any) -> tuple[int, str, set[tuple[str, str]]]:
            named: list[Json] = [{"name": "name", "valueString": "t"}]
            named += [{"name": "concept", "valueCoding": {"system": URL, "code": code}} for code in codes]
            named += [{"name": "version", "valueString": one} for one in more.values()]
            answer = await self.world.send("POST", "$closure", {"resourceType": "Parameters", "parameter": named})
            body = loads(answer.body)
            pairs = {(one["code"], target["code"]) for group in body.get("group", ()) for one in group["element"]
                     for target in one["target"]}  # fmt: skip
            return answer.status, body.get("version", ""), pairs

        self.assertEqual((await ask("leaf"))[0], 404)
        self.assertEqual(await ask(), (200, "0", set()))
        self.assertEqual(await ask("leaf", "left"), (200, "1", {("leaf", "left")}))
        self.assertEqual(await ask("root"), (200, "2", {("leaf", "root"), ("left", "root")}))
        self.assertEqual(await ask("leaf"), (200, "2", set()))
        self.assertEqual(await ask(version="1"), (200, "2", {("leaf", "root"), ("left", "root")}))
        self.assertEqual((await ask(version="0"))[2], {("leaf", "left"), ("leaf", "root"), ("left", "root")})
        self.assertEqual((await ask("none"))[0], 404)
        self.world.caller = Caller("eve", scopes=("system/CodeSystem.r",))
        self.assertEqual((await ask("leaf"))[0], 404)
        self.world.caller = Caller("eve", scopes=("system/Patient.r",))
        self.assertEqual((await ask())[0], 401)

    async def test_find_matches(self) -> None:
        await self.load(clinical())

        async def ask(exact: bool, *pairs: tuple[str, str]) -> Any:
            named: list[Json] = [{"name": "system", "valueUri": URL}, {"name": "exact", "valueBoolean": exact}]
            for name, value in pairs:
                parts = [{"name": "code", "valueCode": name}, {"name": "value", "valueCode": value}]
                named.append({"name": "property", "part": parts})
            answer = await self.world.send(
                "POST", "CodeSystem/$find-matches", {"resourceType": "Parameters", "parameter": named}
            )
            if answer.status != 200:
                return answer.status
            found = [one["part"] for one in loads(answer.body)["parameter"]]
            return [(parts[0]["valueCoding"]["code"], len(parts) - 1) for parts in found]

        self.assertEqual(await ask(True, ("site", "heart"), ("parent", "right")), [("leaf", 0)])
        self.assertEqual(await ask(False, ("site", "heart"), ("parent", "right")), [("leaf", 0), ("left", 1)])
        self.assertEqual(await ask(True, ("none", "x")), 400)
        self.assertEqual(await ask(True), 400)
        nested = {"name": "subproperty", "part": [{"name": "code", "valueCode": "site"}]}
        parts = [{"name": "code", "valueCode": "site"}, {"name": "value", "valueCode": "heart"}, nested]
        sent = [{"name": "system", "valueUri": URL}, {"name": "property", "part": parts}]
        body = {"resourceType": "Parameters", "parameter": sent}
        answer = await self.world.send("POST", "CodeSystem/$find-matches", body)
        self.assertEqual(answer.status, 400)
        self.assertIn("subproperty", loads(answer.body)["issue"][0]["diagnostics"])

    async def test_implicit_value_sets(self) -> None:
        await self.load(NewSystem(SCT, f"{SCT}/1/version/2", "SNOMED CT", concepts=clinical().concepts))
        for url, expected in (
            (f"{SCT}?fhir_vs=isa/left", {"left", "leaf"}),
            (f"{SCT}?fhir_vs", {*clinical().concepts}),
        ):
            self.assertEqual(set(await self.codes(f"ValueSet/$expand?url={quote(url)}")), expected, url)

    async def test_bindings(self) -> None:
        """A required binding on codes of an imported system is checked when a resource is written."""
        await self.load(clinical())
        served(self.world, self.systems, None, ENFORCE)
        value_set = {"resourceType": "ValueSet", "id": "v", "url": "http://x.test/v", "status": "active",
                     "compose": {"include": [where("concept", "is-a", "left")]}}  # fmt: skip
        binding = {"strength": "required", "valueSet": "http://x.test/v"}
        profile = {
            "resourceType": "StructureDefinition", "id": "p", "url": "http://x.test/p", "name": "P", "status": "active",
            "kind": "resource", "abstract": False, "type": "Observation", "derivation": "constraint",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Observation",
            "differential": {"element": [
                {"id": "Observation", "path": "Observation"},
                {"id": "Observation.code", "path": "Observation.code", "binding": binding}]},
        }  # fmt: skip
        for one in (value_set, profile):
            answer = await self.world.send("PUT", f"{one['resourceType']}/{one['id']}", one)
            self.assertEqual(answer.status, 201, answer.body)
        for code, status in (("leaf", 201), ("right", 422), ("none", 422)):
            observation = {"resourceType": "Observation", "status": "final", "meta": {"profile": ["http://x.test/p"]},
                           "code": {"coding": [{"system": URL, "code": code}]}}  # fmt: skip
            answer = await self.world.send("POST", "Observation", observation)
            self.assertEqual(answer.status, status, (code, answer.body))

    async def test_searches(self) -> None:
        await self.load(clinical())
        value_set = {"resourceType": "ValueSet", "id": "v", "url": "http://x.test/v", "status": "active",
                     "compose": {"include": [where("concept", "is-a", "left")]}}  # fmt: skip
        await self.world.send("PUT", "ValueSet/v", value_set)
        for code in ("root", "left", "leaf", "old"):
            resource = {"resourceType": "Observation", "id": code, "status": "final",
                        "code": {"coding": [{"system": URL, "code": code}]}}  # fmt: skip
            await self.world.send("PUT", f"Observation/{code}", resource)
        rows = [
            (f"code:below={URL}|root", "root left leaf"),
            (f"code:below={URL}|left", "left leaf"),
            (f"code:above={URL}|leaf", "root left leaf"),
            ("code:in=http://x.test/v", "left leaf"),
            ("code:not-in=http://x.test/v", "root old"),
            (f"code:below={URL}|none", ""),
        ]
        for asked, expected in rows:
            found = loads((await self.world.send("GET", f"Observation?{asked}")).body)
            self.assertEqual({one["resource"]["id"] for one in found.get("entry", ())}, set(expected.split()), asked)

    async def test_a_system_of_a_client_comes_first(self) -> None:
        await self.load(clinical())
        own = {"resourceType": "CodeSystem", "id": "o", "url": URL, "status": "active", "content": "complete",
               "concept": [{"code": "mine"}]}  # fmt: skip
        await self.world.send("PUT", "CodeSystem/o", own)
        for code, expected in (("mine", True), ("leaf", False)):
            answer = await self.world.send("GET", f"CodeSystem/$validate-code?url={URL}&code={code}")
            self.assertEqual(said(answer)["result"], expected, code)

    async def test_capabilities(self) -> None:
        """What is loaded, with versions; nothing that a tenant has stored."""
        await self.load(clinical())
        answer = await self.world.send("GET", "metadata?mode=terminology")
        systems = {one["uri"]: one for one in loads(answer.body)["codeSystem"]}
        version = systems[URL]["version"][0]
        self.assertEqual((version["code"], version["isDefault"], version["language"]), ("1", True, ["de", "en"]))
        self.assertIn("site", version["property"])
        self.assertIn("http://hl7.org/fhir/administrative-gender", systems)
        check = {"resourceType": "Parameters", "parameter": [{"name": "resource", "resource": loads(answer.body)}]}
        outcome = loads((await self.world.send("POST", "TerminologyCapabilities/$validate", check)).body)
        self.assertEqual([one for one in outcome["issue"] if one["severity"] == "error"], [])


class OperationsInMemory(ImportedInMemory, OperationsSuite):
    """On the fakes."""


class OperationsOnPostgres(ImportedOnPostgres, OperationsSuite):
    """SQL holds imported code systems."""

    async def test_writes_while_another_import_replaces_a_system(self) -> None:
        """The first one is refused, and the next one has the new system."""
        await self.load(clinical())
        served(self.world, self.systems, None, ENFORCE)

        async def status(code: str) -> int:
            coded = {"coding": [{"system": URL, "code": code}]}
            made = {"resourceType": "Observation", "status": "final", "code": coded}
            return (await self.world.send("POST", "Observation", made)).status

        self.assertEqual(await status("leaf"), 201)
        await self.load(clinical(new=NewConcept("new", parents=["leaf"])))
        self.assertEqual([await status("new"), await status("new")], [503, 201])
