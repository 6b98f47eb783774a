"""All attacks of hostile clients at once, each in a thread: `python -m tests.faults.attackers` (`attacked.py` runs it).

Standard input: one `Target` as JSON.  Standard output, at the end: how often each attack got which answer (a status, or
`closed`).  Each attack begins again as soon as it is answered, until the time is over.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from tests.traffic.largest_inputs import JSON, Body, Input, inputs, stored
from tests.waiting import block_breathe, block_until

KEPT_SECONDS = 60.0
"""What is stored anew each time is sent once in this time, so that an hour of attacks does not fill the disk."""
SLOW_CONNECTIONS = 50
TOKEN_SECONDS = 600.0
_ANSWER_SECONDS = 120.0
_MESSAGE = "MSH|^~\\&|APP|F|||2026||ADT^A01^ADT_A01|M1|P|2.5\rPID|1||P1||A||19700101|F\r"


@dataclass
class Target:
    """The service under attack.  `folder`: its watched folder.  `issuer`: of tokens.  `seconds`: how long.

    `only`: names of attacks; none = all.
    """

    http_port: int
    mllp_port: int
    console_port: int
    folder: str
    admin_token: str
    issuer: str
    seconds: float
    only: list[str] = field(default_factory=list)
    _token: tuple[float, str] = field(default=(0.0, ""))

    def bearer(self) -> dict[str, str]:
        """The header of a client that may do everything."""
        made, text = self._token
        if time.monotonic() - made > TOKEN_SECONDS or not text:
            form = {"grant_type": "client_credentials", "client_id": "attacker", "client_secret": "s3cret",
                    "scope": "system/*.cruds"}  # fmt: skip
            with urlopen(Request(f"{self.issuer}/token", urlencode(form).encode()), timeout=_ANSWER_SECONDS) as answer:
                text = json.load(answer)["access_token"]
            self._token = time.monotonic(), text
        return {"Authorization": f"Bearer {text}"}

    def admin(self) -> dict[str, str]:
        """The header of an operator."""
        return {"Authorization": f"Bearer {self.admin_token}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: Body = None, port: int = 0, **headers: str) -> str:
        """The status of the answer, or `closed`."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=_ANSWER_SECONDS)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        except (OSError, http.client.HTTPException):
            return "closed"
        finally:
            connection.close()

    def fhir(self, method: str, path: str, body: Body = None, kind: str = JSON) -> str:
        """As `ask`, with a token."""
        return self.ask(method, path, body, **self.bearer(), Content_Type=kind)


Attack = Callable[[Target], Iterator[str]]


def strangers(target: Target) -> Iterator[str]:
    """Without a token: 9,000 ids, names of parameters, forged tokens, each answered at once and audited."""
    ids = ",".join(map(str, range(9000)))
    names = "&".join([f"p{number}=1" for number in range(190)])
    while True:
        yield target.ask("GET", f"/fhir/Patient?_id={ids}")
        yield target.ask("GET", f"/fhir/Patient?{names}")
        yield target.ask("GET", "/fhir/Patient", Authorization=f"Bearer {'a.' * 4000}b")


def ids(target: Target) -> Iterator[str]:
    """With a token: the audit names what was asked for."""
    asked = ",".join(map(str, range(9000)))
    while True:
        yield target.fhir("GET", f"/fhir/Patient?_id={asked}")


def maps(target: Target) -> Iterator[str]:
    """27 groups that each call the next one three times: tried, compared, and as a parameter of `$transform`."""
    text = worst_map()
    tried = json.dumps({"map": text, "message": _MESSAGE}).encode()
    compared = json.dumps({"map": text, "message_type": "ADT_A01"}).encode()
    parts = [{"name": "source", "valueString": _MESSAGE}, {"name": "srcMap", "valueString": text}]
    transformed = json.dumps({"resourceType": "Parameters", "parameter": parts}).encode()
    while True:
        yield target.ask("POST", "/admin/mapping/try", tried, **target.admin())
        yield target.ask("POST", "/admin/mapping/compare", compared, **target.admin())
        yield target.fhir("POST", "/mapping/fhir/StructureMap/$transform", transformed)


