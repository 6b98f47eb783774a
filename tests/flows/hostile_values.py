"""A table of hostile values, and every route of the service to send them to.

Routes are discovered: those of the FHIR server from its route table, those of the operator and observability APIs from
the OpenAPI documents that the service answers (tests hold both against the applications),
so a new route is covered when
it exists.  Each value stands where a client can put one: in the path, in every parameter, in a header, in the body.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from ipf.rest.operations.mapping_service import TYPES
from ipf.rest.router import ROUTES
from tests.flows.hostile import Sent

FHIR_JSON, FHIR_XML, JSON_PATCH = "application/fhir+json", "application/fhir+xml", "application/json-patch+json"
FML, ER7 = "text/fhir-mapping", "x-application/hl7-v2+er7"
MIB = 1024 * 1024

NUMBERS = ("1." + "3" * 20_000, "9" * 5_000, "1e400", "-1e400", "1e-99999", "1e999999999", "NaN", "-0", "Infinity")
"""As JSON has them, or nearly."""
IN_URLS = (
    "%00", "%ED%A0%80", "%FF", "%C0%80", "%0d%0a", "9" * 5_000, "1e400", "-1", "NaN", "1." + "3" * 20_000,
    "%28" * 10_000,
    "(%5BA-Za-z%5D%2B)%2B0", "a,b" * 5_000, "*", "'", "%25", "..%2f..%2f", "eq" * 5_000, "0001-01-01",
    "9999-12-31T24:00Z",
)  # fmt: skip
IN_HEADERS = (
    b"\xff\xed\xa0\x80",
    b"a" * 30_000,
    b"9" * 5_000,
    b"1e400",
    b"bytes=0-1,5-2,-1",
    b'W/"' + b"9" * 5_000 + b'"',
)
HEADERS = (
    "Accept", "Authorization", "Content-Encoding", "Content-Type", "Host", "If-Match", "If-Modified-Since",
    "If-None-Exist",
    "If-None-Match", "Origin", "Prefer", "Range", "X-Correlation-Id", "traceparent", "X-Security-Context",
)  # fmt: skip
_IN_TURN = 7  # values of each parameter: the next parameter gets the next ones
_TYPES_OF_OPERATIONS = {
    "$expand": "ValueSet", "$validate-code": "CodeSystem", "$lookup": "CodeSystem", "$translate": "ConceptMap",
    "$status": "Subscription", "$events": "Subscription", "$resend": "Subscription", "$dry-run": "Subscription",
    "$get-ws-binding-token": "Subscription", "$transform": "StructureMap",
}  # fmt: skip
_PARAMETERS = (
    "_count", "_sort", "_lastUpdated", "_since", "_cursor", "_elements", "_include", "_id", "identifier", "code", "url",
    "name", "value-quantity", "birthdate", "filter", "count", "offset", "system", "date", "days", "mode", "source",
    "_type",
)  # fmt: skip
_ARGUMENTS = (
    "url", "code", "system", "coding", "codeableConcept", "valueSet", "conceptMap", "resource", "profile", "mode",
    "filter",
    "count", "offset", "source-patient", "target-patient", "target-patient-identifier", "result-patient", "preview",
    "id",
    "status", "eventsSinceNumber", "content", "days", "examples", "operation", "_type", "_since", "map", "source",
    "reverse",
)  # fmt: skip
_MEMBERS = (
    "ids", "filter", "reason", "status", "source", "target", "answer", "target_system", "target_code", "dry_run",
    "limit",
    "per_second", "fingerprint", "policy", "state", "action", "candidate", "actor",
)  # fmt: skip


@dataclass(frozen=True)
class Route:
    """One route.  `query`: names of its parameters; `body`: type of resource in its body, `json` or none."""

    method: str
    path: str
    query: tuple[str, ...] = _PARAMETERS
    body: str = ""


@dataclass(frozen=True)
class Asked:
    """One request of the table, by name."""

    name: str
    method: str
    path: str
    body: bytes = b""
    content_type: str = FHIR_JSON
    headers: tuple[tuple[str, bytes], ...] = field(default=())

    def sent(self) -> Sent:
        """As bytes."""
        lines = [f"{self.method} {self.path} HTTP/1.1".encode()]
        named = {name.lower() for name, _ in self.headers}
        if "host" not in named:
            lines.append(b"Host: localhost")
        if self.body and "content-type" not in named:
            lines.append(b"Content-Type: " + self.content_type.encode())
        lines += [name.encode() + b": " + value for name, value in self.headers]
        lines.append(b"Content-Length: %d" % len(self.body))
        return Sent(b"\r\n".join(lines) + b"\r\n\r\n" + self.body, self.method == "HEAD")


def fhir_routes() -> Iterator[Route]:
    """Every route of the FHIR server."""
    for shape, methods in ROUTES.items():
        operation = next((part for part in shape.split("/") if part.startswith("$")), "")
        kind = _TYPES_OF_OPERATIONS.get(operation, "Patient")
        path = shape.replace("[type]", kind, 1).replace("[type]", "Observation").replace("[id]", "kept")
        for method in methods:
            sent = "Parameters" if operation or method == "PATCH" else kind if "[type]" in shape else "Bundle"
            body = sent if method in ("POST", "PUT", "PATCH") else ""
            yield Route(method, f"/fhir/{path.replace('[vid]', '1')}", body=body)


def mapping_routes() -> Iterator[Route]:
    """Every route of the mapping service."""
    for kind in TYPES:
        for method, path in (("GET", ""), ("POST", ""), ("GET", "/kept"), ("PUT", "/kept"), ("DELETE", "/kept")):
            body = kind if method in ("POST", "PUT") else ""
            yield Route(method, f"/mapping/fhir/{kind}{path}", ("url", "name", "_id", "_count", "_offset"), body)
    for path in ("$transform", "kept/$transform"):
        yield Route("POST", f"/mapping/fhir/StructureMap/{path}", ("source", "trace"), "Parameters")


def described_routes(document: dict[str, Any]) -> Iterator[Route]:
    """Every route of an OpenAPI document."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            named = tuple(one["name"] for one in operation.get("parameters", ()) if one.get("in") == "query")
            has_body = method in ("post", "put", "patch", "delete")
            yield Route(
                method.upper(), path.replace("{", "1{").partition("{")[0] + _after(path), named, "json" * has_body
            )


