"""Criteria with values that the element can never have are refused: of Subscriptions, filters and topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.paths import ElementPath
from ipf.fhir.index.sources import sources
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.evaluation.possible import allowed_codes
from ipf.fhir.search.language.query import parse_criteria
from ipf.fhir.structure.check import structure_issues
from ipf.ports import Json
from ipf.subscriptions.guide import FILTER
from tests.rest.world import World, issues, patient, put, unit
from tests.rest.write.test_subscription import subscription
from tests.rest.write.test_topics import topic

IMPOSSIBLE = "zz-impossible"
URL = "http://example.org/topics/patients"


def with_value(resource_type: str, path: ElementPath, value: Any) -> Json | None:
    """A resource with this value at a path; None if conditions are on the way."""
    type_path, names = resource_type, []
    for step in path.steps:
        element = definitions().element(type_path, step) if isinstance(step, str) else None
        if element is None:
            return None
        names.append(element)
        type_path = element.types[0]
    for element in reversed(names):
        value = {element.name: [value] if element.many else value}
    return {**value, "resourceType": resource_type}


def limited_parameters() -> Iterator[tuple[str, str, bool]]:
    """(type, code, is boolean) of the token parameters of which the structure check refuses the impossible value."""
    for resource_type in sorted(definitions().resource_types):
        for code, parameter in definitions().search_parameters(resource_type).items():
            source = sources(resource_type).get(code)
            if parameter.type != "token" or source is None or source.codes != (code,):
                continue
            made = [with_value(resource_type, path, IMPOSSIBLE) for path in source.paths]
            plain = [one for one in made if one is not None]
            types = {path.type_path for path in source.paths}
            if plain and len(plain) == len(made) and types <= {"code", "boolean"} and all(map(structure_issues, plain)):
                yield resource_type, code, types == {"boolean"}


class ImpossibleCriteriaTests(TestCase):
    def setUp(self) -> None:
        self.world = World()

    async def register(self, criteria: str, **members: Any) -> tuple[int, list[tuple[str, str]]]:
        """Status, and (text, place) of each issue."""
        answer = await self.world.send("POST", "Subscription", subscription(criteria, **members))
        found = [] if answer.status == 201 else [(text, place) for _, text, place in issues(answer)]
        return answer.status, found

    async def test_every_parameter_with_limited_values(self) -> None:
        """R4 has more than 150 of them."""
        table = [*limited_parameters(), ("Patient", "deceased", True)]
        self.assertGreater(len(table), 150)
        for resource_type, code, is_boolean in table:
            allowed = allowed_codes(resource_type, code)
            assert allowed is not None, (resource_type, code)
            possible = "true" if is_boolean else "text/plain"
            if not is_boolean and allowed.text.startswith("one of "):
                possible = allowed.text.removeprefix("one of ").split(",")[0].split(" ")[0]
            for search, status in (
                (f"{code}={IMPOSSIBLE}", 422),
                (f"{code}={possible}", 201),
                (f"{code}:not={IMPOSSIBLE}", 422),
                (f"{code}:not={possible}", 201),
                (f"{code}={IMPOSSIBLE},{possible}", 201),
                (f"{code}:missing=false", 201),
            ):
                found, why = await self.register(f"{resource_type}?{search}")
                self.assertEqual(found, status, (resource_type, search, why))
                if status == 422:
                    self.assertIn(allowed.text, why[0][0])
                    self.assertEqual(why[0][1], "Subscription.criteria")

    async def test_every_parameter_with_typed_values(self) -> None:
        """A value that is no date, number or quantity is refused, of each of the parameters of these types."""
        wrong = {
            "date": ("maybe", "2024-13-01", "2024-02-30"),
            "number": ("many", "1..2"),
            "quantity": ("much", "5|a|b|c|d"),
        }
        count = 0
        for resource_type in sorted(definitions().resource_types):
            for code, parameter in definitions().search_parameters(resource_type).items():
                for value in wrong.get(parameter.type, ()):
                    count += 1
                    self.assertRaises(Problem, parse_criteria, f"{resource_type}?{code}={value}")
        self.assertGreater(count, 900)
        for search in ("Patient?birthdate=maybe", "RiskAssessment?probability=many", "Observation?value-quantity=much"):
            status, why = await self.register(search)
            self.assertEqual(status, 422, (search, why))

    async def test_values(self) -> None:
        for search, is_refused in (
            ("gender=mann", True),
            ("gender=Male", True),
            ("gender=mann,frau", True),
            ("gender=mann,male", False),
            ("gender=|male", False),
            ("gender=http://hl7.org/fhir/administrative-gender|male", False),
            ("gender=http://hl7.org/fhir/administrative-gender|mann", True),
            ("gender=http://hl7.org/fhir/administrative-gender|", True),
            ("gender=male&active=maybe", True),
            ("active=TRUE", True),
            ("active=1", True),
            ("_filter=gender eq mann", True),
            ("_filter=gender eq mann and active eq true", True),
            ("_filter=gender eq mann or active eq true", False),
            ("_filter=not (gender eq mann)", True),
            ("language=klingon", False),  # an extensible binding
            ("identifier=mann", False),
            ("name=mann", False),
        ):
            status, why = await self.register(f"Patient?{search}")
            self.assertEqual(status, 422 if is_refused else 201, (search, why))

    async def test_the_reason(self) -> None:
        self.assertEqual(
            await self.register("Patient?gender=mann"),
            (422, [("gender=mann matches no resource: gender is one of female, male, other, unknown",
                    "Subscription.criteria")]),
        )  # fmt: skip
        self.assertEqual(
            await self.register("Patient?active:not=maybe"),
            (422, [("active:not=maybe matches every resource: active is true or false", "Subscription.criteria")]),
        )

    async def test_filters_of_a_topic(self) -> None:
        trigger = {"resource": "Patient", "queryCriteria": {"current": "active=true"}}
        filters = [{"resource": "Patient", "filterParameter": one} for one in ("gender", "active")]
        made = topic(URL, resourceTrigger=[trigger], canFilterBy=filters, notificationShape=None)
        self.assertEqual((await self.world.send("POST", "SubscriptionTopic", made)).status, 201)
        for text, status in (("gender=male", 201), ("gender=mann", 422), ("Patient?gender=male&active=maybe", 422)):
            extension = {"extension": [{"url": FILTER, "valueString": text}]}
            found, why = await self.register(URL, _criteria=extension)
            self.assertEqual(found, status, (text, why))
            self.assertTrue(all(place == "Subscription.criteria.extension" for _, place in why), why)

    async def test_criteria_of_a_topic(self) -> None:
        for member in ("current", "previous"):
            for text, status in (("gender=male", 201), ("gender=mann", 422), ("Patient?active:not=maybe", 422)):
                trigger = {"resource": "Patient", "queryCriteria": {member: text}}
                made = topic(URL, resourceTrigger=[trigger], canFilterBy=None, notificationShape=None)
                answer = await self.world.send("POST", "SubscriptionTopic", made)
                self.assertEqual(answer.status, status, answer.body)
                if status == 422:
                    place = f"SubscriptionTopic.resourceTrigger[0].queryCriteria.{member}"
                    self.assertEqual(issues(answer)[0][2], place)

    async def test_what_is_stored_can_be_switched_off(self) -> None:
        """A Subscription from before this rule stays as it is; it may be switched off, not activated again."""
        old = {**subscription("Patient?gender=mann"), "id": "old"}
        await self.world.commit(unit(put(old)))
        await self.world.commit(unit(put(patient("1", gender="male"))))
        for status, answered in (("off", 200), ("requested", 422)):
            answer = await self.world.send("PUT", "Subscription/old", {**old, "status": status})
            self.assertEqual(answer.status, answered, answer.body)
