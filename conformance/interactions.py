"""Interactions on one resource, conditional forms, and operations (https://hl7.org/fhir/R4/http.html)."""

from __future__ import annotations

from conformance.data import patient, system
from conformance.search import keys
from conformance.server import Server
from conformance.suite import Case, check, equal, expect


async def _made(server: Server, number: str, **members: object) -> str:
    """`Patient/id` of a new Patient."""
    return f"Patient/{expect(await server.send('POST', 'Patient', patient(server, number, **members)), 201).id}"


async def capabilities(server: Server) -> None:
    """GET metadata."""
    found = expect(await server.send("GET", "metadata"), 200).body
    equal((found["resourceType"], found["fhirVersion"]), ("CapabilityStatement", "4.0.1"))


async def create(server: Server) -> None:
    """201 with Location, ETag and version; the id of the client is replaced."""
    reply = expect(await server.send("POST", "Patient", {**patient(server, "c1"), "id": "chosen"}), 201)
    check("/_history/" in reply.headers.get("location", ""), "Location has no version")
    check(reply.id != "chosen", "a create keeps the id of the client")


async def read(server: Server) -> None:
    """The resource as it was sent, with meta."""
    reference = await _made(server, "c2", birthDate="1970-01")
    reply = expect(await server.send("GET", reference), 200)
    equal(
        (reply.body["birthDate"], bool(reply.body["meta"]["versionId"]), bool(reply.version)), ("1970-01", True, True)
    )


async def decimals(server: Server) -> None:
    """The digits of a decimal are kept."""
    text = """{"resourceType": "Observation", "status": "final", "code": {"text": "x"},
               "valueQuantity": {"value": 1.10},
               "meta": {"tag": [{"system": "urn:ipf:conformance", "code": "%s"}]}}"""
    made = expect(await server.send("POST", "Observation", text % server.run), 201)
    found = (await server.send("GET", f"Observation/{made.id}")).text
    check("1.10" in found, "1.10 comes back as another number")


async def missing(server: Server) -> None:
    """404 for what was never there, with an OperationOutcome."""
    reply = expect(await server.send("GET", "Patient/never-there"), 404)
    equal(reply.body["resourceType"], "OperationOutcome")


async def deleted(server: Server) -> None:
    """410 after a delete; a repeated delete is no error; an update brings it back."""
    reference = await _made(server, "c3")
    expect(await server.send("DELETE", reference), 200, 202, 204)
    expect(await server.send("GET", reference), 410)
    expect(await server.send("DELETE", reference), 200, 202, 204)
    body = {**patient(server, "c3"), "id": reference.partition("/")[2]}
    expect(await server.send("PUT", reference, body), 200, 201)
    expect(await server.send("GET", reference), 200)


async def versions(server: Server) -> None:
    """Each update is a version; vread and history have all of them, newest first."""
    reference = await _made(server, "c4")
    first = (await server.send("GET", reference)).version
    body = {**patient(server, "c4", active=True), "id": reference.partition("/")[2]}
    second = expect(await server.send("PUT", reference, body), 200).version
    check(first != second, "the version stays the same")
    old = expect(await server.send("GET", f"{reference}/_history/{first}"), 200).body
    check("active" not in old, "the old version is changed")
    history = expect(await server.send("GET", f"{reference}/_history"), 200).body
    equal([one["resource"]["meta"]["versionId"] for one in history["entry"]], [second, first])


async def update_creates(server: Server) -> None:
    """PUT of an id that does not exist."""
    id = f"conformance-{server.run}"
    expect(await server.send("PUT", f"Patient/{id}", {**patient(server, "c5"), "id": id}), 201, optional=True)


async def update_of_another_id(server: Server) -> None:
    """PUT with another id in the body is refused."""
    reference = await _made(server, "c6")
    expect(await server.send("PUT", reference, {**patient(server, "c6"), "id": "other"}), 400, 422)


async def if_none_match(server: Server) -> None:
    """304 when the client has the version."""
    reference = await _made(server, "c7")
    tag = (await server.send("GET", reference)).headers["etag"]
    expect(await server.send("GET", reference, if_none_match=tag), 304, 200)
    equal((await server.send("GET", reference, if_none_match=tag)).status, 304)