def other_routes() -> Iterator[Route]:
    """Routes without a document."""
    for path in ("/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness", "/actuator/prometheus"):
        yield Route("GET", path, ("x",))
    yield Route("GET", "/websocket", ("x",))
    yield Route("GET", "/", ("x",))


def _after(path: str) -> str:
    return path.partition("}")[2]


def requests(route: Route) -> Iterator[Asked]:
    """The table for one route: each value in its path, some in each parameter and header, taken in turns."""
    where, sent = f"{route.method} {route.path}", b"{}" if route.body else b""
    for number, value in enumerate(IN_URLS):
        yield Asked(f"{where} path {number}", route.method, f"{route.path.rpartition('/')[0]}/{value}", sent)
    if route.path.endswith("/reload"):  # reads nothing of the request, and works for seconds
        return
    turns = cycle(enumerate(IN_URLS))
    for name in route.query:
        for number, value in islice(turns, _IN_TURN):
            yield Asked(f"{where} {name} {number}", route.method, f"{route.path}?{name}={value}", sent)
    body = _resource(route.body, "{}") if route.body else b""
    for name, header in zip(HEADERS, cycle(IN_HEADERS[len(where) % 5 :]), strict=False):
        yield Asked(f"{where} {name}", route.method, route.path, body, headers=((name, header),))
    if route.body:
        yield from _bodies(route, where)


def _bodies(route: Route, where: str) -> Iterator[Asked]:
    kind = "application/json" if route.body == "json" else FHIR_JSON
    for name, body in {**RAW, **_typed(route.body)}.items():
        yield Asked(f"{where} body {name}", route.method, route.path, body, kind)
    yield Asked(f"{where} gzip", route.method, route.path, BOMB, kind, (("Content-Encoding", b"gzip"),))
    yield Asked(f"{where} no gzip", route.method, route.path, BOMB[:50], kind, (("Content-Encoding", b"gzip"),))
    if route.body != "json":
        for name, body in XML.items():
            yield Asked(f"{where} XML {name}", route.method, route.path, body, FHIR_XML)
    if route.method == "PATCH":
        for name, body in PATCHES.items():
            yield Asked(f"{where} patch {name}", route.method, route.path, body, JSON_PATCH)


