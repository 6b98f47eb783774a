"""Malformed and hostile HTTP requests, generated from a seed so that each can be repeated.

`python -m tests.flows.hostile PORT SEED COUNT` sends them to a service that runs; the test sends a few.  What every
answer must be: never a 5xx, and from 400 on an OperationOutcome (but for requests that are no HTTP, which Twisted
answers by itself with 400 and an empty body).
"""

from __future__ import annotations

import gzip
import json
import random
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ipf.fhir.model.definitions import definitions
from ipf.fhir.xml.writer import from_xml
from ipf.rest.router import ROUTES
from tests.rest.test_fuzz import HEADERS, HOSTILE, NAMES, SEGMENTS
from tests.waiting import PATIENCE

INJECTED = (
    "'; DROP TABLE resources; --", "' OR '1'='1", "1; SELECT pg_sleep(9)", "\\'; --", "$$;--", "E'\\x1f'", "{1,2}",
    "') UNION SELECT body FROM resource_versions --", "%27%20OR%201=1", "x'||(SELECT version())||'", "\x1f\x1e",
    "NULL", "ARRAY[1]", "1::int", "\u0000", "\ud800", "\ufdd0", "a\u202eb", "1e400", "-0", "+5", "0x10", "1_000",
    "2024-02-30", "9999-12-31T23:59:60Z", "0000", "ge0001", "lt99999", "9" * 400, "0." + "9" * 400, "1|2|3|4", "||||",
    "5.4|http://unitsofmeasure.org|mg/[", "1|http://unitsofmeasure.org|" + "m" * 300, "Patient/" + "1" * 100, "#a",
    "http://x/fhir/Patient/1|2", "urn:oid:1.2", "*" * 50, "a,b" * 500, "\\,\\|\\$\\\\", "$" * 9, "..%2f..%2fetc",
)  # fmt: skip
MODIFIERS = (
    "missing", "exact", "contains", "text", "not", "in", "not-in", "above", "below", "of-type", "identifier", "Patient",
    "iterate", "nonsense", "", ":", "code", "missing:exact",
)  # fmt: skip
PREFIXES = ("", "eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap", "xx")
VALUES = (*HOSTILE, *INJECTED, "1", "2024-01-01", "true", "x", "http://loinc.org|1-1", "Patient/p1", "p1", "5", "a")
METHODS = ("GET",) * 12 + ("POST",) * 5 + ("PUT", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "FOO", "get")
TYPES = ("Patient", "Observation", "Encounter", "ValueSet", "Subscription", "SearchParameter", "Group", "List", "Basic")
ODD_HEADERS = (
    ("Content-Encoding", "gzip"), ("Content-Encoding", "br"), ("Content-Encoding", "gzip, gzip"), ("Host", ""),
    ("Host", "a b"), ("Accept", "\xff\xfe"), ("Accept", "application/fhir+json;" * 300), ("X-Correlation-Id", "\x80"),
    ("X-Correlation-Id", "x" * 3000), ("Authorization", "Bearer \xff"), ("Authorization", "Basic !!"),
    ("Range", "bytes=0-1,5-2"), ("Expect", "nonsense"), ("Origin", "null"), ("Cookie", "a" * 4000), ("Prefer", "\x01"),
    ("Content-Type", "application/fhir+json; fhirVersion=9"), ("Content-Type", "multipart/form-data"),
    ("Accept-Encoding", "gzip;q=x"), ("Traceparent", "00-zz"), ("If-Modified-Since", "Sat, 01 Jan 0000 00:00:00 GMT"),
    ("X-Security-Context", "'"), ("Content-Language", "\u00e9"), ("Transfer-Encoding", "identity"),
)  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """One request; `is_head`: its answer has no body."""

    data: bytes
    is_head: bool