async def if_match(server: Server) -> None:
    """An update of an old version is refused with 412."""
    reference = await _made(server, "c8")
    tag = (await server.send("GET", reference)).headers["etag"]
    body = {**patient(server, "c8", active=True), "id": reference.partition("/")[2]}
    expect(await server.send("PUT", reference, body, if_match=tag), 200)
    expect(await server.send("PUT", reference, {**body, "active": False}, if_match=tag), 412, 409)
    equal((await server.send("GET", reference)).body["active"], True)


async def conditional_create(server: Server) -> None:
    """If-None-Exist: 201, then 200, then 412 for two matches."""
    search = f"identifier={system(server)}%7Cc9"
    for status in (201, 200):
        expect(await server.send("POST", "Patient", patient(server, "c9"), if_none_exist=search), status, optional=True)
    await _made(server, "c9")
    expect(await server.send("POST", "Patient", patient(server, "c9"), if_none_exist=search), 412)


async def conditional_update(server: Server) -> None:
    """PUT by search: creates, updates, and refuses two matches."""
    url = f"Patient?identifier={system(server)}%7Cc10"
    expect(await server.send("PUT", url, patient(server, "c10")), 201, optional=True)
    expect(await server.send("PUT", url, patient(server, "c10", active=True)), 200)
    await _made(server, "c10")
    expect(await server.send("PUT", url, patient(server, "c10")), 412)


async def conditional_delete(server: Server) -> None:
    """DELETE by search."""
    reference = await _made(server, "c11")
    url = f"Patient?identifier={system(server)}%7Cc11"
    expect(await server.send("DELETE", url), 200, 202, 204, optional=True)
    expect(await server.send("GET", reference), 410, 404)


async def malformed(server: Server) -> None:
    """Text that is no JSON, unknown members and wrong types are refused."""
    for body in ("{", '{"resourceType": "Patient", "nonsense": 1}', '{"resourceType": "Patient", "active": "yes"}',
                 '{"resourceType": "Patient", "birthDate": "1970-13-01"}', '{"resourceType": "Group"}'):  # fmt: skip
        expect(await server.send("POST", "Patient", body), 400, 422)


async def minimal(server: Server) -> None:
    """Prefer: return=minimal."""
    reply = expect(await server.send("POST", "Patient", patient(server, "c12"), prefer="return=minimal"), 201)
    equal(reply.text, "", "the body")


async def xml(server: Server) -> None:
    """A read as XML."""
    reply = expect(
        await server.send("GET", await _made(server, "c13"), accept="application/fhir+xml"), 200, optional=True
    )
    check("<Patient" in reply.text, "this is not XML")


async def validate(server: Server) -> None:
    """$validate finds a wrong code."""
    reply = await server.send("POST", "Patient/$validate", {"resourceType": "Patient", "gender": "x"})
    issues = expect(reply, 200, 400, 422, optional=reply.status not in (400, 422)).body["issue"]
    check(any(one["severity"] in ("error", "fatal") for one in issues), "no error is found")


async def everything(server: Server) -> None:
    """Patient/[id]/$everything."""
    reference = await _made(server, "c14")
    observed = {
        "resourceType": "Observation",
        "status": "final",
        "code": {"text": "x"},
        "subject": {"reference": reference},
    }
    made = expect(await server.send("POST", "Observation", server.tagged(observed)), 201).id
    found = expect(await server.send("GET", f"{reference}/$everything"), 200, optional=True).body
    check(
        {reference, f"Observation/{made}"} <= {*keys(found, "match"), *keys(found, "include")}, "something is missing"
    )


async def graphql(server: Server) -> None:
    """$graphql of one resource."""
    reference = await _made(server, "c15", name=[{"family": "Graph", "given": ["A", "B"]}])
    query = {"query": "{ name { family given } }"}
    reply = await server.send("POST", f"{reference}/$graphql", query, content_type="application/json")
    found = expect(reply, 200, optional=True).body
    equal(found["data"], {"name": [{"family": "Graph", "given": ["A", "B"]}]})


async def meta(server: Server) -> None:
    """$meta of one resource."""
    found = expect(await server.send("GET", f"{await _made(server, 'c16')}/$meta"), 200, optional=True).body
    equal(found["parameter"][0]["valueMeta"]["tag"][0]["code"], server.run)


def cases() -> list[Case]:
    """All cases."""
    made = (capabilities, create, read, decimals, missing, deleted, versions, update_creates, update_of_another_id,
            if_none_match, if_match, conditional_create, conditional_update, conditional_delete, malformed, minimal,
            xml, validate, everything, graphql, meta)  # fmt: skip
    return [((one.__doc__ or "").strip().rstrip("."), one) for one in made]