def _typed(kind: str) -> dict[str, bytes]:
    """Bodies that begin as the route expects."""
    values = [
        *NUMBERS,
        '"\\u0000"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\xff"',
        "[]",
        "{}",
        "null",
        '{"a":[{}]}',
        "[" * 10_000,
    ]
    found = {}
    for number, value in enumerate(values):
        if kind == "json":
            found[f"{number}"] = ("{" + ",".join(f'"{name}":{value}' for name in _MEMBERS) + "}").encode("latin-1")
            continue
        found[f"{number}"] = _resource(kind, f'{{"extension":[{{"url":"u","valueDecimal":{value}}}],"id":{value}}}')
        if kind == "Parameters":
            for word in ("valueString", "valueCoding", "resource", "valueInteger"):
                named = ",".join(f'{{"name":"{name}","{word}":{value}}}' for name in _ARGUMENTS[number % 5 :: 5])
                found[f"{number} {word}"] = f'{{"resourceType":"Parameters","parameter":[{named}]}}'.encode("latin-1")
    return found


def _resource(kind: str, members: str) -> bytes:
    return (f'{{"resourceType":"{kind}",' + members[1:]).replace(",}", "}").encode("latin-1")


RAW = {
    "nested lists": b"[" * 10_000, "nested and closed": b"[" * 10_000 + b"]" * 10_000,
    "nested objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "100,000 members": b"{" + b",".join(b'"k%d":1' % number for number in range(100_000)) + b"}",
    "a member twice": b'{"resourceType":"Patient","resourceType":"Group"}', "no UTF-8": b'{"a":"\xff\xfe"}',
    "NUL": b"\0" * 1000, "nothing": b"", "a list": b"[1]", "null": b"null", "a text": b'"x"', "white space": b" " * MIB,
    "2,000,000 lists": b'{"x":[' + b"[]," * 2_000_000 + b"1]}",
    "60,000 objects": b'{"x":[' + b'{"a":{}},' * 60_000 + b"1]}",
    "120,000 decimals": b'{"x":[' + b"1.5," * 120_000 + b"1]}",
    "a text of 8 MiB": b'{"x":"' + b"x" * 8 * MIB + b'"}',
    "quotes": b'{"x":"' + b'\\"' * MIB, "open comments": b"/* " * 100_000,
}  # fmt: skip
BOMB = gzip.compress(b" " * 30 * MIB)
_XML = b'<Patient xmlns="http://hl7.org/fhir">'
XML = {
    "entities": b'<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;&a;">]><Patient xmlns="http://hl7.org/fhir">&b;</Patient>',
    "external": b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><Patient xmlns="http://hl7.org/fhir"/>',
    "nested": _XML + b"<extension url='u'>" * 10_000,
    "attributes": _XML[:-1] + b"".join(b' a%d=""' % n for n in range(100_000)) + b"/>",
    "one attribute": _XML[:-1] + b' id="' + b"x" * MIB + b'"/>', "not closed": _XML + b"<name>" * 100,
    "decimal": _XML.replace(b"Patient", b"Observation") + b'<valueQuantity><value value="1.' + b"3" * 20_000
    + b'"/></valueQuantity></Observation>',
    "names": _XML + b'<name><family value="x"/></name>' * 20_000 + b"</Patient>",
    "narrative": _XML + b'<text><div xmlns="http://www.w3.org/1999/xhtml">' + b"<p>" * 10_000,
    "no UTF-8": _XML + b"\xff\xfe", "NUL": _XML + b"\0&#0;&#xD800;</Patient>", "UTF-16": b"\xff\xfe<\0",
}  # fmt: skip
PATCHES = {
    "copies": json.dumps([{"op": "copy", "from": "", "path": "/extension"}] * 1000).encode(),
    "deep": json.dumps([{"op": "add", "path": "/a" * 20_000, "value": 1}]).encode(),
    "indices": json.dumps([{"op": "add", "path": "/name/" + "9" * 5000, "value": 1}] * 500).encode(),
    "not text": b'[{"op":1,"path":[],"value":1e400}]', "tilde": b'[{"op":"test","path":"/~2","value":"\\ud800"}]',
}  # fmt: skip


