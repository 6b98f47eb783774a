"""The FHIRPath Patch cases that HL7 publishes, over HTTP.

They are read from a folder that the command names (`--reference`): they are no part of this repository.

Source: `r4/patch/fhir-patch-tests.xml` of https://github.com/FHIR/fhir-test-cases
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from conformance.server import Json, Server
from conformance.suite import Case, Failed, equal, expect
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml

FILE = "fhir-patch-tests.xml"
_OWN = ("id", "meta")


def cases(folder: Path) -> Sequence[Case]:
    """One case for each of the file, wherever in the folder it is.  FileNotFoundError when it is not there."""
    found = sorted(folder.rglob(FILE))
    if not found:
        raise FileNotFoundError(f"{folder} has no {FILE}")
    made = []
    for one in ElementTree.fromstring(found[0].read_bytes()).iter("case"):
        parts = {part.tag: _json(part[0]) for part in one if len(part)}
        if {"input", "diff"} <= parts.keys():
            made.append((one.get("name", ""), partial(_patched, parts=parts)))
    return made


def _json(element: ElementTree.Element) -> Json:
    found: Json = loads(dumps(from_xml(ElementTree.tostring(element))))
    return found


async def _patched(server: Server, parts: dict[str, Json]) -> None:
    resource = server.tagged(parts["input"])
    kind, sent = resource["resourceType"], dumps(resource).decode()
    reference = f"{kind}/{expect(await server.send('POST', kind, sent), 201, optional=True).id}"
    reply = await server.send("PATCH", reference, dumps(parts["diff"]).decode())
    if "output" not in parts:
        if reply.status < 400:
            raise Failed(f"expected a refusal, got {reply}")
        return
    expect(reply, 200, optional=reply.status in (405, 415, 501))
    after = (await server.send("GET", reference)).body
    wanted = {name: value for name, value in parts["output"].items() if name not in _OWN}
    equal({name: value for name, value in after.items() if name not in _OWN}, wanted)
