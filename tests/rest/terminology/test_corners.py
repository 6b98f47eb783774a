"""Corners of $expand and $validate-code: booleans in Parameters, and inactive codes."""

from __future__ import annotations

from typing import Any

from ipf.fhir.model.json import loads
from ipf.ports import Json
from tests.rest.terminology.test_terminology import said, validated
from tests.rest.world import OnMemory

CS, VS = "http://x.test/cs", "http://x.test/vs"
SYSTEM: Json = {
    "resourceType": "CodeSystem", "id": "own", "url": CS, "status": "active", "content": "complete",
    "property": [{"code": "inactive", "type": "boolean"}, {"code": "notSelectable", "type": "boolean"}],
    "concept": [
        {"code": "group", "property": [{"code": "notSelectable", "valueBoolean": True}],
         "concept": [{"code": "new"}, {"code": "old", "property": [{"code": "inactive", "valueBoolean": True}]}]},
    ],
}  # fmt: skip
IN_PARAMETERS = {bool: "valueBoolean", int: "valueInteger", str: "valueString"}


def value_set(include: Json, **compose: Any) -> Json:
    return {"resourceType": "ValueSet", "url": VS, "status": "active", "compose": {"include": [include], **compose}}


class CornerTests(OnMemory):
    async def ask(self, operation: str, **parameters: Any) -> Any:
        """By POST, each parameter in its declared type."""
        sent = [
            {"name": name, **({"resource": one} if isinstance(one, dict) else {IN_PARAMETERS[type(one)]: one})}
            for name, one in parameters.items()
        ]
        return await self.world.send("POST", f"ValueSet/{operation}", {"resourceType": "Parameters", "parameter": sent})

    async def codes(self, **parameters: Any) -> set[str]:
        answer = await self.ask("$expand", **parameters)
        self.assertEqual(answer.status, 200, answer.body)
        return {one["code"] for one in loads(answer.body)["expansion"].get("contains", ())}

    async def prepare(self) -> None:
        validated(self.world)
        await self.world.send("PUT", "CodeSystem/own", SYSTEM)
        await self.world.send("PUT", "ValueSet/own", {**value_set({"system": CS}), "id": "own"})

    async def test_every_boolean_of_expand_in_parameters(self) -> None:
        await self.prepare()
        names = ("activeOnly", "excludeNested", "includeDesignations", "includeDefinition", "excludeNotForUI",
                 "excludePostCoordinated")  # fmt: skip
        for name in names:
            for value in (True, False, "true", "false"):
                posted = await self.ask("$expand", url=VS, **{name: value})
                asked = await self.world.send("GET", f"ValueSet/$expand?url={VS}&{name}={str(value).lower()}")
                self.assertEqual((posted.status, asked.status), (200, 200), (name, value, posted.body))
                first, second = (loads(one.body) for one in (posted, asked))
                for one in (first, second):
                    del one["expansion"]["identifier"]
                self.assertEqual(first, second, (name, value))
        nested = loads((await self.ask("$expand", url=VS, excludeNested=False)).body)["expansion"]["contains"]
        self.assertEqual([len(one["contains"]) for one in nested], [2])
        plain = loads((await self.ask("$expand", url=VS, includeDefinition=False)).body)
        self.assertNotIn("compose", plain)

    async def test_abstract_of_validate_code(self) -> None:
        await self.prepare()
        for value, expected in ((True, True), (False, False), ("false", False)):
            answer = await self.ask("$validate-code", url=VS, system=CS, code="group", abstract=value)
            self.assertEqual((answer.status, said(answer).get("result")), (200, expected), answer.body)

    async def test_inactive_codes(self) -> None:
        """`compose.inactive` false leaves them out, however the include selects."""
        await self.prepare()
        listed = {"system": CS, "concept": [{"code": "new"}, {"code": "old"}, {"code": "unknown"}]}
        filtered = {"system": CS, "filter": [{"property": "concept", "op": "is-a", "value": "group"}]}
        for include, expected in (
            ({"system": CS}, {"group", "new", "old"}),
            (filtered, {"group", "new", "old"}),
            (listed, {"new", "old", "unknown"}),
            ({"valueSet": [VS]}, {"group", "new", "old"}),
        ):
            self.assertEqual(await self.codes(valueSet=value_set(include)), expected)
            self.assertEqual(await self.codes(valueSet=value_set(include, inactive=True)), expected)
            self.assertEqual(await self.codes(valueSet=value_set(include, inactive=False)), expected - {"old"})
        for inactive, expected_result in ((True, True), (False, False)):
            sent = value_set({"system": CS}, inactive=inactive)
            answer = await self.ask("$validate-code", valueSet=sent, system=CS, code="old")
            self.assertEqual(said(answer)["result"], expected_result)