def special() -> Iterator[Asked]:
    """Requests that are valid but for what they ask for."""
    for name, include in _INCLUDES.items():
        value_set = {
            "resourceType": "ValueSet",
            "status": "active",
            "url": "http://x/vs",
            "compose": {"include": include},
        }
        own = {"name": "valueSet", "resource": value_set}
        more = [{"name": "code", "valueCode": "x"}, {"name": "system", "valueUri": "http://x/cs"}]
        yield _operation(f"expand {name}", "/fhir/ValueSet/$expand", own)
        yield _operation(f"validate-code {name}", "/fhir/ValueSet/$validate-code", own, *more)
    for number, expression in enumerate(EXPRESSIONS):
        operation = [
            {"name": "type", "valueCode": "delete"},
            {"name": "path", "valueString": f"Patient.name.where({expression})"},
        ]
        patch = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": operation}] * 20}
        yield Asked(f"patch path {number}", "PATCH", "/fhir/Patient/kept", json.dumps(patch).encode())
        custom = {
            "resourceType": "SearchParameter", "id": "h", "url": "http://x/sp", "name": "h", "code": "h",
            "status": "draft",
            "base": ["Patient"], "type": "string", "description": "h", "expression": f"Patient.{expression}",
        }  # fmt: skip
        yield Asked(f"search parameter {number}", "PUT", "/fhir/SearchParameter/h", json.dumps(custom).encode())
        channel = {"type": "rest-hook", "endpoint": "http://127.0.0.1:9/"}
        criteria = {"resourceType": "Subscription", "status": "off", "reason": "x", "criteria": f"Patient?{expression}"}
        yield Asked(
            f"criteria {number}", "POST", "/fhir/Subscription", json.dumps({**criteria, "channel": channel}).encode()
        )
        constraint = {"key": "h-1", "severity": "error", "human": "h", "expression": expression}
        elements = [{"id": "Patient", "path": "Patient", "constraint": [constraint]}]
        profile = {
            "resourceType": "StructureDefinition", "id": f"h{number}", "url": f"http://x/sd{number}", "name": "h",
            "status": "active", "kind": "resource", "abstract": False, "type": "Patient", "derivation": "constraint",
            "baseDefinition": "http://hl7.org/fhir/StructureDefinition/Patient", "differential": {"element": elements},
        }  # fmt: skip
        yield Asked(f"profile {number}", "PUT", f"/fhir/StructureDefinition/h{number}", json.dumps(profile).encode())
        yield Asked(f"validate {number}", "POST", f"/fhir/Patient/$validate?profile=http://x/sd{number}", NAMES)
    for name, text in MAPS.items():
        yield Asked(f"map {name}", "POST", "/mapping/fhir/StructureMap", text.encode(), FML)
        maps = {
            "resourceType": "Parameters",
            "parameter": [
                {"name": "map", "valueString": text},
                {"name": "content", "resource": {"resourceType": "Patient"}},
            ],
        }
        yield Asked(
            f"transform with {name}", "POST", "/mapping/fhir/StructureMap/$transform", json.dumps(maps).encode()
        )
    for name, message in MESSAGES.items():
        yield Asked(f"transform {name}", "POST", "/mapping/fhir/StructureMap/$transform", message, ER7)
    for name, body in BUNDLES.items():
        yield Asked(f"bundle {name}", "POST", "/fhir", body)
    yield Asked("form", "POST", "/fhir/Patient/_search", b"name=x&" * 300_000, "application/x-www-form-urlencoded")
    yield Asked(
        "values", "POST", "/fhir/Patient/_search", b"name=" + b"x," * 2_000_000, "application/x-www-form-urlencoded"
    )
    yield Asked("multipart", "POST", "/fhir/Patient", b"--x\r\n" * 100_000, "multipart/form-data; boundary=x")
    yield Asked("NDJSON", "POST", "/fhir/Patient", b"{}\n" * 100_000, "application/fhir+ndjson")


