"""Many clients at once: what holds whichever of them comes first.

A client may be refused (409, 412, 429, 503 with the request to come again); what is stored must be right.
"""

from __future__ import annotations

from collections import Counter

from conformance.data import patient, system
from conformance.patches import JSON_PATCH
from conformance.search import keys, matches
from conformance.server import Reply, Server
from conformance.suite import Case, Failed, NotSupported, check, equal, expect
from conformance.transactions import bundle, entry

CLIENTS = 200
_AGAIN = {409, 412, 429, 503}


def _counted(replies: list[Reply], *good: int) -> Counter[int]:
    """How often each status is answered; Failed for one that is neither good nor a request to come again."""
    found = Counter(one.status for one in replies)
    wrong = [one for one in replies if one.status not in _AGAIN | {*good}]
    if wrong:
        raise Failed(f"{len(wrong)} of {len(replies)} clients get {wrong[0]}")
    return found


async def _matching(server: Server, number: str) -> list[str]:
    return await matches(server, f"Patient?identifier={system(server)}%7C{number}")


async def conditional_create(server: Server) -> None:
    """200 clients create one key conditionally: one resource."""
    search = f"identifier={system(server)}%7Cx1"
    probe = await server.send("POST", "Patient", patient(server, "x0"), if_none_exist=search.replace("x1", "x0"))
    expect(probe, 201, optional=True)
    one = ("POST", "Patient", patient(server, "x1"))
    found = _counted(await server.at_once(*[one] * CLIENTS, if_none_exist=search), 200, 201)
    equal(len(await _matching(server, "x1")), 1, f"resources after {dict(found)}")


async def conditional_create_in_transactions(server: Server) -> None:
    """50 transactions create one key conditionally: one resource."""
    search = f"identifier={system(server)}|x2"
    sent = {"resourceType": "Bundle", "type": "transaction",
            "entry": [entry("POST", "Patient", patient(server, "x2"), ifNoneExist=search)]}  # fmt: skip
    found = _counted(await server.at_once(*[("POST", "", sent)] * 50), 200)
    equal(len(await _matching(server, "x2")), 1, f"resources after {dict(found)}")


async def conditional_update(server: Server) -> None:
    """50 clients update one key conditionally, which none has: one resource."""
    url = f"Patient?identifier={system(server)}%7Cx3"
    requests = [("PUT", url, patient(server, "x3", birthDate=str(1900 + at))) for at in range(50)]
    replies = await server.at_once(*requests)
    if all(one.status in (400, 404, 405, 501) for one in replies):
        raise NotSupported(str(replies[0]))
    found = _counted(replies, 200, 201)
    equal(len(await _matching(server, "x3")), 1, f"resources after {dict(found)}")


async def if_match(server: Server) -> None:
    """50 clients update the same version with If-Match: one of them succeeds."""
    made = expect(await server.send("POST", "Patient", patient(server, "x4")), 201)
    tag, body = made.headers.get("etag", 'W/"1"'), {**patient(server, "x4"), "id": made.id}
    requests = [("PUT", f"Patient/{made.id}", {**body, "birthDate": str(1900 + at)}) for at in range(50)]
    found = _counted(await server.at_once(*requests, if_match=tag), 200)
    equal(found[200], 1, "successful updates")
    history = (await server.send("GET", f"Patient/{made.id}/_history?_count=100")).body
    equal(len(history["entry"]), 2, "versions")


async def updates(server: Server) -> None:
    """30 clients update one resource: each success is a version of its own."""
    made = expect(await server.send("POST", "Patient", patient(server, "x5")), 201)
    body = {**patient(server, "x5"), "id": made.id}
    requests = [("PUT", f"Patient/{made.id}", {**body, "birthDate": str(1900 + at)}) for at in range(30)]
    found = _counted(await server.at_once(*requests), 200)
    history = (await server.send("GET", f"Patient/{made.id}/_history?_count=100")).body
    versions = [one["resource"]["meta"]["versionId"] for one in history["entry"]]
    equal((len(set(versions)), len(versions)), (found[200] + 1, found[200] + 1), "versions")


async def patches(server: Server) -> None:
    """20 clients add to one list by JSON Patch: no addition that succeeds is lost."""
    made = expect(await server.send("POST", "Patient", patient(server, "x6")), 201)
    requests = []
    for at in range(20):
        value = {"system": "urn:x", "value": str(at)}
        requests.append(("PATCH", f"Patient/{made.id}", [{"op": "add", "path": "/identifier/-", "value": value}]))
    replies = await server.at_once(*requests, content_type=JSON_PATCH)
    if all(one.status in (405, 415, 501) for one in replies):
        raise NotSupported(str(replies[0]))
    found = _counted(replies, 200)
    stored = (await server.send("GET", f"Patient/{made.id}")).body["identifier"]
    equal(len(stored), found[200] + 1, "identifiers")


async def opposite_transactions(server: Server) -> None:
    """40 transactions update two resources in opposite orders: each is done as a whole, or not."""
    ids = [expect(await server.send("POST", "Patient", patient(server, f"x7{at}")), 201).id for at in "ab"]
    requests = []
    for at in range(40):
        entries = [entry("PUT", f"Patient/{id}", {**patient(server, f"x7{name}", birthDate=str(1900 + at)), "id": id})
                   for id, name in zip(ids, "ab", strict=True)]  # fmt: skip
        sent = {"resourceType": "Bundle", "type": "transaction", "entry": entries[:: 1 if at % 2 else -1]}
        requests.append(("POST", "", sent))
    found = _counted(await server.at_once(*requests), 200)
    check(found[200] > 0, "no transaction succeeds")
    born = [(await server.send("GET", f"Patient/{id}")).body["birthDate"] for id in ids]
    equal(born[0], born[1], "the last transaction wrote both")


async def pages(server: Server) -> None:
    """Pages of a search while others write: what is there all the time is found once."""
    entries = [entry("POST", "Patient", patient(server, f"x8-{at}", birthDate="1888-08-08")) for at in range(30)]
    made = [one["response"]["location"] for one in expect(await bundle(server, *entries), 200).body["entry"]]
    ids = [one.split("/_history")[0].rpartition("/")[2] for one in made]
    url, found = f"Patient?birthdate=1888-08-08&_count=5&{server.tag()}", []
    for step in range(40):
        reply = expect(await server.send("GET", url), 200)
        found += keys(reply.body, "match")
        url = next((one["url"] for one in reply.body["link"] if one["relation"] == "next"), "")
        if not url:
            break
        gone = ids[step % 5]
        changed = {
            **patient(server, f"x8-{20 + step % 10}", birthDate="1888-08-08", active=True),
            "id": ids[20 + step % 10],
        }
        await server.at_once(
            ("DELETE", f"Patient/{gone}"), ("PUT", f"Patient/{changed['id']}", changed),
            ("POST", "Patient", patient(server, f"x8-new-{step}", birthDate="1888-08-08")),
        )  # fmt: skip
    count = Counter(one.partition("/")[2] for one in found)
    kept = ids[5:]
    lost, twice = [one for one in kept if not count[one]], [one for one in kept if count[one] > 1]
    check(not lost and not twice, f"of {len(kept)} resources {len(lost)} are not found, {len(twice)} more than once")


def cases() -> list[Case]:
    """All cases."""
    made = (conditional_create, conditional_create_in_transactions, conditional_update, if_match, updates, patches,
            opposite_transactions, pages)  # fmt: skip
    return [((one.__doc__ or "").strip().rstrip("."), one) for one in made]