class Generator:
    """Requests in an endless row; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._types = sorted(definitions().resource_types)
        self._kind = ""
        self._operations = sorted({part for shape in ROUTES for part in shape.split("/") if part.startswith("$")})

    def one(self) -> Sent:
        """The next."""
        pick = self._chance.choice
        self._kind = pick(TYPES)
        method, path, query = pick(METHODS), self._path(), self._query()
        headers = [("Prefer", "handling=lenient")] if self._chance.random() < 0.4 else []
        headers += [(name, pick(values)) for name, values in HEADERS.items() if self._chance.random() < 0.04]
        headers += [pick(ODD_HEADERS)] if self._chance.random() < 0.1 else []
        body = b"" if method in ("GET", "HEAD", "OPTIONS") and self._chance.random() < 0.9 else self._body(headers)
        lines = [f"{method} /fhir{path}{query} HTTP/1.1".encode()]
        if not any(name == "Host" for name, _ in headers):
            lines.append(b"Host: localhost")
        written = [f"{name}: {value}".encode(errors="surrogatepass") for name, value in headers]
        lines += [line.replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"") for line in written]
        if body and not any(name.lower() == "content-type" for name, _ in headers):
            lines.append(b"Content-Type: application/fhir+json")
        lines.append(b"Content-Length: %d" % len(body))
        return Sent(b"\r\n".join(lines) + b"\r\n\r\n" + body, method == "HEAD")

    def _path(self) -> str:
        pick, chance, kind = self._chance.choice, self._chance.random(), self._kind
        if chance < 0.45:
            return f"/{kind}"
        if chance < 0.55:
            return f"/{kind}/{pick(('p1', 'o1', 's1', 'nobody', _quoted(pick(VALUES)))) or 'x'}"
        if chance < 0.7:
            kind = pick((*TYPES, "CodeSystem", "ConceptMap", "StructureDefinition"))
            return pick(("", f"/{kind}", f"/{kind}/p1")) + f"/{pick(self._operations)}"
        if chance < 0.75:
            return pick(("", "/", "//", "/_history", "/_search", "/metadata", "/Patient/_history", "/%ff", "/%2e%2e/a"))
        return "".join(f"/{_quoted(pick((*SEGMENTS, *VALUES)), pick(('', '/:$')))}"
                       for _ in range(self._chance.randrange(1, 6)))  # fmt: skip

    def _query(self) -> str:
        count = self._chance.choice((0, 0, 1, 1, 1, 2, 3, 8))
        pairs = [f"{self._name()}={self._value()}" for _ in range(count)]
        return f"?{'&'.join(pairs)}" if pairs or self._chance.random() < 0.05 else ""

    def _name(self) -> str:
        pick, chance = self._chance.choice, self._chance.random()
        if chance < 0.25:
            return _quoted(pick(NAMES))
        kind = self._kind if self._chance.random() < 0.9 else pick(self._types)
        code = pick(sorted(definitions().search_parameters(kind)) or ["_id"])
        if chance < 0.55:
            return code
        if chance < 0.8:
            return f"{code}:{pick(MODIFIERS)}"
        if chance < 0.9:
            return f"{code}{pick(('', ':Patient', ':' + kind))}.{pick(('name', 'identifier:not', 'organization.name'))}"
        return f"_has:{kind}:{code}:{pick(('_id', 'code', 'name:exact', '_has:Observation:patient:code'))}"

    def _value(self) -> str:
        text = self._chance.choice(PREFIXES) + self._chance.choice(VALUES)
        if self._chance.random() < 0.05:
            return self._chance.choice(("%FF%FE", "%ZZ", "%", "%C0%AF", "%ED%A0%80", "+", "a%00b"))
        return _quoted(text, self._chance.choice(("", ",|$:/")))

    def _body(self, headers: list[tuple[str, str]]) -> bytes:
        pick, chance = self._chance.choice, self._chance.random()
        if chance < 0.1:
            return pick((
                b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b"1", b'"x"', b"{}" * 50, b"\xef\xbb\xbf{}",
                b'{"resourceType":"Patient","resourceType":"Group"}', b'{"resourceType":"Patient","id":"a","id":"b"}',
                b'{"a":' * 3000 + b"1" + b"}" * 3000, b"[" * 100_000, b'{"resourceType":"Patient","x":"\xff"}',
                b'{"resourceType":"Observation","valueInteger":' + b"9" * 5000 + b"}", b'{"x":NaN}', b'{"x":1e999999}',
                b'{"resourceType":"Patient","name":[{"family":"\\ud800"}]}', gzip.compress(b"{}")[:12],
                b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><Patient xmlns="http://hl7.org/fhir"/>',
                gzip.compress(b" " * 1_000_000), b"identifier=x&name=%FF", b"a=1&" * 1000,
            ))  # fmt: skip
        resource = self._resource()
        if chance < 0.45:
            resource = self._bundle()
        elif chance < 0.55:
            resource = {"resourceType": "Parameters", "parameter": [self._parameter() for _ in range(3)]}
        elif chance < 0.65:
            resource = [{"op": pick(("add", "remove", "test", "move", "x")), "path": pick(("/name/0", "", "x", "/~2")),
                         "from": pick(("/name", 1)), "value": self._json(2)}]  # fmt: skip
            headers.append(("Content-Type", "application/json-patch+json"))
        text = json.dumps(resource, ensure_ascii=pick((True, False))).encode(errors="replace")
        if self._chance.random() < 0.02:  # as large as what is read in pieces, and in a thread
            text = text.replace(b'"entry": [', b'"entry": [' + b" " * pick((100_000, 500_000)), 1)
        if self._chance.random() < 0.05:
            at = self._chance.randrange(len(text))
            text = text[:at] + bytes([self._chance.randrange(256)]) + text[at + 1 :]
        return text

    def _resource(self) -> dict[str, Any]:
        pick = self._chance.choice
        kind = pick((*TYPES, pick(self._types), "Binary", "Bundle", "AuditEvent", "StructureDefinition", "Nonsense"))
        made: dict[str, Any] = {"resourceType": kind}
        if self._chance.random() < 0.4:
            made["id"] = pick(("p1", "o1", "s1", "new", *VALUES))
        names = sorted(definitions().members(kind)) if kind in definitions().resource_types else ["x"]
        for name in self._chance.sample(names, min(len(names), self._chance.randrange(5))):
            made[name.removesuffix("[x]")] = self._json(3)
        if kind == "Subscription":
            channel = {"type": pick(("rest-hook", "websocket", "x")), "endpoint": pick(VALUES)}
            criteria = pick(("Patient?", "Patient?name=x", "x", *VALUES))
            made |= {"status": "requested", "criteria": criteria, "reason": "x", "channel": channel}
        elif kind in ("SearchParameter", "ValueSet", "StructureDefinition"):
            made |= {"status": pick(("active", "draft")), "url": pick(VALUES), "type": pick(("token", "string", "x"))}
        if kind == "SearchParameter":
            wrong = ("Patient.name.where(", "(" * 200, "%resource.x", "1/0", *VALUES)
            made |= {"code": pick(("eye", *VALUES)), "base": [pick(self._types)], "expression": pick(wrong)}
        return made

    def _bundle(self) -> dict[str, Any]:
        pick = self._chance.choice
        entries = [
            {
                "fullUrl": pick(("urn:uuid:1", f"urn:uuid:{number}", *VALUES)),
                "resource": pick((self._resource(), self._json(2))),
                "request": {
                    "method": pick(("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "x")),
                    "url": f"{self._path()}{self._query()}"[pick((0, 1)) :],
                    **({"ifNoneExist": pick(VALUES)} if self._chance.random() < 0.2 else {}),
                    **({"ifMatch": pick(('W/"1"', *VALUES))} if self._chance.random() < 0.2 else {}),
                },
            }
            for number in range(self._chance.randrange(6))
        ]
        return {"resourceType": "Bundle", "type": pick(("batch", "transaction", "x")), "entry": entries}

    def _parameter(self) -> Any:
        pick = self._chance.choice
        names = ("url", "code", "system", "resource", "type", "name", "value", "path", "operation", "profile", "mode")
        value = pick(("valueUri", "valueString", "valueCode", "valueInteger", "resource", "part", "x"))
        return {"name": pick(names), value: pick((pick(VALUES), self._json(2), self._resource()))}

    def _json(self, depth: int) -> Any:
        pick, chance = self._chance.choice, self._chance.random()
        if depth == 0 or chance < 0.5:
            return pick((None, True, 0, -1, 10**30, 1.5, 1e300, pick(VALUES), pick(VALUES), "2024", [], {}))
        if chance < 0.75:
            return [self._json(depth - 1) for _ in range(self._chance.randrange(4))]
        names = (
            "system",
            "value",
            "code",
            "reference",
            "given",
            "family",
            "url",
            "extension",
            "start",
            "contained",
            "id",
        )
        return {pick(names): self._json(depth - 1) for _ in range(self._chance.randrange(4))}


def _quoted(text: str, safe: str = "") -> str:
    """As part of a URL; half of a surrogate pair as its three bytes."""
    return quote(text.encode(errors="surrogatepass"), safe=safe)


class Client:
    """One connection that is opened again whenever it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None

    def send(self, request: Sent) -> tuple[int, str, bytes]:
        """Status, content type and body of the answer; status 0 when the connection was closed without one."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=PATIENCE)
        try:
            self._socket.sendall(request.data)
            return self._answer(request.is_head)
        except ConnectionError:
            self.close()
            return 0, "", b""

    def _answer(self, is_head: bool) -> tuple[int, str, bytes]:
        assert self._socket is not None
        data = b""
        while b"\r\n\r\n" not in data:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        status = int(lines[0].split()[1])
        if status == 100:
            return self._answer(is_head)
        named = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines[1:])}
        length = 0 if is_head or status in (204, 304) else int(named.get(b"content-length", b"0"))
        while len(body) < length:
            body += self._more()
        if named.get(b"connection", b"").lower() == b"close" or b"content-length" not in named:
            self.close()
        return status, named.get(b"content-type", b"").decode(), body

    def _more(self) -> bytes:
        assert self._socket is not None
        found = self._socket.recv(65536)
        if not found:
            raise ConnectionError
        return found

    def close(self) -> None:
        """Hang up."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def wrong_with(request: Sent, status: int, content_type: str, body: bytes) -> str | None:
    """What an answer should not be; None: nothing."""
    if status >= 500:
        return f"status {status}"
    if status < 400 or request.is_head:
        return None
    if status == 400 and not body and not content_type.startswith("application"):
        return None  # no HTTP: Twisted's own answer
    try:
        outcome = from_xml(body) if "xml" in content_type else json.loads(body)
    except Exception as error:
        return f"status {status}, {content_type}: the body cannot be read: {error!r}"
    return None if outcome.get("resourceType") == "OperationOutcome" else f"status {status}: no OperationOutcome"


def attack(port: int, seed: int, count: int) -> tuple[Counter[int], list[tuple[str, bytes, bytes]]]:
    """Send so many; statuses, and what was wrong with which request and answer."""
    generator, client = Generator(seed), Client(port)
    statuses: Counter[int] = Counter()
    wrong = []
    for _ in range(count):
        request = generator.one()
        status, content_type, body = client.send(request)
        statuses[status] += 1
        reason = wrong_with(request, status, content_type, body)
        if reason is not None:
            wrong.append((reason, request.data, body))
    client.close()
    return statuses, wrong


def main(port: int, seed: int, count: int) -> int:
    """Print what was found."""
    began = time.monotonic()
    statuses, wrong = attack(port, seed, count)
    print(f"seed {seed}: {count} requests in {time.monotonic() - began:.0f} s: {dict(sorted(statuses.items()))}")
    for reason, request, body in wrong[:20]:
        print(reason, request[:1500], body[:300], sep="\n  ")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:4]))))
