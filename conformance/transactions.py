"""Rules of transactions and batches (https://hl7.org/fhir/R4/http.html#transaction)."""

from __future__ import annotations

from conformance.data import patient, system
from conformance.search import keys
from conformance.server import Json, Reply, Server
from conformance.suite import Case, check, equal, expect

_UUID = "urn:uuid:0190f7a4-2b6e-7cc0-8a11-2f6d3c1b9e55"


def entry(method: str, url: str, resource: Json | None = None, full_url: str = "", **request: str) -> Json:
    """An entry of a Bundle."""
    made: Json = {"request": {"method": method, "url": url, **request}}
    return {**made, **({"resource": resource} if resource else {}), **({"fullUrl": full_url} if full_url else {})}


async def bundle(server: Server, *entries: Json, kind: str = "transaction") -> Reply:
    """Send a Bundle."""
    return await server.send("POST", "", {"resourceType": "Bundle", "type": kind, "entry": list(entries)})


def statuses(reply: Reply) -> list[str]:
    """The status code of each entry."""
    return [one["response"]["status"][:3] for one in reply.body["entry"]]


async def _found(server: Server, number: str) -> list[str]:
    """The Patients with this number."""
    found = expect(await server.send("GET", f"Patient?identifier={system(server)}%7C{number}"), 200).body
    return keys(found, "match")


def _observation(server: Server, subject: str) -> Json:
    made = {"resourceType": "Observation", "status": "final", "code": {"text": "x"}, "subject": {"reference": subject}}
    return server.tagged(made)


async def references(server: Server) -> None:
    """A urn:uuid reference becomes the reference to what the transaction creates, also to a later entry."""
    reply = await bundle(server, entry("POST", "Observation", _observation(server, _UUID)),
                         entry("POST", "Patient", patient(server, "t1"), _UUID))  # fmt: skip
    equal(statuses(expect(reply, 200)), ["201", "201"])
    observation = await server.send("GET", server.created[-2])
    equal(observation.body["subject"]["reference"].rpartition("/")[0].rpartition("/")[2], "Patient")
    expect(await server.send("GET", observation.body["subject"]["reference"]), 200)


async def all_or_nothing(server: Server) -> None:
    """One invalid entry, and nothing is stored."""
    reply = await bundle(server, entry("POST", "Patient", patient(server, "t2")),
                         entry("POST", "Patient", {"resourceType": "Patient", "gender": 1}))  # fmt: skip
    expect(reply, 400, 422)
    equal(await _found(server, "t2"), [])


async def a_failed_condition(server: Server) -> None:
    """An old version in If-Match, and nothing is stored."""
    made = expect(await server.send("POST", "Patient", patient(server, "t3")), 201).id
    changed = {**patient(server, "t3", active=True), "id": made}
    reply = await bundle(server, entry("POST", "Patient", patient(server, "t4")),
                         entry("PUT", f"Patient/{made}", changed, ifMatch='W/"999"'))  # fmt: skip
    expect(reply, 412, 409, 400)
    equal(await _found(server, "t4"), [])


async def several_matches(server: Server) -> None:
    """A conditional create with two matches fails the transaction."""
    for _ in range(2):
        expect(await server.send("POST", "Patient", patient(server, "t5")), 201)
    search = f"identifier={system(server)}|t5"
    reply = await bundle(server, entry("POST", "Patient", patient(server, "t6")),
                         entry("POST", "Patient", patient(server, "t5"), ifNoneExist=search))  # fmt: skip
    expect(reply, 412, 409, 400)
    equal(await _found(server, "t6"), [])


async def conditional_create(server: Server) -> None:
    """ifNoneExist: what exists is used, also by references."""
    known = expect(await server.send("POST", "Patient", patient(server, "t7")), 201).id
    search = f"identifier={system(server)}|t7"
    reply = await bundle(server, entry("POST", "Patient", patient(server, "t7"), _UUID, ifNoneExist=search),
                         entry("POST", "Observation", _observation(server, _UUID)))  # fmt: skip
    equal(statuses(expect(reply, 200, optional=True)), ["200", "201"])
    observation = await server.send("GET", server.created[-1])
    check(observation.body["subject"]["reference"].endswith(f"Patient/{known}"), "the reference is to something else")


async def conditional_reference(server: Server) -> None:
    """A reference by search."""
    known = expect(await server.send("POST", "Patient", patient(server, "t8")), 201).id
    search = f"Patient?identifier={system(server)}|t8"
    reply = await bundle(server, entry("POST", "Observation", _observation(server, search)))
    expect(reply, 200, optional=True)
    observation = await server.send("GET", server.created[-1])
    check(observation.body["subject"]["reference"].endswith(f"Patient/{known}"), "the reference is to something else")


async def order(server: Server) -> None:
    """Deletes come before creates, reads last, in the order of the request in the response."""
    gone = expect(await server.send("POST", "Patient", patient(server, "t9")), 201).id
    search = f"identifier={system(server)}|t9"
    reply = await bundle(
        server, entry("GET", f"Patient?{search.replace('|', '%7C')}"),
        entry("POST", "Patient", patient(server, "t9"), ifNoneExist=search), entry("DELETE", f"Patient/{gone}"),
    )  # fmt: skip
    expect(reply, 200)
    check(statuses(reply)[1] == "201", "the delete does not come first")
    equal(len(keys(reply.body["entry"][0]["resource"], "match")), 1, "matches of the read")


async def twice(server: Server) -> None:
    """The same resource twice is refused."""
    made = expect(await server.send("POST", "Patient", patient(server, "t10")), 201).id
    changed = {**patient(server, "t10", active=True), "id": made}
    put = entry("PUT", f"Patient/{made}", changed)
    expect(await bundle(server, put, entry("DELETE", f"Patient/{made}"), put), 400, 422, 409)


async def batch(server: Server) -> None:
    """Entries of a batch are independent."""
    reply = await bundle(server, entry("POST", "Patient", {"resourceType": "Patient", "gender": 1}),
                         entry("POST", "Patient", patient(server, "t11")), entry("GET", "Patient/never-there"),
                         kind="batch")  # fmt: skip
    found = statuses(expect(reply, 200))
    check(found[0] in ("400", "422") and found[1:] == ["201", "404"], f"the entries have {found}")
    equal(len(await _found(server, "t11")), 1)


async def another_type(server: Server) -> None:
    """A Bundle of another type is refused."""
    expect(await bundle(server, entry("GET", "Patient/1"), kind="document"), 400, 422)


def cases() -> list[Case]:
    """All cases."""
    made = (references, all_or_nothing, a_failed_condition, several_matches, conditional_create, conditional_reference,
            order, twice, batch, another_type)  # fmt: skip
    return [((one.__doc__ or "").strip().rstrip("."), one) for one in made]
