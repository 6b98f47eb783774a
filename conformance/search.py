"""Search: one table of queries with the labels of what they find (https://hl7.org/fhir/R4/search.html).

A refusal (4xx), and a parameter that the self link does not have, count as not supported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qsl, quote, urlsplit

from conformance.data import LOINC, SET, TYPES, UCUM, stored, system
from conformance.server import Json, Reply, Server
from conformance.suite import Case, Failed, NotSupported, check, equal, expect

MOST_PAGES = 20

CASES = """
string: the start of a name | Patient | family=smith | p3 p4
string: without case and accents | Patient | family=MULLER | p1
string: the text as it is written | Patient | family=Müller | p1
string: every given name | Patient | given=maria | p1
string: any part of a name | Patient | name=anna | p1 p4
string: an address | Patient | address=bern | p1
string: a part of an address | Patient | address-country=CH | p1
string: :exact | Patient | family:exact=Smith | p3
string: :exact has case | Patient | family:exact=smith |
string: :contains | Patient | family:contains=MITH | p3 p4
string: a comma is or | Patient | family=mueller,smithers | p2 p4
string: repeated is and | Patient | given=anna&given=maria | p1
string: :missing | Organization | address-city:missing=true | org1 org2
token: a code | Patient | gender=male | p2
token: codes | Patient | gender=male,other | p2 p4
token: :not has what has none | Patient | gender:not=male | p1 p3 p4
token: :missing=true | Patient | gender:missing=true | p3
token: :missing=false | Patient | gender:missing=false | p1 p2 p4
token: a boolean | Patient | active=false | p2
token: system and value | Patient | identifier={system}%7C222 | p2
token: a value of any system | Patient | identifier=222 | p2
token: any value of a system | Patient | identifier={system}%7C | p1 p2 p3 p4
token: a value without system | Patient | identifier=%7C222 |
token: :of-type | Patient | identifier:of-type={types}%7CMR%7C222 | p2
token: system and code | Observation | code={loinc}%7C8867-4 | o1 o2
token: a code of any system | Observation | code=8867-4 | o1 o2 o4
token: :not of a code | Observation | code:not={loinc}%7C8867-4 | o3 o4
token: :text | Observation | code:text=heart | o1 o2
token: a contact point | Patient | phone=%2B41310000000 | p1
token: a contact point of any kind | Patient | telecom=phone%7C%2B41310000000 | p1
token: a status | Observation | status=amended | o4
token: a code of a component | Observation | component-code={loinc}%7C8480-6 | o3
date: a day | Patient | birthdate=1970-03-05 | p1
date: a month has its days | Patient | birthdate=1970-03 | p1 p2
date: a year has its months | Patient | birthdate=1970 | p1 p2 p3
date: gt | Patient | birthdate=gt1970 | p4
date: lt | Patient | birthdate=lt1970 |
date: ge and le | Patient | birthdate=ge1970-01-01&birthdate=le1970-12-31 | p1 p2 p3
date: ne | Patient | birthdate=ne1970 | p4
date: sa | Patient | birthdate=sa1970-03-31 | p4
date: eb | Patient | birthdate=eb1999 | p1 p2 p3
date: a day of a time | Observation | date=2026-01-01 | o1
date: a time in another zone | Observation | date=2026-01-01T12:00:00%2B02:00 | o1
date: a period is within a month | Observation | date=2026-01 | o1 o2 o3
date: sa before a period | Observation | date=sa2026-01-02 | o3
date: eb after a day | Observation | date=eb2026-01-05 | o1 o2
date: gt within a period | Observation | date=gt2026-01-07 | o3
date: :missing | Observation | date:missing=true | o4
date: _lastUpdated | Patient | _lastUpdated=gt2020-01-01 | p1 p2 p3 p4
number: a value | RiskAssessment | probability=0.5 | r1
number: with its precision | RiskAssessment | probability=0.80 | r2
number: gt | RiskAssessment | probability=gt0.6 | r2
number: le | RiskAssessment | probability=le0.5 | r1
quantity: a number | Observation | value-quantity=80 | o1
quantity: with its precision | Observation | value-quantity=86 | o2
quantity: more digits are narrower | Observation | value-quantity=86.0 |
quantity: gt | Observation | value-quantity=gt80 | o2
quantity: le | Observation | value-quantity=le85.5 | o1 o2
quantity: system and code | Observation | value-quantity=80%7C{ucum}%7C/min | o1
quantity: a code of any system | Observation | value-quantity=80%7C%7C/min | o1
quantity: another unit | Observation | value-quantity=80%7C{ucum}%7Cmg |
quantity: an exponent | Observation | value-quantity=8.0e1 | o1
uri: a url | ValueSet | url=http://example.org/{run}/a | v1
uri: :below | ValueSet | url:below=http://example.org/{run}/a | v1 v2
uri: :above | ValueSet | url:above=http://example.org/{run}/a/b/c | v1 v2
reference: type and id | Observation | subject=Patient/{p1} | o1 o3
reference: an id | Observation | patient={p1} | o1 o3
reference: a type as modifier | Observation | subject:Patient={p2} | o2
reference: an absolute URL | Observation | subject={base}/Patient/{p2} | o2
reference: references | Observation | subject=Patient/{p2},Patient/{p4} | o2 o4
reference: another type | Observation | subject=Group/{p1} |
reference: in a list | Patient | general-practitioner=Practitioner/{prac1} | p2
reference: :missing | Patient | organization:missing=true | p2 p3
composite: code and quantity | Observation | code-value-quantity={loinc}%7C8867-4$gt80 | o2
composite: of one component | Observation | component-code-value-quantity={loinc}%7C8480-6$gt110 | o3
composite: not of two components | Observation | component-code-value-quantity={loinc}%7C8480-6$lt100 |
chain: one link | Observation | patient.family=müller | o1 o3
chain: a type | Observation | subject:Patient.given=ben | o2
chain: two links | Observation | patient.organization.name=north | o1 o3
chain: three links | Observation | patient.organization.partof.name=north | o4
chain: to an id | Observation | patient._id={p2} | o2
_has: one | Patient | _has:Observation:patient:code={loinc}%7C85354-9 | p1
_has: with a modifier | Patient | _has:Observation:patient:status=amended | p4
_has: within _has | Organization | _has:Patient:organization:_has:Observation:patient:status=amended | org2
_id: ids | Patient | _id={p1},{p3} | p1 p3
_filter: a string | Patient | _filter=family eq smith | p3
_filter: or | Patient | _filter=gender eq male or gender eq other | p2 p4
_text and _content: a word | Observation | _content=free | o4
"""
"""Name | type | query | labels of the matches, in any order."""


def _wanted(labels: str) -> list[str]:
    return sorted(labels.split())


async def matches(server: Server, url: str) -> list[str]:
    """`Type/id` of all matches, page by page."""
    found: list[str] = []
    for _ in range(MOST_PAGES):
        reply = expect(await server.send("GET", url, prefer="handling=strict"), 200, optional=True)
        _used(url, reply)
        found += keys(reply.body, "match")
        following = next((one["url"] for one in reply.body.get("link", ()) if one["relation"] == "next"), None)
        if following is None:
            return found
        url = following
    raise Failed(f"more than {MOST_PAGES} pages")


def keys(bundle: Json, mode: str) -> list[str]:
    """`Type/id` of the entries of this mode."""
    return [
        f"{one['resource']['resourceType']}/{one['resource']['id']}"
        for one in bundle.get("entry", ())
        if one.get("search", {}).get("mode", "match") == mode
    ]


def _used(url: str, reply: Reply) -> None:
    """NotSupported when the self link does not have a parameter: the server has ignored it."""
    link = next((one["url"] for one in reply.body.get("link", ()) if one["relation"] == "self"), None)
    if link is None or url.startswith("http"):
        return
    used = {name.partition(":")[0].partition(".")[0] for name, _ in parse_qsl(urlsplit(link).query)}
    for name, _ in parse_qsl(urlsplit(url).query):
        short = name.partition(":")[0].partition(".")[0]
        if used and short not in used and any(one["resource"]["resourceType"] == "OperationOutcome"
                                              for one in reply.body.get("entry", ())):  # fmt: skip
            raise NotSupported(f"the server ignores {name}")


class Search:
    """The cases; the resources are created by the first of them."""

    def __init__(self) -> None:
        self._stored: dict[str, str] = {}

    async def prepare(self, server: Server) -> dict[str, str]:
        """The resources by label."""
        if not self._stored:
            self._stored = await stored(server)
        return self._stored

    def cases(self) -> list[Case]:
        """All cases."""
        made: list[Case] = []
        for line in CASES.strip().splitlines():
            name, kind, query, labels = (part.strip() for part in line.split("|"))
            made.append((name, partial(self._matches, kind=kind, query=query, labels=labels)))
        others: dict[str, Callable[[Server], Awaitable[None]]] = {
            "_include: what matches refer to": self._include,
            "_revinclude: what refers to matches": self._revinclude,
            "_include:iterate: from what is included": self._iterate,
            "_sort: ascending and descending": self._sort,
            "_count: pages have every match once": self._pages,
            "_total=accurate": self._total,
            "_summary=count": self._count,
            "_elements": self._elements,
            "POST _search": self._posted,
            "_type: a search of several types": self._types,
            "compartment: what belongs to a patient": self._compartment,
            "a value that cannot be read is refused": self._refused,
        }
        return [*made, *others.items()]

    async def _url(self, server: Server, kind: str, query: str) -> str:
        known = await self.prepare(server)
        values = {label: reference.partition("/")[2] for label, reference in known.items()}
        filled = query.format(system=system(server), types=TYPES, loinc=LOINC, ucum=UCUM, run=server.run,
                              base=server.base, **values)  # fmt: skip
        return f"{kind}?{quote(filled, safe='=&%:/$,.|+')}&{server.tag(SET)}"

    async def _matches(self, server: Server, kind: str, query: str, labels: str) -> None:
        found = await matches(server, await self._url(server, kind, query))
        names = {reference: label for label, reference in self._stored.items()}
        equal(sorted(names.get(one, one) for one in found), _wanted(labels))

    async def _page(self, server: Server, kind: str, query: str) -> Json:
        url = await self._url(server, kind, query)
        found: Json = expect(await server.send("GET", url, prefer="handling=strict"), 200, optional=True).body
        return found

    async def _included(self, server: Server, kind: str, query: str, labels: str) -> None:
        found = keys(await self._page(server, kind, query), "include")
        names = {reference: label for label, reference in self._stored.items()}
        equal(sorted(names.get(one, one) for one in found), _wanted(labels))

    async def _include(self, server: Server) -> None:
        await self._included(server, "Observation", "code={loinc}%7C85354-9&_include=Observation:subject", "p1")

    async def _revinclude(self, server: Server) -> None:
        await self._included(server, "Patient", "family=müller&_revinclude=Observation:subject", "o1 o3")

    async def _iterate(self, server: Server) -> None:
        query = "code={loinc}%7C85354-9&_include=Observation:subject&_include:iterate=Patient:organization"
        await self._included(server, "Observation", query, "org1 p1")

    async def _sort(self, server: Server) -> None:
        for sort, wanted in (("date", ["o1", "o2", "o3"]), ("-date", ["o3", "o2", "o1"])):
            found = await self._page(server, "Observation", f"date:missing=false&_sort={sort}")
            names = {reference: label for label, reference in self._stored.items()}
            equal([names.get(one) for one in keys(found, "match")], wanted, sort)

    async def _pages(self, server: Server) -> None:
        found = await matches(server, await self._url(server, "Patient", "_count=1"))
        equal(sorted(found), sorted(one for one in self._stored.values() if one.startswith("Patient/")))

    async def _total(self, server: Server) -> None:
        equal((await self._page(server, "Patient", "_total=accurate&_count=1")).get("total"), 4)

    async def _count(self, server: Server) -> None:
        found = await self._page(server, "Patient", "_summary=count")
        equal((found.get("total"), len(found.get("entry", ()))), (4, 0))

    async def _elements(self, server: Server) -> None:
        found = await self._page(server, "Patient", "_elements=gender")
        held = {name for one in found["entry"] for name in one["resource"]}
        check("gender" in held and "name" not in held, f"the entries have {sorted(held)}")

    async def _posted(self, server: Server) -> None:
        await self.prepare(server)
        form = "application/x-www-form-urlencoded"
        reply = await server.send("POST", "Patient/_search", f"family=smith&{server.tag(SET)}", content_type=form)
        equal(len(keys(expect(reply, 200, optional=True).body, "match")), 2)

    async def _types(self, server: Server) -> None:
        await self.prepare(server)
        reply = await server.send("GET", f"?_type=Patient,Organization&{server.tag(SET)}")
        equal(len(keys(expect(reply, 200, optional=True).body, "match")), 6)

    async def _compartment(self, server: Server) -> None:
        known = await self.prepare(server)
        reply = await server.send("GET", f"{known['p1']}/Observation?{server.tag(SET)}")
        equal(sorted(keys(expect(reply, 200, optional=True).body, "match")), sorted((known["o1"], known["o3"])))

    async def _refused(self, server: Server) -> None:
        await self.prepare(server)
        expect(await server.send("GET", "Patient?birthdate=yesterday", prefer="handling=strict"), 400, 422)