def _operation(name: str, path: str, *parameters: dict[str, Any]) -> Asked:
    return Asked(name, "POST", path, json.dumps({"resourceType": "Parameters", "parameter": parameters}).encode())


def _filters(*filters: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"system": "http://x/cs", "filter": list(filters)}]


_REGEX = {"property": "code", "op": "regex", "value": "([A-Za-z]+)+0"}
_INCLUDES: dict[str, Any] = {
    "regex": _filters(_REGEX), "500 of them": _filters(_REGEX) * 500, "300 filters": _filters(*[_REGEX] * 300),
    "no value": _filters({"property": "code", "op": "regex"}), "no op": _filters({"property": "code", "value": "x"}),
    "unknown op": _filters({"property": "code", "op": "x", "value": "x"}), "itself": [{"valueSet": ["http://x/vs"]}],
    "loop": [{"valueSet": ["http://x/loop-a"]}], "cycle": _filters({"property": "concept", "op": "is-a",
    "value": "c1"}),
    "number": [{"system": 3}], "no code": [{"system": "http://x/cs", "concept": [{}]}], "text": ["x"],
    "large": _filters(),
}  # fmt: skip
EXPRESSIONS = (
    "name.family.matches('([A-Za-z]+)+0')", "(" * 10_000, "1" + "+1" * 10_000, "repeat(name | $this).count() > 0",
    "name.combine(name)" + ".combine($this.name)" * 300, "descendants().descendants().descendants().count() = 0",
    "1e400 = 1",
    "9" * 5_000, "'" + "x" * 100_000, "/* " * 10_000, "1." + "3" * 20_000 + " > 0",
    "name.select(%resource.name.select(%resource.name))",
    "'a'.replaceMatches('(a*)*b', '" + "$1" * 1000 + "')", "name" + ".where(true)" * 5_000, "not" * 10_000, "\x00",
    "\ud800",
)  # fmt: skip
NAMES = json.dumps({"resourceType": "Patient", "name": [{"family": "A" * 40, "given": ["b"] * 5}] * 200}).encode()
_HEAD = "/// url = 'http://x/map'\n/// name = 'map'\n"
_GROUP = "group main(source src, target tgt) {"
MAPS = {
    "open comments": "/* " * 100_000, "notes": f"{_HEAD}// decided {'A' * 5_000}!\n{_GROUP} }}",
    "10,000 rules": f"{_HEAD}{_GROUP}{'src.a -> tgt.b;' * 10_000}}}",
    "nested": f"{_HEAD}{_GROUP}{'src -> tgt then {' * 5_000}",
    "brackets": f"{_HEAD}{_GROUP} src where {'(' * 10_000}",
    "numbers": f"{_HEAD}{_GROUP} src -> tgt.a = {'9' * 5_000}; }}",
    "decimal": f"{_HEAD}{_GROUP} src -> tgt.a = 1.{'3' * 20_000}; }}", "quotes": f"{_HEAD}'{'x' * 100_000}",
    "pattern": f"{_HEAD}{_GROUP} src where ('{'a' * 30}'.matches('(a+)+b')) -> tgt.a = 'x'; }}",
    "text": f"{_HEAD}{_GROUP} src -> tgt.a = '\x00\\ud800'; }}",
    "itself": f"{_HEAD}{_GROUP} src -> tgt then main(src, tgt); }}",
    "imports": _HEAD + 'imports "*a*a*a*a*a*a*a*a*b"\n' * 200 + _GROUP + " }",
}  # fmt: skip
_MSH = b"MSH|^~\\&|A|B|C|D|20240101120000||%b|1|P|2.5.1\r"
MESSAGES = {
    "repetitions": _MSH % b"ADT^A01" + b"PID|||" + b"1^^^A^MR~" * 10_000,
    "components": _MSH % b"ADT^A01" + b"PID|||" + b"^&" * 500_000,
    "segments": _MSH % b"ADT^A01" + b"PID|||1\r" * 3_000,
    "escapes": _MSH % b"ADT^A01" + b"PID|||1||" + b"\\X41\\" * 100_000,
    "number": _MSH % b"ORU^R01" + b"PID|||1\rOBR|1\rOBX|1|NM|1^a^LN||1." + b"3" * 20_000 + b"\r", "NUL": b"\0" * 10_000,
    "exponent": _MSH % b"ORU^R01" + b"PID|||1\rOBR|1\rOBX|1|NM|1^a^LN||1e400\r",
    "bytes": _MSH % b"ADT^A01" + b"PID|||\xff\xfe\xed\xa0\x80\0",
    "digits": _MSH % b"ORU^R01" + b"PID|||1\rOBR|1\rOBX|1|NM|1^a^LN||" + b"9" * 5_000 + b"\r",
    "separators": b"MSH||||||||" * 10_000,
    "date": _MSH % b"ADT^A01" + b"PID|||1||||" + b"9" * 5_000 + b"\r",
}  # fmt: skip


