"""The mapping service: `/mapping/fhir`, with `$transform` and the maps and tables that are installed.

StructureMap and ConceptMap can be searched (by `url`, `name`, `_id`) and read, whether they came with ipf, in a package
or over HTTP.  What is posted is compiled with everything else before it is accepted, and then in use in every process
without a restart; what does not compile is refused with its place (422) and replaces nothing.  Text in the FHIR Mapping
Language is taken and given as `text/fhir-mapping`.

Maps and tables count for the messages of all tenants, so only the tenant `default`, which is the operator's, may change
them; and a scope that is limited by a search or a patient reaches none of them.

Source: https://hl7.org/fhir/R4/structuremap.html, https://hl7.org/fhir/R4/http.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from time import perf_counter
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import from_json, to_json
from ipf.mapping.library.installation import MAPPING_CHANNEL, Installation, RunInThread
from ipf.mapping.library.maps import SOURCE_TEXT, Library
from ipf.ports import DEFAULT_TENANT, Answer, Handler, Identify, Json, Notifier, Request, Version
from ipf.rest.http.exchange import Observe, resource_body
from ipf.rest.http.formats import media_type, wanted_format
from ipf.rest.http.outcome import refuse
from ipf.rest.http.presentation import PLAIN, split, write
from ipf.rest.http.structure import is_id
from ipf.rest.operations.transform import transform_operation
from ipf.rest.write.permission import check_authenticated
from ipf.security.access import insufficient, required

FML = "text/fhir-mapping"
TYPES = ("StructureMap", "ConceptMap")
_PAGE = 50
_LARGEST_PAGE = 1000
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9.-]+")
_RIGHTS = {("GET", 0): "s", ("POST", 0): "c", ("GET", 1): "r", ("PUT", 1): "u", ("DELETE", 1): "d"}
_CHANGES = frozenset("cud")
_SEARCHED = frozenset(("url", "name", "_id", "_count", "_offset"))


def mapping_handler(
    installation: Installation,
    notifier: Notifier,
    run_in_thread: RunInThread,
    identify: Identify | None = None,
    observe: Observe | None = None,
) -> Handler:
    """Answers every request below `/mapping`, each Problem as an OperationOutcome.

    `identify`: None = authentication is off.  `$transform` asks for the scope to read StructureMap.  `observe`: the
    audit trail, told of each request by its path below `/mapping/fhir`.
    """
    service = MappingService(installation, notifier, run_in_thread)

    async def handle(request: Request) -> Answer:
        began, answer = perf_counter(), Answer(500)
        try:
            if identify is not None:
                request = await identify(request)
            answer = await service.answer(request)
        except Problem as problem:
            answer = refuse(problem)
        finally:
            if observe is not None:
                observe(replace(request, path=request.path[1:]), answer, began)
        return answer

    return handle


class MappingService:
    """The interactions."""

    def __init__(self, installation: Installation, notifier: Notifier, run_in_thread: RunInThread) -> None:
        self._installation = installation
        self._notifier = notifier
        self._run_in_thread = run_in_thread
        self._shelf: Shelf | None = None

    async def answer(self, request: Request) -> Answer:
        """One request.  Problem for what is refused."""
        path, method = request.path, "GET" if request.method == "HEAD" else request.method
        if path == ("fhir", "metadata") and method == "GET":
            return _json(200, _statement())
        check_authenticated(request)
        if len(path) < 2 or path[0] != "fhir" or path[1] not in TYPES or len(path) > 4:
            raise Problem(Category.NOT_FOUND, "there is nothing at this address")
        kind, rest = path[1], path[2:]
        operation = rest[-1:] == ("$transform",)
        right = "r" if operation else _RIGHTS.get((method, len(rest)), "r")
        if required(request.caller, kind, right).test is not None:
            raise insufficient(kind, right)
        if right in _CHANGES and request.tenant != DEFAULT_TENANT:
            raise Problem(Category.FORBIDDEN, f"{kind}s count for all tenants: only {DEFAULT_TENANT} may change them")
        if kind == "StructureMap" and operation:
            return await self._transform(request, method, rest[:-1])
        if len(rest) == 0 and method in ("GET", "POST"):
            if method == "POST":
                return await self._install(request, kind, None)
            found: Answer = await self._run_in_thread(
                lambda: self._search(request, kind)
            )  # which may have to parse every map
            return found
        if len(rest) == 1 and method in ("GET", "PUT", "DELETE"):
            if method == "GET":
                return self._read(request, kind, rest[0])
            return await (self._install(request, kind, rest[0]) if method == "PUT" else self._remove(kind, rest[0]))
        raise Problem(Category.METHOD if len(rest) < 2 else Category.NOT_FOUND, "is not supported here")

    async def _transform(self, request: Request, method: str, rest: tuple[str, ...]) -> Answer:
        if method != "POST":
            raise Problem(Category.METHOD, "$transform is asked with POST")
        canonical = str(self._found("StructureMap", rest[0])["url"]) if rest else ""
        return await transform_operation(request, self._installation, self._run_in_thread, canonical)

    # -- what is installed

    @property
    def shelf(self) -> Shelf:
        """The resources of the maps in use."""
        library = self._installation.library
        if self._shelf is None or self._shelf.library is not library:
            self._shelf = Shelf(library, self._installation)
        return self._shelf

    def _found(self, kind: str, resource_id: str) -> Json:
        found = self.shelf.read(kind, resource_id)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"there is no {kind} with this id")
        return found

    def _read(self, request: Request, kind: str, resource_id: str) -> Answer:
        found = self._found(kind, resource_id)
        if kind == "StructureMap" and media_type(request.headers.get("accept", "")) == FML:
            return Answer(200, _text_of(found).encode(), content_type=f"{FML};charset=utf-8")
        return _presented(request, found)

    def _search(self, request: Request, kind: str) -> Answer:
        plain, _ = split(request)
        wanted = dict(reversed(plain.query))
        unknown = sorted(set(wanted) - _SEARCHED)
        if unknown:
            raise Problem(Category.VALUE, f"{kind} is searched by url, name and _id, not by {unknown[0][:60]}")
        found = [(id_, url) for id_, url in self.shelf.all(kind) if self._matches(kind, id_, url, wanted)]
        start, count = _number(wanted, "_offset", 0), min(_number(wanted, "_count", _PAGE), _LARGEST_PAGE)
        base = f"{request.base_url}/fhir/{kind}"
        entries = [
            {"fullUrl": f"{base}/{id_}", "resource": self.shelf.read(kind, id_), "search": {"mode": "match"}}
            for id_, _ in found[start : start + count]
        ]
        bundle: Json = {"resourceType": "Bundle", "type": "searchset", "total": len(found)}
        return _presented(request, bundle | ({"entry": entries} if entries else {}))

    def _matches(self, kind: str, resource_id: str, url: str, wanted: Mapping[str, str]) -> bool:
        if wanted.get("_id", resource_id) != resource_id:
            return False
        asked, _, version = wanted.get("url", "").partition("|")
        if asked and asked != url:
            return False
        if not version and "name" not in wanted:
            return True
        resource = self.shelf.read(kind, resource_id) or {}
        named = str(resource.get("name", "")).lower().startswith(wanted.get("name", "").lower())
        return named and (not version or resource.get("version") == version)

    # -- what is installed over HTTP

    async def _install(self, request: Request, kind: str, resource_id: str | None) -> Answer:
        resource = _posted(request, kind)
        url = resource.get("url")
        if not isinstance(url, str) or not url.strip() or "|" in url:
            raise Problem(Category.REQUIRED, f"a {kind} needs a url", f"{kind}.url")
        if resource_id is None:
            resource_id = self.shelf.id_of(kind, url)
        self._check_id(kind, resource_id, url, resource)
        kept = await self._installation.install(kind, url, resource_id, resource)
        self._notifier.notify(MAPPING_CHANNEL)
        location = ("Location", f"{request.base_url}/fhir/{kind}/{kept.id}")
        answer = _json(201 if kept.version == 1 else 200, self._found(kind, kept.id), location)
        return replace(answer, about=(Version(0, kind, kept.id, kept.version, kept.updated_at, b""),))

    def _check_id(self, kind: str, resource_id: str, url: str, resource: Json) -> None:
        if not is_id(resource_id):
            raise Problem(Category.VALUE, "no resource can have this id", f"{kind}.id")
        resource.pop("id", None)
        for one in self._installation.installed:
            if one.resource_type == kind and one.id == resource_id and one.url != url:
                raise Problem(Category.BUSINESS_RULE, f"{kind}/{one.id} is that of {one.url}", f"{kind}.url")

    async def _remove(self, kind: str, resource_id: str) -> Answer:
        await self._installation.remove(kind, resource_id)
        self._notifier.notify(MAPPING_CHANNEL)
        return Answer(204, b"", (), "")


class Shelf:
    """The resources of one library by type and id."""

    def __init__(self, library: Library, installation: Installation) -> None:
        self.library = library
        self._installed = {(one.resource_type, one.url): one for one in installation.installed}
        self._urls: dict[str, dict[str, str]] = {kind: {} for kind in TYPES}
        tables = [*library.tables.resources, *(one.url for one in library.packages.newest("ConceptMap"))]
        for kind, urls in (("StructureMap", library.maps), ("ConceptMap", tables)):
            for url in urls:
                self._urls[kind][self.id_of(kind, url)] = url

    def id_of(self, kind: str, url: str) -> str:
        """The id of a canonical: of what was installed its own, else its last part, made unique."""
        installed = self._installed.get((kind, url))
        if installed is not None:
            return installed.id
        plain = _NOT_IN_IDS.sub("-", re.split(r"[/:]", url.rstrip("/"))[-1]).strip("-")[:50] or kind
        return plain if self._urls[kind].get(plain, url) == url else f"{plain}-{sha256(url.encode()).hexdigest()[:12]}"

    def all(self, kind: str) -> Iterator[tuple[str, str]]:
        """Ids and canonicals, in order of the canonicals."""
        yield from sorted(self._urls[kind].items(), key=lambda one: one[1])

    def read(self, kind: str, resource_id: str) -> Json | None:
        """The resource."""
        url = self._urls[kind].get(resource_id)
        if url is None:
            return None
        installed = self._installed.get((kind, url))
        if installed is not None:
            meta = {"versionId": str(installed.version), "lastUpdated": installed.updated_at.isoformat()}
            return {**installed.resource, "id": resource_id, "meta": {**installed.resource.get("meta", {}), **meta}}
        if kind == "ConceptMap" and url in self.library.tables.resources:
            return {**self.library.tables.resources[url], "id": resource_id}
        entry = self.library.packages.find(url, kind)
        if entry is not None and (kind == "ConceptMap" or self.library.maps[url].file == entry.place):
            return {**entry.resource(), "id": resource_id}
        made = to_json(self.library.maps[url])
        return {"resourceType": made.pop("resourceType"), "id": resource_id, **made}


def _posted(request: Request, kind: str) -> Json:
    """The resource in the body; a text becomes one, and keeps its lines."""
    content_type = media_type(request.headers.get("content-type") or "")
    if kind == "StructureMap" and content_type in (FML, "text/plain"):
        try:
            text = request.body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Problem(Category.MALFORMED, f"is not UTF-8 at byte {error.start}") from None
        resource = to_json(parse(text, "map"))
        resource.setdefault("extension", []).append({"url": SOURCE_TEXT, "valueString": text})
        return resource
    return resource_body(request, kind)


def _text_of(resource: Json) -> str:
    for one in resource.get("extension", ()):
        if one.get("url") == SOURCE_TEXT:
            return str(one["valueString"])
    return print_map(from_json(resource))


def _presented(request: Request, resource: Any) -> Answer:
    form = wanted_format(request)
    _, look = split(request)
    return write(_json(200, resource), look or PLAIN, form)


def _json(status: int, resource: Json, *headers: tuple[str, str]) -> Answer:
    return Answer(status, dumps(resource), headers)


def _number(wanted: Mapping[str, str], name: str, default: int) -> int:
    text = wanted.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Problem(Category.VALUE, f"{name} must be a whole number", name)
    return int(text)


def _statement() -> Json:
    """The CapabilityStatement of this service."""
    interactions = [{"code": code} for code in ("read", "search-type", "create", "update", "delete")]
    url = {"name": "url", "type": "uri"}
    resources: list[Json] = [{"type": kind, "interaction": interactions, "searchParam": [url]} for kind in TYPES]
    definition = "http://hl7.org/fhir/OperationDefinition/StructureMap-transform"
    resources[0]["operation"] = [{"name": "transform", "definition": definition}]
    return {
        "resourceType": "CapabilityStatement",
        "status": "active",
        "date": "2026-01-01",
        "kind": "instance",
        "fhirVersion": "4.0.1",
        "format": ["application/fhir+json", "application/fhir+xml", FML],
        "rest": [{"mode": "server", "resource": resources}],
    }
