"""Code systems, value sets and maps that a request brings along, and definitions that are named with their version."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json
from tests.rest.terminology.test_terminology import said, validated
from tests.rest.world import OnMemory, OnSharedPostgres, Suite, World, issues

CS, VS, CM = "http://x.test/cs", "http://x.test/vs", "http://x.test/cm"


def system(*codes: str, url: str | None = CS, version: str | None = None, **members: Any) -> Json:
    """A CodeSystem: each code is above the next one."""
    concepts: list[Json] = []
    for code in reversed(codes):
        concepts = [
            {"code": code, "display": f"{code} {version or ''}".strip(), **({"concept": concepts} if concepts else {})}
        ]
    found = {"resourceType": "CodeSystem", "url": url, "version": version, "status": "active", "content": "complete"}
    return {**{name: one for name, one in found.items() if one}, "concept": concepts, **members}


def value_set(version: str | None = None, url: str = VS, **members: Any) -> Json:
    """All codes of the system."""
    found = {"resourceType": "ValueSet", "url": url, "version": version, "status": "active"}
    compose = {"include": [{"system": CS, **({"version": version} if version else {})}]}
    return {**{name: one for name, one in found.items() if one}, "compose": compose, **members}


def concept_map(target: str, version: str | None = None, **members: Any) -> Json:
    """`a` becomes `target`."""
    element = [{"code": "a", "target": [{"code": target, "equivalence": "equal"}]}]
    found = {"resourceType": "ConceptMap", "url": CM, "version": version, "status": "active"}
    groups = [{"source": CS, "target": "http://x.test/other", "element": element}]
    return {**{name: one for name, one in found.items() if one}, "group": groups, **members}


def parameters(**given: Any) -> Json:
    """Parameters; a resource, a Coding, a list of these, a boolean or a text each."""
    found = []
    for name, value in given.items():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                kind = "resource" if "resourceType" in one else "valueCoding"
            else:
                kind = "valueBoolean" if isinstance(one, bool) else "valueString"
            found.append({"name": name.replace("_", "-"), kind: one})
    return {"resourceType": "Parameters", "parameter": found}


class SentResourceTests(OnMemory):
    async def setUp(self) -> None:
        await super().setUp()
        validated(self.world)

    async def ask(self, operation: str, **given: Any) -> Answer:
        return await self.world.send("POST", operation, parameters(**given))

    async def test_each_operation_uses_them(self) -> None:
        """Nothing is stored; without the resource the same call is refused or false."""
        sent = [system("a", "b"), value_set(), concept_map("z")]
        for operation, given, expected in (
            ("ValueSet/$expand", {"url": VS}, {"a", "b"}),
            ("ValueSet/$expand", {"valueSet": value_set()}, {"a", "b"}),
            ("ValueSet/$validate-code", {"url": VS, "system": CS, "code": "b"}, True),
            ("ValueSet/$validate-code", {"url": VS, "system": CS, "code": "x"}, False),
            ("ValueSet/$validate-code", {"valueSet": value_set(), "coding": {"system": CS, "code": "b"}}, True),
            ("CodeSystem/$validate-code", {"url": CS, "code": "b"}, True),
            ("CodeSystem/$lookup", {"system": CS, "code": "b"}, "b"),
            ("CodeSystem/$lookup", {"coding": {"system": CS, "code": "b"}}, "b"),
            ("CodeSystem/$subsumes", {"system": CS, "codeA": "a", "codeB": "b"}, "subsumes"),
            ("ConceptMap/$translate", {"url": CM, "system": CS, "code": "a"}, True),
            ("ConceptMap/$translate", {"system": CS, "code": "a"}, True),
        ):
            answer = await self.ask(operation, **given, tx_resource=sent)
            self.assertEqual(answer.status, 200, (operation, given, answer.body))
            body = loads(answer.body)
            if operation == "ValueSet/$expand":
                self.assertEqual({one["code"] for one in body["expansion"]["contains"]}, expected)
            else:
                named = said(answer)
                found = named.get("result", named.get("outcome", named.get("display")))
                self.assertEqual(found, expected, (operation, given))
            without = await self.ask(operation, **given)
            is_false = without.status == 200 and said(without).get("result") is False
            self.assertTrue(is_false or without.status in (400, 404, 422), (operation, given, without.body))

    async def test_find_matches(self) -> None:
        described = system(url=CS)
        described["property"] = [{"code": "kind", "type": "code"}]
        described["concept"] = [{"code": "a", "property": [{"code": "kind", "valueCode": "k"}]}, {"code": "b"}]
        part = [{"name": "code", "valueCode": "kind"}, {"name": "value", "valueCode": "k"}]
        sent = parameters(system=CS, exact=True, tx_resource=described)
        sent["parameter"].append({"name": "property", "part": part})
        answer = await self.world.send("POST", "CodeSystem/$find-matches", sent)
        self.assertIn(b'"code":"a"', answer.body)
        self.assertNotIn(b'"code":"b"', answer.body)

    async def test_code_system_of_the_request(self) -> None:
        for code, given, expected in (
            ("b", {}, True), ("x", {}, False), ("b", {"url": CS}, True), ("b", {"version": "1"}, True),
        ):  # fmt: skip
            answer = await self.ask(
                "CodeSystem/$validate-code", codeSystem=system("a", "b", version="1"), code=code, **given
            )
            self.assertEqual(said(answer).get("result"), expected, (code, given, answer.body))
        answer = await self.ask(
            "CodeSystem/$validate-code", codeSystem=system("a"), coding={"system": "http://x.test/else", "code": "a"}
        )
        self.assertFalse(said(answer)["result"])
        for given, place in (
            ({"codeSystem": system("a", url=None), "code": "a"}, "tx-resource"),
            ({"codeSystem": system("a"), "url": "http://x.test/else", "code": "a"}, "codeSystem"),
            ({"codeSystem": value_set(), "code": "a"}, "codeSystem"),
            ({"codeSystem": "text", "code": "a"}, "codeSystem"),
            ({"codeSystem": system("a", version="1"), "version": "2", "code": "a"}, "version"),
            ({"tx_resource": {"resourceType": "Patient"}, "url": CS, "code": "a"}, "tx-resource"),
            ({"tx_resource": {"resourceType": "CodeSystem", "url": 7}, "url": CS, "code": "a"}, "tx-resource"),
            ({"tx_resource": True, "url": CS, "code": "a"}, "tx-resource"),
        ):
            answer = await self.ask("CodeSystem/$validate-code", **given)
            self.assertIn(answer.status, (400, 422), (given, answer.body))
            self.assertIn(place, str(issues(answer)), given)

    async def test_it_precedes_what_is_stored(self) -> None:
        await self.world.send("PUT", "CodeSystem/own", {**system("stored"), "id": "own"})
        for sent, expected in ((system("sent"), True), (system("stored"), False)):
            answer = await self.ask("CodeSystem/$validate-code", url=CS, code="sent", tx_resource=sent)
            self.assertEqual(said(answer)["result"], expected)
        again = await self.ask("CodeSystem/$validate-code", url=CS, code="sent")
        self.assertFalse(said(again)["result"], "what a request brings along ends with it")

    async def test_a_supplement(self) -> None:
        designation = [{"language": "de", "value": "Ah"}]
        supplement = system(url="http://x.test/de", content="supplement", supplements=CS)
        supplement["concept"] = [{"code": "a", "designation": designation}]
        sent = [system("a"), supplement]
        answer = await self.ask("CodeSystem/$lookup", system=CS, code="a", displayLanguage="de", tx_resource=sent)
        self.assertEqual(said(answer)["display"], "Ah")


class VersionTests(OnMemory):
    async def prepare(self) -> None:
        validated(self.world)
        for version, codes in (("2", ("a", "c")), ("1", ("a", "b"))):  # 1 is stored last
            self.world.pass_time()
            for kind, resource in (
                ("CodeSystem", system(*codes, version=version)),
                ("ValueSet", value_set(version)),
                ("ConceptMap", concept_map(codes[1], version)),
            ):
                answer = await self.world.send("PUT", f"{kind}/v{version}", {**resource, "id": f"v{version}"})
                self.assertEqual(answer.status, 201, answer.body)

    async def test_each_operation(self) -> None:
        """Two versions are stored: each is found by its version, as `url|version` or as a parameter of its own."""
        await self.prepare()
        for version, code in (("1", "b"), ("2", "c")):
            for query in (f"url={VS}|{version}", f"url={VS}&valueSetVersion={version}"):
                answer = await self.world.send("GET", f"ValueSet/$expand?{query}")
                codes = {one["code"] for one in loads(answer.body)["expansion"]["contains"]}
                self.assertEqual(codes, {"a", code}, query)
                answer = await self.world.send("GET", f"ValueSet/$validate-code?{query}&system={CS}&code={code}")
                self.assertTrue(said(answer)["result"], query)
            for name in ("ValueSet", "CodeSystem", "ConceptMap"):
                stored = loads((await self.world.send("GET", f"{name}/v{version}")).body)
                self.assertEqual(stored["version"], version)
            for call in (
                f"CodeSystem/$validate-code?url={CS}|{version}&code={code}",
                f"CodeSystem/$validate-code?url={CS}&version={version}&code={code}",
                f"CodeSystem/v{version}/$validate-code?code={code}",
                f"ConceptMap/$translate?url={CM}|{version}&system={CS}&code=a",
                f"ConceptMap/$translate?url={CM}&conceptMapVersion={version}&system={CS}&code=a",
            ):
                answer = await self.world.send("GET", call)
                self.assertTrue(said(answer).get("result"), (call, answer.body))
                if "translate" in call:
                    self.assertIn(f'"code":"{code}"'.encode(), answer.body)
            for call in (
                f"CodeSystem/$lookup?system={CS}|{version}&code={code}",
                f"CodeSystem/$lookup?system={CS}&version={version}&code={code}",
                f"CodeSystem/v{version}/$lookup?code={code}",
            ):
                answer = await self.world.send("GET", call)
                self.assertEqual(said(answer).get("display"), f"{code} {version}", (call, answer.body))
            for call in (
                f"CodeSystem/$subsumes?system={CS}|{version}&codeA=a&codeB={code}",
                f"CodeSystem/$subsumes?system={CS}&version={version}&codeA=a&codeB={code}",
                f"CodeSystem/v{version}/$subsumes?codeA=a&codeB={code}",
            ):
                answer = await self.world.send("GET", call)
                self.assertEqual(said(answer).get("outcome"), "subsumes", (call, answer.body))

    async def test_a_version_that_is_not_there(self) -> None:
        """Said with the version that is, never answered from another one."""
        await self.prepare()
        for call in (
            f"ValueSet/$expand?url={VS}|3",
            f"ValueSet/$validate-code?url={VS}|3&system={CS}&code=a",
            f"CodeSystem/$validate-code?url={CS}|3&code=a",
            f"CodeSystem/$lookup?system={CS}|3&code=a",
            f"CodeSystem/$lookup?system={CS}&version=3&code=a",
            f"CodeSystem/$subsumes?system={CS}|3&codeA=a&codeB=a",
            f"ConceptMap/$translate?url={CM}|3&system={CS}&code=a",
            "ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender|9",
        ):
            answer = await self.world.send("GET", call)
            self.assertIn(answer.status, (404, 422), (call, answer.body))
            self.assertIn("is not loaded", issues(answer)[0][1], call)
        known = await self.world.send(
            "GET", "ValueSet/$expand?url=http://hl7.org/fhir/ValueSet/administrative-gender|4.0.1"
        )
        self.assertEqual(known.status, 200)
        both = await self.world.send("GET", f"CodeSystem/$lookup?system={CS}|1&version=2&code=a")
        self.assertEqual(both.status, 400, both.body)


class VersionSearchSuite(Suite):
    world: World

    async def test_by_url_and_version(self) -> None:
        """`url=U|version` of each kind of definition, and the hierarchy of versions."""
        for kind in ("ValueSet", "CodeSystem", "Questionnaire", "Library", "Measure"):
            for version in ("1", "1.2", "1.2.7", "1.20", "2", ""):
                found: Json = {"resourceType": kind, "url": "http://x.test/d", "status": "active"}
                found |= {"version": version} if version else {}
                found |= {"content": "complete"} if kind == "CodeSystem" else {}
                found |= {"type": {"text": "x"}} if kind == "Library" else {}
                answer = await self.world.send("POST", kind, found)
                self.assertEqual(answer.status, 201, answer.body)
            for criteria, expected in (
                ("url=http://x.test/d|1.2", {"1.2"}),
                ("url=http://x.test/d|1.2,http://x.test/d|2", {"1.2", "2"}),
                ("url=http://x.test/d", {"1", "1.2", "1.2.7", "1.20", "2", ""}),
                ("url=http://x.test/d|", set()),
                ("url=http://x.test/d|3", set()),
                ("url=http://x.test/e|1.2", set()),
                ("url:below=http://x.test/d|1.2", {"1.2", "1.2.7"}),
                ("url:below=http://x.test/d|1", {"1", "1.2", "1.2.7", "1.20"}),
                ("url:above=http://x.test/d|1.2.7", {"1", "1.2", "1.2.7"}),
                ("url:below=http://x.test|1", set()),
            ):
                page = loads((await self.world.send("GET", f"{kind}?{criteria}")).body)
                self.assertEqual(
                    {one["resource"].get("version", "") for one in page.get("entry", ())}, expected, criteria
                )
        draft = {"resourceType": "Library", "url": "http://x.test/d", "version": "2", "type": {"text": "x"}}
        condition = await self.world.send("PUT", "Library?url=http://x.test/d|2", {**draft, "status": "draft"})
        self.assertEqual(condition.status, 200, condition.body)


class VersionSearchInMemoryTests(VersionSearchSuite, OnMemory):
    pass


class VersionSearchOnPostgresTests(VersionSearchSuite, OnSharedPostgres):
    pass