def worst_map() -> str:
    """A map that would run for 3^27 steps."""
    groups = [
        f"group g{number}(source p, target t : Patient) {{ p then {', '.join([f'g{number + 1}(p, t)'] * 3)} 'again'; }}"
        for number in range(27)
    ]
    return "\n".join([
        '/// url = "urn:attack:worst"', '/// types = "ADT_A01"',
        'uses "http://hl7.org/fhir/StructureDefinition/Bundle" alias Bundle as target',
        "group main(source src : ADT_A01, target tgt : Bundle) {",
        "  src.PID as p then { src -> tgt.entry as e, e.resource = create('Patient') as t then g0(p, t) 'go'; };", "}",
        *groups, "group g27(source p, target t : Patient) { p.PID_5 as v -> t.language = v; }",
    ])  # fmt: skip


def largest(target: Target) -> Iterator[str]:
    """The largest inputs of all routes: numbers, documents, XML, searches, programs, profiles, one after the other."""
    for needed in stored():
        yield target.fhir(needed.method, needed.path, needed.body(), needed.kind)
    sent_at: dict[str, float] = {}
    while True:
        for one in inputs():
            if not _is_kept(one) or time.monotonic() - sent_at.get(one.name, -KEPT_SECONDS) >= KEPT_SECONDS:
                sent_at[one.name] = time.monotonic()
                yield _send(target, one)


def _is_kept(one: Input) -> bool:
    return one.method == "POST" and one.path in ("/fhir", "/fhir/Binary", "/fhir/Bundle", "/admin/ingest")


def _send(target: Target, one: Input) -> str:
    if one.path.startswith("/admin"):
        return target.ask(one.method, one.path, one.body(), **target.admin() | {"Content-Type": one.kind})
    return target.fhir(one.method, one.path, one.body(), one.kind)


def bodies(target: Target) -> Iterator[str]:
    """Bodies that are cheap to send and dear to read: numbers, attributes, and depth."""
    numbers = b"[" + b"1," * 29_000_000 + b"1]"
    attributes = " ".join([f'a{number}="1"' for number in range(200_000)])
    xml = f'<Patient xmlns="http://hl7.org/fhir" {attributes}/>'.encode()
    deep = b'{"resourceType":"Patient","extension":' + b'[{"extension":' * 100_000
    while True:
        for kind, body in ((JSON, numbers), ("application/fhir+xml", xml), (JSON, deep), (JSON, b"[" * 5_000_000)):
            yield target.fhir("POST", "/fhir/Patient", body, kind)
            yield target.ask("POST", "/fhir/Patient", body, Content_Type=kind)


def graphs(target: Target) -> Iterator[str]:
    """GraphQL: fragments that spread each other, and that double."""
    cycle = "{ Patient(id: a) { ...A } } fragment A on Patient { ...B } fragment B on Patient { ...A }"
    doubled = "{ Patient(id: a) { ...F0 } } " + " ".join([
        f"fragment F{number} on Patient {{ ...F{number + 1} ...F{number + 1} }}" for number in range(40)
    ]) + " fragment F40 on Patient { id }"  # fmt: skip
    nested = "{ Patient(id: a) " + "{ identifier " * 5000 + "}" * 5001
    while True:
        for query in (cycle, doubled, nested):
            yield target.fhir("POST", "/fhir/$graphql", json.dumps({"query": query}).encode(), "application/json")