def _entry(full_url: str, reference: str, url: str = "Observation") -> dict[str, Any]:
    resource = {
        "resourceType": "Observation",
        "status": "final",
        "code": {"text": "x"},
        "subject": {"reference": reference},
    }
    return {"fullUrl": full_url, "resource": resource, "request": {"method": "POST", "url": url}}


def _bundle(*entries: Any, kind: str = "transaction") -> bytes:
    return json.dumps({"resourceType": "Bundle", "type": kind, "entry": entries}).encode()


BUNDLES = {
    "full URLs": _bundle(*(_entry("urn:uuid:" + "x" * 200, f"urn:uuid:{n}") for n in range(9_000))),
    "cycle": _bundle(*(_entry(f"urn:uuid:{n}", f"urn:uuid:{(n + 1) % 2_000}") for n in range(2_000)), kind="batch"),
    "conditions": _bundle(*(_entry(f"urn:uuid:{n}", f"Patient?identifier={n}") for n in range(2_000))),
    "too many": _bundle(*({} for _ in range(20_000))), "numbers": _bundle(*([1e300] * 1_000)),
    "urls": _bundle(*(_entry("x", "x", "Patient?" + "x=1&" * 500) for _ in range(200)), kind="batch"),
    "not read": b'{"resourceType":"Bundle","type":"batch","x":[' + b"[]," * 400_000 + b'1],"entry":[{}]}',
    "one entry": b'{"resourceType":"Bundle","type":"batch","entry":[[' + b"[]," * 400_000 + b"1]]}",
    "open text": b'{"resourceType":"Bundle","type":"batch","entry":["' + b"{[" * 900_000,
}  # fmt: skip


def stored() -> Iterator[Asked]:
    """What is stored before: a Patient, a circle of 20,000 codes, value sets that include each other."""
    yield Asked("Patient", "PUT", "/fhir/Patient/kept", NAMES.replace(b'"Patient",', b'"Patient", "id": "kept",', 1))
    concepts = [
        {"code": f"c{n}", "display": "A" * 40, "property": [{"code": "parent", "valueCode": f"c{(n + 1) % 20_000}"}]}
        for n in range(20_000)
    ]
    system = {"resourceType": "CodeSystem", "id": "cs", "url": "http://x/cs", "status": "active", "content": "complete"}
    yield Asked("CodeSystem", "PUT", "/fhir/CodeSystem/cs", json.dumps({**system, "concept": concepts}).encode())
    for one, other in (("a", "b"), ("b", "a")):
        value_set = {"resourceType": "ValueSet", "id": f"loop-{one}", "url": f"http://x/loop-{one}", "status": "active"}
        body = {**value_set, "compose": {"include": [{"valueSet": [f"http://x/loop-{other}"]}]}}
        yield Asked(f"ValueSet {one}", "PUT", f"/fhir/ValueSet/loop-{one}", json.dumps(body).encode())
