"""The mapping service: `/mapping/fhir`, with `$transform`, StructureMaps, ConceptMaps and StructureDefinitions.

These three support search (by `url`, `name`, `_id`) and read, whatever their origin: ipf, a package or HTTP.  A posted
map, table or logical model is compiled with all others before it is accepted, and then used by every process without a
restart.  What does not compile is refused with its location (422).  FHIR Mapping Language text has the type
`text/fhir-mapping`.

Maps apply to the messages of all tenants, so only the tenant `default`, which is the operator's, may change them.  A
scope that is limited by a search or a patient gives no access.

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
from ipf.fhir.structure.check import check_formats
from ipf.fhir.structure.primitives import is_id
from ipf.mapping.language.grammar import parse
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import from_json, to_json
from ipf.mapping.library.installation import MAPPING_CHANNEL, Installation, RunInThread
from ipf.mapping.library.installed_maps import SOURCE_TEXT
from ipf.mapping.library.maps import Library
from ipf.mapping.library.trials import Trial
from ipf.ports import DEFAULT_TENANT, Answer, Handler, Identify, Json, Notifier, Request, Version
from ipf.ports.threads import run_by_size
from ipf.rest.http.exchange import Observe, resource_body
from ipf.rest.http.formats import media_type, wanted_format
from ipf.rest.http.outcome import refuse
from ipf.rest.http.presentation import DEFAULT_PRESENTATION, render, split_presentation
from ipf.rest.operations.transform import transform_operation
from ipf.rest.write.permission import check_authenticated
from ipf.security.access import granted_or_refused, insufficient

FML = "text/fhir-mapping"
TYPES = ("StructureMap", "ConceptMap", "StructureDefinition")
_PAGE_SIZE = 50
_MAX_PAGE_SIZE = 1000
_INVALID_ID_CHARACTERS = re.compile(r"[^A-Za-z0-9.-]+")
_RIGHTS = {("GET", 0): "s", ("POST", 0): "c", ("GET", 1): "r", ("PUT", 1): "u", ("DELETE", 1): "d"}
_CHANGES = frozenset("cud")
_SEARCHED = frozenset(("url", "name", "_id", "_count", "_offset"))


def mapping_handler(
    installation: Installation,
    notifier: Notifier,
    run_in_thread: RunInThread,
    identify: Identify | None = None,
    observe: Observe | None = None,
    apart: Trial | None = None,
) -> Handler:
    """The handler of requests below `/mapping`; a Problem becomes an OperationOutcome.

    `identify`: None = authentication is off.  `$transform` requires the scope to read StructureMap.  `observe`: the
    audit trail; it gets paths below `/mapping/fhir`.  `apart`: see `transform_operation`.
    """
    service = MappingService(installation, notifier, run_in_thread, apart)

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
    """The interactions of the mapping service."""

    def __init__(
        self, installation: Installation, notifier: Notifier, run_in_thread: RunInThread, apart: Trial | None = None
    ) -> None:
        self._apart = apart
        self._installation = installation
        self._notifier = notifier
        self._run_in_thread = run_in_thread
        self._resources: InstalledResources | None = None

    async def answer(self, request: Request) -> Answer:
        """Handle one request.  Raises Problem."""
        path, method = request.path, "GET" if request.method == "HEAD" else request.method
        if path == ("fhir", "metadata") and method == "GET":
            return _json(200, _statement())
        check_authenticated(request)
        if len(path) < 2 or path[0] != "fhir" or path[1] not in TYPES or len(path) > 4:
            raise Problem(Category.NOT_FOUND, "this URL does not exist")
        kind, rest = path[1], path[2:]
        operation = rest[-1:] == ("$transform",)
        right = "r" if operation else _RIGHTS.get((method, len(rest)), "r")
        if granted_or_refused(request.caller, kind, right).test is not None:
            raise insufficient(kind, right)
        if right in _CHANGES and request.tenant != DEFAULT_TENANT:
            raise Problem(Category.FORBIDDEN, f"{kind}s apply to all tenants: only {DEFAULT_TENANT} may change them")
        if kind == "StructureMap" and operation:
            return await self._transform(request, method, rest[:-1])
        if len(rest) == 0 and method in ("GET", "POST"):
            if method == "POST":
                return await self._install(request, kind, None)
            found: Answer = await self._run_in_thread(lambda: self._search(request, kind))  # it may parse every map
            return found
        if len(rest) == 1 and method in ("GET", "PUT", "DELETE"):
            if method == "GET":
                return self._read(request, kind, rest[0])
            return await (self._install(request, kind, rest[0]) if method == "PUT" else self._remove(kind, rest[0]))
        raise Problem(
            Category.METHOD if len(rest) < 2 else Category.NOT_FOUND, "the method is not supported for this URL"
        )

    async def _transform(self, request: Request, method: str, rest: tuple[str, ...]) -> Answer:
        if method != "POST":
            raise Problem(Category.METHOD, "$transform requires POST")
        canonical = str(self._resource("StructureMap", rest[0])["url"]) if rest else ""
        return await transform_operation(request, self._installation, self._run_in_thread, canonical, self._apart)

    # -- reading

    @property
    def resources(self) -> InstalledResources:
        """The resources of the current library."""
        library = self._installation.library
        if self._resources is None or self._resources.library is not library:
            self._resources = InstalledResources(library, self._installation)
        return self._resources

    def _resource(self, kind: str, resource_id: str) -> Json:
        found = self.resources.read(kind, resource_id)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"there is no {kind} with this id")
        return found

    def _read(self, request: Request, kind: str, resource_id: str) -> Answer:
        found = self._resource(kind, resource_id)
        if kind == "StructureMap" and media_type(request.headers.get("accept", "")) == FML:
            return Answer(200, _text_of(found).encode(), content_type=f"{FML};charset=utf-8")
        return _response(request, found)

    def _search(self, request: Request, kind: str) -> Answer:
        plain, _ = split_presentation(request)
        parameters = dict(reversed(plain.query))
        unknown = sorted(set(parameters) - _SEARCHED)
        if unknown:
            raise Problem(Category.VALUE, f"{kind} supports search by url, name and _id, not by {unknown[0][:60]}")
        found = [(id_, url) for id_, url in self.resources.all(kind) if self._matches(kind, id_, url, parameters)]
        start, count = _number(parameters, "_offset", 0), min(_number(parameters, "_count", _PAGE_SIZE), _MAX_PAGE_SIZE)
        base = f"{request.base_url}/fhir/{kind}"
        entries = [
            {"fullUrl": f"{base}/{id_}", "resource": self.resources.read(kind, id_), "search": {"mode": "match"}}
            for id_, _ in found[start : start + count]
        ]
        bundle: Json = {"resourceType": "Bundle", "type": "searchset", "total": len(found)}
        return _response(request, bundle | ({"entry": entries} if entries else {}))

    def _matches(self, kind: str, resource_id: str, url: str, parameters: Mapping[str, str]) -> bool:
        if parameters.get("_id", resource_id) != resource_id:
            return False
        requested_url, _, version = parameters.get("url", "").partition("|")
        if requested_url and requested_url != url:
            return False
        if not version and "name" not in parameters:
            return True
        resource = self.resources.read(kind, resource_id) or {}
        named = str(resource.get("name", "")).lower().startswith(parameters.get("name", "").lower())
        return named and (not version or resource.get("version") == version)

    # -- installing

    async def _install(self, request: Request, kind: str, resource_id: str | None) -> Answer:
        size = len(request.body)
        resource = await run_by_size(size, self._run_in_thread, lambda: _resource_in_body(request, kind))
        check_formats(resource)
        url = resource.get("url")
        if not isinstance(url, str) or not url.strip() or "|" in url:
            raise Problem(Category.REQUIRED, f"a {kind} needs a url", f"{kind}.url")
        if resource_id is None:
            resource_id = self.resources.id_of(kind, url)
        self._check_id(kind, resource_id, url, resource)
        installed = await self._installation.install(kind, url, resource_id, resource)
        self._notifier.notify(MAPPING_CHANNEL)
        location = ("Location", f"{request.base_url}/fhir/{kind}/{installed.id}")
        answer = _json(201 if installed.version == 1 else 200, self._resource(kind, installed.id), location)
        return replace(answer, about=(Version(0, kind, installed.id, installed.version, installed.updated_at, b""),))

    def _check_id(self, kind: str, resource_id: str, url: str, resource: Json) -> None:
        if not is_id(resource_id):
            raise Problem(Category.VALUE, "this is not a valid resource id", f"{kind}.id")
        resource.pop("id", None)
        for one in self._installation.installed:
            if one.resource_type == kind and one.id == resource_id and one.url != url:
                raise Problem(Category.BUSINESS_RULE, f"{kind}/{one.id} is used by {one.url}", f"{kind}.url")

    async def _remove(self, kind: str, resource_id: str) -> Answer:
        await self._installation.remove(kind, resource_id)
        self._notifier.notify(MAPPING_CHANNEL)
        return Answer(204, b"", (), "")


class InstalledResources:
    """The resources of one library by type and id."""

    def __init__(self, library: Library, installation: Installation) -> None:
        self.library = library
        self._installed = {(one.resource_type, one.url): one for one in installation.installed}
        self._urls: dict[str, dict[str, str]] = {kind: {} for kind in TYPES}
        structure_maps = [*library.maps, *(url for kind, url in self._installed if kind == "StructureMap")]
        tables = [*library.tables.resources, *(one.url for one in library.packages.newest("ConceptMap"))]
        models = [*library.definitions, *(one.url for one in library.packages.newest("StructureDefinition"))]
        for kind, urls in (("StructureMap", structure_maps), ("ConceptMap", tables), ("StructureDefinition", models)):
            for url in dict.fromkeys(urls):
                self._urls[kind][self.id_of(kind, url)] = url

    def id_of(self, kind: str, url: str) -> str:
        """The id of a canonical URL: the installed id, else the last part of the URL, made unique."""
        installed = self._installed.get((kind, url))
        if installed is not None:
            return installed.id
        plain = _INVALID_ID_CHARACTERS.sub("-", re.split(r"[/:]", url.rstrip("/"))[-1]).strip("-")[:50] or kind
        return plain if self._urls[kind].get(plain, url) == url else f"{plain}-{sha256(url.encode()).hexdigest()[:12]}"

    def all(self, kind: str) -> Iterator[tuple[str, str]]:
        """Ids and canonical URLs, ordered by URL."""
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
        if entry is not None and (kind != "StructureMap" or self.library.maps[url].file == entry.place):
            return {**entry.resource(), "id": resource_id}
        made = to_json(self.library.maps[url])
        return {"resourceType": made.pop("resourceType"), "id": resource_id, **made}


def _resource_in_body(request: Request, kind: str) -> Json:
    """The resource in the body; a map text is converted, and kept in an extension."""
    content_type = media_type(request.headers.get("content-type") or "")
    if kind == "StructureMap" and content_type in (FML, "text/plain"):
        try:
            text = request.body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Problem(Category.MALFORMED, f"the text is not UTF-8 at byte {error.start}") from None
        resource = to_json(parse(text, "map"))
        resource.setdefault("extension", []).append({"url": SOURCE_TEXT, "valueString": text})
        return resource
    return resource_body(request, kind)


def _text_of(resource: Json) -> str:
    for one in resource.get("extension", ()):
        if one.get("url") == SOURCE_TEXT:
            return str(one["valueString"])
    return print_map(from_json(resource))


def _response(request: Request, resource: Any) -> Answer:
    form = wanted_format(request)
    _, presentation = split_presentation(request)
    return render(_json(200, resource), presentation or DEFAULT_PRESENTATION, form)


def _json(status: int, resource: Json, *headers: tuple[str, str]) -> Answer:
    return Answer(status, dumps(resource), headers)


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    text = parameters.get(name, str(default))
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
