"""Registration of a Subscription as tables: what is refused, with the place and the rule."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.ports import Json
from ipf.subscriptions.criteria import check
from ipf.subscriptions.guide import CONTENT, FILTER, HEARTBEAT
from ipf.subscriptions.notification_topic import Form, form_of
from ipf.subscriptions.policy import PERMISSIVE, ChannelPolicy

TOPIC = "http://example.org/topics/any"
LATER = "http://hl7.org/fhir/5.0/StructureDefinition/extension-Subscription."
OTHER = {"url": "http://example.org/colour", "valueString": "blue"}
FILTERED = {"url": FILTER, "valueString": "patient=Patient/1"}


def subscription(criteria: str = TOPIC, channel: Json | None = None, **members: Any) -> Json:
    """A Subscription that is not refused."""
    base = {"type": "rest-hook", "endpoint": "http://127.0.0.1/", "payload": "application/fhir+json"}
    head = {"resourceType": "Subscription", "status": "requested", "reason": "test", "criteria": criteria}
    return {**head, "channel": {**base, **(channel or {})}, **members}


def on(*extensions: Json) -> Json:
    """An element with these extensions."""
    return {"extension": list(extensions)}


def refusals(resource: Json) -> list[str]:
    """`place: text` of each reason."""
    try:
        check(resource, ChannelPolicy(PERMISSIVE))
    except Problem as problem:
        return [f"{issue.place}: {issue.text}" for issue in problem.issues]
    return []


class ExtensionTests(TestCase):
    def test_those_that_have_no_effect_are_stored(self) -> None:
        for one in (
            subscription(_criteria=on(FILTERED)),
            subscription(_criteria={"id": "c"}),
            subscription(extension=[OTHER]),
            subscription(extension=[{"url": LATER + "name", "valueString": "x"}]),
            subscription(_reason=on(OTHER)),
            subscription("Patient?", {"extension": [OTHER]}),
            subscription(channel={"_payload": on({"url": CONTENT, "valueCode": "empty"}, OTHER)}),
            subscription(channel=on({"url": HEARTBEAT, "valueUnsignedInt": 60})),
        ):
            self.assertEqual(refusals(one), [], one)

    def test_those_that_would_change_it_are_refused(self) -> None:
        heartbeat = {"url": HEARTBEAT, "valueUnsignedInt": 60}
        versioned = {"url": f"{FILTER}|1.2.0", "valueString": "patient=Patient/1"}
        guide_2 = {"url": FILTER.replace("filter-criteria", "related-query"), "valueString": "x"}
        contact = {"system": "phone", "modifierExtension": [OTHER]}
        for one, place, rule in (
            (subscription(_criteria=on(FILTERED, OTHER)), "criteria.extension[1]", "change what matches"),
            (subscription(_criteria=on({"url": LATER + "filterBy"})), "criteria.extension[0]", "change what matches"),
            (subscription(_criteria=on(versioned)), "criteria.extension[0]", "change what matches"),
            (subscription("Patient?", _criteria=on(OTHER)), "criteria.extension[0]", "change what matches"),
            (subscription("Patient?", _criteria=on(FILTERED)), "criteria.extension", "add them to the search"),
            (subscription(_criteria=on({"url": FILTER})), "criteria.extension[0]", "needs a valueString"),
            (subscription(_criteria=on({"url": FILTER, "valueString": " "})), "criteria.extension[0]", "valueString"),
            (subscription(_criteria=on({"url": FILTER, "valueInteger": 1})), "criteria.extension[0]", "valueString"),
            (subscription(extension=[FILTERED]), "Subscription.extension[0]", "at this place"),
            (subscription(extension=[heartbeat]), "Subscription.extension[0]", "at this place"),
            (subscription(channel=on(FILTERED)), "channel.extension[0]", "at this place"),
            (subscription(extension=[guide_2]), "Subscription.extension[0]", "not in this version"),
            (subscription(extension=[{"url": LATER + "filterBy"}]), "Subscription.extension[0]", "another FHIR"),
            (subscription(channel=on({"url": LATER + "maxCount"})), "channel.extension[0]", "another FHIR"),
            (subscription(modifierExtension=[OTHER]), "Subscription.modifierExtension", "not supported"),
            (subscription(channel={"modifierExtension": [OTHER]}), "channel.modifierExtension", "not supported"),
            (subscription(contact=[contact]), "contact[0].modifierExtension", "not supported"),
        ):
            found = refusals(one)
            self.assertEqual(len(found), 1, (one, found))
            self.assertIn(place, found[0])
            self.assertIn(rule, found[0])


class PayloadVersionTests(TestCase):
    def test_full_versions_are_those_of_the_parameter(self) -> None:
        guide = {"_payload": on({"url": CONTENT, "valueCode": "id-only"})}
        for version, expected in (
            ("4.0", Form.R4), ("4.0.1", Form.R4), ("4.3", Form.R4B), ("4.3.0", Form.R4B),
            ("5.0", None), ("4.3.1", None), ("4", None), ("4.1", None), ("3.0.2", None),
        ):  # fmt: skip
            for text in (
                f"application/fhir+json; fhirVersion={version}",
                f'application/fhir+json;fhirversion="{version}"',
            ):
                one = subscription(channel={**guide, "payload": text})
                self.assertEqual(form_of(one) if not refusals(one) else None, expected, text)
