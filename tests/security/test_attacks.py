"""The attack table: requests of hostile clients to the FHIR server in memory, over real HTTP.

Attacks with tokens are in `test_tokens.py` and `test_vectors.py`, about scopes in `test_scopes.py`, about endpoints of
subscriptions in `tests/subscriptions`, about slow clients and request smuggling in `tests/wire/http/test_limits.py`,
about MLLP in `tests/wire/mllp/test_access.py` and `tests/faults/test_garbage.py`.  docs/explanation/security.md lists
them all.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import tarfile
import time
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogPublisher, globalLogPublisher
from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.model.packages import read_package
from ipf.rest.http.outcome import refuse
from ipf.rest.router import handler
from ipf.telemetry.logs import LogWriter
from ipf.wire.http.app import resource
from ipf.wire.http.site import site
from tests.rest.world import World

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
MAX_BODY = 200_000
SECONDS = 30  # of processor time: what these attacks aim at takes hours


class Server:
    """A FHIR server on an in-memory transport; records its log lines."""

    def __init__(self) -> None:
        self.log = io.BytesIO()
        writer = LogWriter(self.log)
        self.publisher: LogPublisher = globalLogPublisher
        self.publisher.addObserver(writer)
        self.forget = lambda: self.publisher.removeObserver(writer)
        self.world = World()
        fhir = resource(handler(self.world.repository), refuse)
        self.factory = site({"fhir": fhir}, max_body=MAX_BODY)

    def send(self, data: bytes) -> bytes:
        """The bytes that a client receives after sending this on a new connection."""
        protocol: Any = self.factory.buildProtocol(None)
        transport = StringTransport()
        protocol.callLater = Clock().callLater
        protocol.makeConnection(transport)
        protocol.dataReceived(data)
        sent: bytes = transport.value()
        return sent

    def ask(self, method: str, target: str, body: bytes = b"", *headers: bytes) -> tuple[int, list[bytes], bytes]:
        """Status, header lines and body of the response."""
        own = [] if any(line.startswith(b"Host:") for line in headers) else [b"Host: fhir.example"]
        lines = [f"{method} {target} HTTP/1.1".encode("latin-1"), *own, *headers]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(b"Content-Length: %d" % len(body))
            if not any(line.lower().startswith(b"content-type:") for line in headers):
                lines.append(b"Content-Type: application/fhir+json")
        head, _, content = self.send(b"\r\n".join(lines) + b"\r\n\r\n" + body).partition(b"\r\n\r\n")
        status, *fields = head.split(b"\r\n")
        return int(status.split()[1]), fields, content


class AttackTests(TestCase):
    """Every attack is refused with a clear error, never with a 500, and in bounded time."""

    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.forget)
        self.began = time.process_time()

    def tearDown(self) -> None:
        self.assertLess(time.process_time() - self.began, SECONDS)
        self.assertEqual([line for line in self.server.log.getvalue().splitlines() if b'"level":"ERROR"' in line], [])

    def refused(
        self, method: str, target: str, body: bytes = b"", *headers: bytes, status: int = 0, name: str = ""
    ) -> bytes:
        """The body of a 4xx response (of `status`, if given)."""
        code, fields, content = self.server.ask(method, target, body, *headers)
        shown = f"{name} {method} {target[:80]} {body[:60]!r}: {code} {content[:200]!r}"
        self.assertTrue(400 <= code < 500 if not status else code == status, shown)
        self.assertTrue(any(line.lower().startswith(b"x-correlation-id:") for line in fields), shown)
        return content

    def test_path_traversal(self) -> None:
        for target in (
            "/fhir/../etc/passwd", "/fhir/..%2f..%2fetc%2fpasswd", "/fhir/Patient/..", "/fhir/Patient/%2e%2e/x",
            "/fhir/Patient/..%2f..%2fSubscription", "/fhir/Patient/a%00b", "/fhir/Patient/a%0d%0ab",
            "/fhir/%2e%2e/admin", "/fhir/Patient/..;/admin", "/fhir//etc/passwd", "/fhir/$export-file/..%2f..%2fx/y",
            "/fhir/file:%2f%2f/x",
            "/fhir/Patient/1/_history/..%2f2", "/fhir/Binary/%c0%ae%c0%ae%c0%af", "/fhir/Patient/" + "a" * 5000,
            "/fhir/metadata/../../x", "/../etc/passwd", "/fhir/%5c..%5cwindows", "/fhir/Patient/1%27%20OR%201=1--",
        ):  # fmt: skip
            self.refused("GET", target)

    def test_sql_in_parameters_is_text(self) -> None:
        for target in (
            "/fhir/Patient?family=x'%20OR%201=1--", "/fhir/Patient?identifier=a|b'%3B%20DROP%20TABLE%20resources--",
            "/fhir/Patient?family=%27%3Bselect%20pg_sleep(5)--", "/fhir/Patient?_id=1'%20OR%20'1'='1",
            "/fhir/Patient?family=%25", "/fhir/Patient?family:exact=\\", "/fhir/Patient?name=%1f",
        ):  # fmt: skip
            status, _, content = self.server.ask("GET", target)
            self.assertIn(status, (200, 400), target)
            if status == 200:
                self.assertEqual(json.loads(content)["total"], 0, target)

    def test_oversize(self) -> None:
        patient = b'{"resourceType":"Patient","name":[{"family":"%s"}]}'
        self.refused("POST", "/fhir/Patient", patient % (b"a" * MAX_BODY), status=413)
        self.refused("POST", "/fhir/Patient/_search", b"name=" + b"a" * MAX_BODY,
                     b"Content-Type: application/x-www-form-urlencoded", status=413)  # fmt: skip
        self.refused("GET", "/fhir/Patient?" + "&".join(["name=x"] * 600), status=400)
        entries = ",".join(['{"request":{"method":"GET","url":"Patient/x"}}'] * 3000)
        batch = f'{{"resourceType":"Bundle","type":"batch","entry":[{entries}]}}'.encode()
        status, _, _ = self.server.ask("POST", "/fhir", batch)
        self.assertIn(status, (200, 413))
        self.refused("GET", "/fhir/Patient?_count=" + "9" * 5000)

    def test_header_injection(self) -> None:
        values = b"a\r\nX-Evil: 1", b"%0d%0aX-Evil:%201", b"\xe2\x80\xa8X-Evil", b"0" * 4000, b"' OR 1=1", b"../../x"
        for value in values:
            # a second header is the client's own to send; it must never come back as one of ours
            for name in (b"X-Correlation-Id", b"traceparent", b"Prefer", b"Origin", b"If-None-Match", b"Host"):
                _, fields, _ = self.server.ask("GET", "/fhir/Patient/x", b"", name + b": " + value)
                self.assertFalse(any(line.lower().startswith(b"x-evil") for line in fields), (name, value))
                (given,) = [line for line in fields if line.lower().startswith(b"x-correlation-id:")]
                self.assertTrue(_UUID.fullmatch(given.split(b":", 1)[1].strip().decode()), given)

    def test_response_splitting(self) -> None:
        evil = "%0d%0aSet-Cookie:%20a=b%0d%0a%0d%0a<script>"
        for method, target, body, headers in (
            ("GET", f"/fhir/Patient?name={evil}&_count=1", b"", ()),
            ("GET", f"/fhir/{evil}", b"", ()),
            ("GET", f"/fhir/Patient/x?_format={evil}", b"", ()),
            ("PUT", "/fhir/Patient/x", b'{"resourceType":"Patient","id":"x\\r\\nSet-Cookie: a=b"}', ()),
            ("POST", "/fhir/Binary", b"x", (b"Content-Type: text/html",)),
            ("GET", "/fhir/metadata", b"", (b"Host: evil.example\tSet-Cookie",)),
            ("GET", "/fhir/metadata", b"", (b'Host: "><script>',)),
        ):
            status, fields, _ = self.server.ask(method, target, body, *headers)
            self.assertLess(status, 500)
            self.assertFalse(any(line.lower().startswith(b"set-cookie") for line in fields), target)
            self.assertIn(b"X-Content-Type-Options: nosniff", fields, "an answer is never taken for a page")
            kinds = [line for line in fields if line.lower().startswith(b"content-type:")]
            self.assertFalse(any(b"html" in line for line in kinds), target)
        for binary in ("evil/x\r\nSet-Cookie: a=b", "text/html"):
            made = {"resourceType": "Binary", "contentType": binary, "data": "PHNjcmlwdD4="}
            status, fields, content = self.server.ask("POST", "/fhir/Binary", json.dumps(made).encode())
            if status == 201:
                where = json.loads(content)["id"]
                _, fields, _ = self.server.ask("GET", f"/fhir/Binary/{where}", b"", b"Accept: */*")
                self.assertTrue(any(b"sandbox" in line for line in fields), "a page from here may not run scripts")
            self.assertFalse(any(line.lower().startswith(b"set-cookie") for line in fields), binary)

    def test_log_injection(self) -> None:
        forged = '%0d%0a{"level":"ERROR","message":"forged"}'
        targets = f"/fhir/Patient/{forged}", f"/fhir/{forged}", f"/fhir/Patient?name={forged}", "/fhir/%1b[2J%e2%80%a8x"
        for target in targets:
            self.server.ask("GET", target, b"", b"User-Agent: a\x1b[31m\x07", b"X-Correlation-Id: \x1b[2J")
        self.server.ask("POST", "/fhir/Patient", b'{"resourceType":"Patient","\\r\\nforged":1}')
        for line in self.server.log.getvalue().split(b"\n")[:-1]:
            record = json.loads(line)
            self.assertNotEqual(record["message"], "forged")
            self.assertNotIn(b"\x1b", line)

    def test_json_bombs(self) -> None:
        deep = 60_000
        for name, body in {
            "deep lists": b'{"resourceType":"Patient","name":' + b"[" * deep + b"]" * deep + b"}",
            "deep objects": b'{"resourceType":"Patient","contact":' + b'{"a":' * deep + b"1" + b"}" * deep + b"}",
            "never closed": b"[" * MAX_BODY,
            "deep extensions": b'{"resourceType":"Patient","extension":'
            + b'[{"url":"u","extension":' * 3000
            + b"[]"
            + b"}]" * 3000
            + b"}",
            "a huge number": b'{"resourceType":"Patient","multipleBirthInteger":' + b"9" * 100_000 + b"}",
            "a huge exponent": b'{"resourceType":"Observation","status":"final","code":{"text":"x"},'
            b'"valueQuantity":{"value":1e999999999}}',
            "repeated members": b'{"resourceType":"Patient","id":"a","id":"b"}',
            "not a number": b'{"resourceType":"Patient","multipleBirthInteger":NaN}',
            "no UTF-8": b'{"resourceType":"Patient","id":"\xff\xfe"}',
            "a lone surrogate": b'{"resourceType":"Patient","name":[{"family":"\\ud800"}]}',
            "no object": b'"Patient"',
            "the wrong type": b'{"resourceType":["Patient"]}',
            "prototype": b'{"resourceType":"Patient","__proto__":{"admin":true}}',
        }.items():
            kind = "Observation" if b"Observation" in body else "Patient"
            self.refused("POST", f"/fhir/{kind}", body, name=name)

    def test_xml_bombs(self) -> None:
        namespace = ' xmlns="http://hl7.org/fhir"'
        laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
        for body in (
            f'<!DOCTYPE Patient [<!ENTITY l0 "ha">{laughs}]><Patient{namespace}><id value="&l9;"/></Patient>',
            f'<!DOCTYPE P [<!ENTITY x SYSTEM "file:///etc/passwd">]><Patient{namespace}><id value="&x;"/></Patient>',
            f'<!DOCTYPE Patient [<!ENTITY % x SYSTEM "http://127.0.0.1:1/x.dtd"> %x;]><Patient{namespace}/>',
            f'<!DOCTYPE Patient SYSTEM "http://127.0.0.1:1/x.dtd"><Patient{namespace}/>',
            f"<Patient{namespace}><id value='&undefined;'/></Patient>",
            f'<?xml-stylesheet href="http://127.0.0.1:1/x.xsl"?><Patient{namespace}><foo/></Patient>',
            f'<Patient{namespace}><x:include xmlns:x="http://www.w3.org/2001/XInclude" href="/etc/hosts"/></Patient>',
            f"<Patient{namespace}>" + "<extension url='u'>" * 5000,
            f"<Patient{namespace}" + "".join(f' a{n}="1"' for n in range(10_000)) + "/>",
        ):
            content = self.refused("POST", "/fhir/Patient", body.encode(), b"Content-Type: application/fhir+xml")
            self.assertNotIn(b"root:", content)

    def test_narrative_with_scripts(self) -> None:
        scripts = "<script>alert(1)</script>", '<img src="x" onerror="alert(1)"/>', '<a href="javascript:1">x</a>'
        for div in scripts:
            text = {"status": "generated", "div": f'<div xmlns="http://www.w3.org/1999/xhtml">{div}</div>'}
            made = {"resourceType": "Patient", "text": text}
            status, fields, _ = self.server.ask("POST", "/fhir/Patient", json.dumps(made).encode())
            self.assertIn(status, (201, 400, 422))
            self.assertIn(b"Content-Security-Policy: sandbox; default-src 'none'; frame-ancestors 'none'", fields)
            self.assertIn(b"X-Content-Type-Options: nosniff", fields)

    def test_regular_expression_bombs(self) -> None:
        text = "a" * 5000 + "!"
        for pattern in ("(a+)+$", "(a|aa)+$", "(a*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){25}", "(a?){50}a{50}"):
            began = time.process_time()
            try:
                compile(f"name.family.matches('{pattern}')").evaluate({"name": [{"family": text}]})
            except (Problem, FhirPathError):
                pass
            self.assertLess(time.process_time() - began, SECONDS, pattern)
        self.refused("GET", "/fhir/Patient?name:regex=(a%2B)%2B$")

    def test_expression_bombs(self) -> None:
        bombs = "(" * 20_000 + "1" + ")" * 20_000, "a." * 20_000 + "b", "-" * 20_000 + "1", "1+" * 30_000 + "1"
        for expression in bombs:
            patch = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": [
                {"name": "type", "valueCode": "delete"}, {"name": "path", "valueString": expression}]}]}  # fmt: skip
            self.server.ask("PUT", "/fhir/Patient/p", b'{"resourceType":"Patient","id":"p"}')
            self.refused("PATCH", "/fhir/Patient/p", json.dumps(patch).encode())

    def test_search_bombs(self) -> None:
        for target in (
            "/fhir/Patient?_include=*&_include:iterate=*", "/fhir/Patient?" + "_include=Patient:link&" * 190,
            "/fhir/Patient?" + "general-practitioner.name=a&" * 190, "/fhir/Patient?name=" + ",".join(["a"] * 10_000),
            "/fhir/Observation?subject:Patient." + "link:Patient." * 500 + "name=a", "/fhir/Patient?_has:" * 300,
            "/fhir/Patient?_sort=" + ",".join(["name"] * 5000), "/fhir/Patient?_elements=" + "a," * 20_000,
        ):  # fmt: skip
            status, _, _ = self.server.ask("GET", target)
            self.assertLess(status, 500, target[:80])

    def test_gzip_bomb(self) -> None:
        bomb = gzip.compress(b'{"resourceType":"Patient","id":"' + b"0" * 50_000_000 + b'"}')
        self.assertLess(len(bomb), MAX_BODY)
        self.refused("POST", "/fhir/Patient", bomb, b"Content-Encoding: gzip", status=413)

    def test_urls_in_resources_are_never_fetched(self) -> None:
        """URLs of references, profiles and code systems are identifiers: nothing is fetched."""
        for body in (
            {"resourceType": "Patient", "managingOrganization": {"reference": "http://127.0.0.1:1/Organization/1"}},
            {"resourceType": "Patient", "meta": {"profile": ["http://169.254.169.254/latest/meta-data"]}},
            {"resourceType": "Patient", "photo": [{"url": "file:///etc/passwd", "contentType": "image/png"}]},
            {"resourceType": "ValueSet", "status": "active", "url": "http://127.0.0.1:1/vs",
             "compose": {"include": [{"valueSet": ["http://127.0.0.1:1/other"]}]}},
        ):  # fmt: skip
            status, _, _ = self.server.ask("POST", f"/fhir/{body['resourceType']}", json.dumps(body).encode())
            self.assertIn(status, (201, 400, 422), body)

    def test_packages(self) -> None:
        """Archives with path traversal, links or unlimited size."""
        archives = {
            "up": _member("../x.json"), "absolute": _member("/etc/x.json"), "back": _member("package\\..\\x.json"),
            "link": _link(tarfile.SYMTYPE), "hard link": _link(tarfile.LNKTYPE), "device": _link(tarfile.CHRTYPE),
            "zeros": _member("package/x.json", 300_000_000),
        }  # fmt: skip
        for name, fill in archives.items():
            path = Path(self.mktemp())
            with tarfile.open(path, "w:gz", compresslevel=1) as archive:
                fill(archive)
            with self.assertRaises(Problem, msg=name):
                read_package(path)
        path = Path(self.mktemp())
        path.write_bytes(gzip.compress(b"\0" * 1000)[:-4])
        with self.assertRaises(Problem):
            read_package(path)


class _Zeros(io.RawIOBase):
    """A file of this many zero bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def read(self, size: int = -1) -> bytes:
        size = self._left if size < 0 else min(size, self._left)
        self._left -= size
        return bytes(size)


def _member(name: str, size: int = 2) -> Any:
    def fill(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo(name)
        info.size = size
        archive.addfile(info, _Zeros(size))

    return fill


def _link(kind: bytes) -> Any:
    def fill(archive: tarfile.TarFile) -> None:
        info = tarfile.TarInfo("package/x.json")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)

    return fill
