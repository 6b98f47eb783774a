"""Fuzzed requests: every response is a FHIR response, and none is a server error.

Two generators: requests put together from parts that are valid, nearly valid and hostile (Hypothesis shrinks what
fails), and resources of the specification with one thing broken.  Both run on the store in memory; hostile searches run
on PostgreSQL as well, where they would become SQL.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml, to_xml
from ipf.ports import Answer, Request
from ipf.rest.router import ROUTES, handler
from tests.fhir.examples import examples
from tests.reference import needs_reference
from tests.rest.world import BASE, CORRELATION_ID, OnMemory, OnSharedPostgres, Suite, World, patient

HOSTILE = (
    "", " ", "'", "''", '"', "\\", "';DROP TABLE resources;--", "1 OR 1=1", "$1", "%", "%s", "%00", "\x00", "\x1e",
    "\x1f", "\n", "\N{REPLACEMENT CHARACTER}", "é" * 300, "x" * 5000, "|", "||", "a|b|c", ",", "\\,", "$", "..",
    "../..", "/", "?", "#", "&", "=", "null", "NaN", "-1", "0", "1e999", "9" * 40, "2024-13-45", "ge", "eq2024", "lt",
    "urn:uuid:", "Patient/", "Patient/1/_history/2", "http://", "{", "[", "<", "]]>", "${jndi:ldap://x}", "true", "*",
)  # fmt: skip
KINDS = ("Patient", "Observation", "Bundle", "Questionnaire")
NAMES = (
    "_id", "_lastUpdated", "_tag", "_profile", "_count", "_sort", "_total", "_summary", "_elements", "_format",
    "_pretty", "_include", "_revinclude", "_has", "_has:Observation:patient:code", "_filter", "_text", "_content",
    "_list", "_query", "_cursor", "_since", "_at", "_type", "_before", "mode", "identifier", "name", "name:exact",
    "name:contains", "birthdate", "general-practitioner", "general-practitioner.name", "organization:missing",
    "code:in", "code:text", "value-quantity", "component-code-value-quantity", "gender:not", "near", "nonsense",
    "name:nonsense", "", ":", ".",
)  # fmt: skip
SEGMENTS = (
    "Patient", "Observation", "Bundle", "Binary", "Subscription", "Group", "Resource", "a", "b", "1", "_history",
    "_search", "metadata", "$export", "$validate", "$everything", "$export-status", "$export-file", ".well-known",
    "$transform", "StructureMap", "*",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "")
HEADERS = {
    "accept": ("application/fhir+json", "application/fhir+xml", "*/*", "text/html", "x", "a/b;q=x", ",,;;="),
    "content-type": ("application/fhir+json", "application/fhir+xml", "application/json-patch+json", "text/plain", "",
                     "application/x-www-form-urlencoded", "application/fhir+json; charset=nonsense"),
    "prefer": ("return=minimal", "return=OperationOutcome", "handling=lenient", "respond-async", "x", "=", ";,"),
    "if-match": ('W/"1"', "1", "*", "x", 'W/"99999999999"', ""),
    "if-none-match": ('W/"1"', "*", "x", ""),
    "if-none-exist": ("identifier=a", "", "?", "identifier=%FF", "_id=a&_id=b", "Patient?name=x"),
    "if-modified-since": ("Sat, 31 Jan 2026 08:05:09 GMT", "x", "0", "Sat, 99 Jan 2026 08:05:09 GMT"),
}  # fmt: skip

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(HOSTILE),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ("resourceType", "id", "meta", "name", "given", "extension", "url", "contained", "type", "entry", "request",
         "method", "resource", "parameter", "part", "reference", "_given", "criteria", "channel", "op", "path"),
    ) | st.text(max_size=5), inner, max_size=6),
    max_leaves=20,
)  # fmt: skip
bodies = st.one_of(
    st.binary(max_size=60),
    json_values,
    json_values.map(lambda value: {"resourceType": "Patient", "id": "a", "name": value}),
    json_values.map(lambda value: {"resourceType": "Bundle", "type": "transaction", "entry": value}),
    json_values.map(lambda value: {"resourceType": "Bundle", "type": "batch", "entry": [value]}),
    st.tuples(st.sampled_from(METHODS[:-2]), st.sampled_from(HOSTILE + SEGMENTS), json_values).map(
        lambda made: {"resourceType": "Bundle", "type": "batch", "entry": [
            {"request": {"method": made[0], "url": made[1]}, "resource": made[2]}]}),
    json_values.map(lambda value: {"resourceType": "Parameters", "parameter": value}),
    json_values.map(lambda value: {"resourceType": "Subscription", "criteria": value, "channel": value}),
    json_values.map(lambda value: [{"op": "add", "path": "/name", "value": value}]),
    st.just(b'{"resourceType":"Patient","multipleBirthInteger":1e999999999}'),
    st.just(b'{"resourceType":"Patient","id":"a","id":"b"}'),
    st.just(b"[" * 100_000),
    st.just(b'{"a":' * 5_000 + b"1" + b"}" * 5_000),
    st.just(b'<Patient xmlns="http://hl7.org/fhir">' + b"<extension url='u'>" * 5_000),
)  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text(max_size=8)
requests = st.builds(
    lambda method, path, query, headers, body: Request(
        method,
        tuple(path),
        tuple(query),
        headers,
        body if isinstance(body, bytes) else _written(body),
        BASE,
        CORRELATION_ID,
    ),
    st.sampled_from(METHODS),
    st.lists(st.sampled_from(SEGMENTS) | texts, max_size=4),
    st.lists(st.tuples(st.sampled_from(NAMES) | texts, texts), max_size=4),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in HEADERS.items()}),
    bodies,
)


def _written(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return dumps(value)
    except TypeError:
        return b"\xff"


class FuzzSuite(Suite):
    world: World

    async def answer(self, request: Request) -> Answer:
        """The response, which must be a FHIR response."""
        answer = await handler(self.world.repository)(request)
        self.assertLess(answer.status, 500, (request, answer.body[:500]))
        if answer.status >= 400:
            read = from_xml if "xml" in answer.content_type else loads
            self.assertEqual(read(answer.body)["resourceType"], "OperationOutcome", request)
        return answer


class FuzzTests(FuzzSuite, OnMemory):
    examples = 150

    def run_now(self, request: Request) -> Answer:
        """The answer of a store that never waits."""
        answer: Answer = self.successResultOf(Deferred.fromCoroutine(self.answer(request)))
        return answer

    def test_requests(self) -> None:
        """Anything at any address."""

        @settings(max_examples=self.examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(requests)
        def try_one(request: Request) -> None:
            self.run_now(request)

        try_one()

    def test_searches(self) -> None:
        """Any parameter with any value, by GET."""

        @settings(max_examples=self.examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
        @given(st.sampled_from(("Patient", "Observation", "Encounter")), st.sampled_from(NAMES), texts)
        def try_one(kind: str, name: str, value: str) -> None:
            self.run_now(Request("GET", (kind,), ((name, value),), {}, b"", BASE, CORRELATION_ID))

        try_one()

    @needs_reference
    def test_broken_examples(self) -> None:
        """One value of a valid resource replaced: stored and served as XML too, or refused with its location."""
        chance = random.Random(7)
        found = [loads(text) for name, text in sorted(examples().items()) if len(text) < 20_000]
        found = [
            one for one in found if one.get("resourceType") in ("Patient", "Observation", "Bundle", "Questionnaire")
        ]
        for number in range(400):
            resource = loads(dumps(chance.choice(found)))
            _break(resource, chance)
            resource["id"] = f"x{number}"
            kind = resource["resourceType"]
            path = (kind, resource["id"]) if isinstance(kind, str) else ("Patient", resource["id"])
            put = Request("PUT", path, (), {}, _written(resource), BASE, CORRELATION_ID)
            if self.run_now(put).status == 201:
                answer = self.run_now(
                    Request("GET", path, (), {"accept": "application/fhir+xml"}, b"", BASE, CORRELATION_ID)
                )
                self.assertEqual(answer.status, 200, (resource, answer.body))
                self.assertEqual(to_xml(from_xml(answer.body)), answer.body)


def _break(resource: Any, chance: random.Random) -> None:
    """Replace, remove or add one value somewhere."""
    value = resource
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(value[key], (dict, list)) and value[key] and chance.random() < 0.8:
            value = value[key]
            continue
        break
    if key != "resourceType":
        value[key] = chance.choice((None, True, 1, "x", [], {}, [None], [[]], {"x": 1}, "", 1.5, *HOSTILE))


class HostileSearchTests(FuzzSuite, OnSharedPostgres):
    every = 12

    async def test_every_value_in_every_parameter(self) -> None:
        """Searches on PostgreSQL; no stored resource is lost.  `every`: each parameter has every so many-th value, each
        value every so many-th parameter; the campaign has all of them.
        """
        await self.world.send("PUT", "Patient/a", patient("1", id="a"))
        for number, name in enumerate(NAMES):
            for value in HOSTILE[number % self.every :: self.every]:
                for kind in ("Patient", "Observation"):
                    await self.answer(Request("GET", (kind,), ((name, value),), {}, b"", BASE, CORRELATION_ID))
        headers, methods = {"content-type": "application/json-patch+json"}, ("GET", "DELETE", "PATCH")
        for number, value in enumerate(HOSTILE):
            for path in ((value,), ("Patient", value), ("Patient", "a", "_history", value), ("$export-status", value)):
                for method in methods[number % min(self.every, 3) :: self.every]:
                    await self.answer(Request(method, path, (), headers, b"[]", BASE, CORRELATION_ID))
        self.assertEqual((await self.world.send("GET", "Patient/a")).status, 200)

    async def test_conditional_writes(self) -> None:
        """Unsupported conditions of writes are refused before the store is called."""
        for condition in ("code:in=x", "_tag:not-in=5e", "_list=1", "patient.name=x", "code:text=x", "code:below=x|y"):
            name, _, value = condition.partition("=")
            for method, body in (("DELETE", b""), ("PUT", b'{"resourceType":"Observation","status":"final"}')):
                asked = Request(method, ("Observation",), ((name, value),), {}, body, BASE, CORRELATION_ID)
                self.assertNotEqual((await self.answer(asked)).status, 200, asked)
        answer = await self.answer(
            Request("GET", ("ValueSet",), (("identifier:text", "x"),), {}, b"", BASE, CORRELATION_ID)
        )
        self.assertEqual(answer.status, 200, answer.body)

    async def test_odd_parameters(self) -> None:
        """Parameters of operations that are none."""
        for name in ("$validate", "$expand", "$lookup", "$translate", "$validate-code"):
            kind = {"$lookup": "CodeSystem", "$translate": "ConceptMap"}.get(name, "ValueSet")
            for sent in (1, True, "x", {}, [1], [None], [[]], [{"name": {}}], [{"name": [[]], "valueUri": "x"}]):
                body = dumps({"resourceType": "Parameters", "parameter": sent})
                asked = Request("POST", (kind, name), (), {}, body, BASE, CORRELATION_ID)
                self.assertNotEqual((await self.answer(asked)).status, 200, (name, sent))

    async def test_every_route_is_fuzzed(self) -> None:
        """Every route is covered by this file."""
        words = {part for shape in ROUTES for part in shape.split("/") if part and not part.startswith("[")}
        known = {*SEGMENTS, "smart-configuration"}
        self.assertLessEqual({word for word in words if not word.startswith("$")}, known)