def filters(target: Target) -> Iterator[str]:
    """`_filter`, chains, ECL and includes, as long as a request may be."""
    compared = quote(" or ".join(["code eq a"] * 140))
    nested = quote("(" * 3000 + "code eq a" + ")" * 3000)
    ecl = quote("http://snomed.info/sct?fhir_vs=ecl/" + quote(" OR ".join(["(<< 1 : 2 = << 3)"] * 500)), safe="")
    deep = quote("http://snomed.info/sct?fhir_vs=ecl/" + quote("(" * 3000 + "<< 1" + ")" * 3000), safe="")
    while True:
        yield target.fhir("GET", f"/fhir/Observation?_filter={compared}")
        yield target.fhir("GET", f"/fhir/Observation?_filter={nested}")
        yield target.fhir("GET", f"/fhir/Observation?code:in={ecl}")
        yield target.fhir("GET", f"/fhir/ValueSet/$expand?url={ecl}")
        yield target.fhir("GET", f"/fhir/ValueSet/$expand?url={deep}")
        yield target.fhir("GET", f"/fhir/Patient?{'a' * 60_000}=1")


def sign_ins(target: Target) -> Iterator[str]:
    """Sign-ins of strangers at the console that are begun, and that come back with nothing."""
    port = target.console_port
    while True:
        for _ in range(50):
            yield target.ask("GET", "/sign-in?to=/messages", port=port)
        yield target.ask("GET", "/sign-in/callback?code=x&state=y", port=port, Cookie="ipf_sign_in=nothing")
        yield target.ask("GET", "/messages", port=port)


def slow_clients(target: Target) -> Iterator[str]:
    """Connections of HTTP and MLLP that send a byte now and then, and never end."""
    begun = {target.http_port: b"POST /fhir/Patient HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900000\r\n\r\n{",
             target.console_port: b"GET / HTTP/1.1\r\nHost: ", target.mllp_port: b"\x0bMSH|^~\\&|SLOW|"}  # fmt: skip
    open_now: list[socket.socket] = []
    for number in count():
        for port, first in begun.items() if len(open_now) < SLOW_CONNECTIONS * len(begun) else ():
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS)
                open_now.append(one)
                one.sendall(first)
        block_breathe()
        if number % SLOW_CONNECTIONS == 0:
            open_now = [one for one in open_now if _is_open(one)]
            yield f"{len(open_now)} open"
        else:
            yield ""


def _is_open(one: socket.socket) -> bool:
    try:
        one.send(b"x")
    except OSError:
        one.close()
        return False
    return True


def bad_files(target: Target) -> Iterator[str]:
    """Files in the watched folder whose name or content is none."""
    for number in count():
        names = [b"br\xe9v%d.hl7" % number, b"empty%d.hl7" % number, b"junk%d.hl7" % number, b"line\n%d.hl7" % number]
        contents = b"dear lab\n", b"", os.urandom(200_000), b"MSH|^~\\&|LAB\r"
        for name, content in zip(names, contents, strict=True):
            path = os.path.join(os.fsencode(target.folder), name)
            with suppress(OSError), open(path, "wb") as file:
                file.write(content)
            yield "written"
        block_until(lambda: len(os.listdir(target.folder)) < 20 or None, "the folder is read", seconds=float("inf"))


ATTACKS: dict[str, Attack] = {
    "requests without a token": strangers, "searches of 9,000 ids": ids, "maps": maps, "largest inputs": largest,
    "bodies": bodies, "GraphQL": graphs, "filters and expressions": filters, "sign-ins": sign_ins,
    "slow clients": slow_clients, "bad files": bad_files,
}  # fmt: skip


def attack(target: Target) -> dict[str, Counter[str]]:
    """All attacks at once; the answers of each."""
    ends_at = time.monotonic() + target.seconds
    found: dict[str, Counter[str]] = {name: Counter() for name in target.only or ATTACKS}

    def repeat(name: str) -> None:
        for answer in ATTACKS[name](target):
            if answer:
                found[name][answer] += 1
            if time.monotonic() >= ends_at:
                return

    threads = [threading.Thread(target=repeat, args=(name,), daemon=True) for name in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()) + _ANSWER_SECONDS)
    return found


def main() -> None:
    """Attack what standard input names."""
    given: dict[str, Any] = json.load(sys.stdin)
    json.dump(attack(Target(**given)), sys.stdout)


if __name__ == "__main__":
    main()
