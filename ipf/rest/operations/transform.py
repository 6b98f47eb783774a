"""`StructureMap/$transform`: transforms one source with one map; nothing is stored.

Input: a source as FHIR JSON or XML, JSON of a logical model, an HL7 v2 message (ER7), or in a Parameters resource,
which may also contain maps.  Output: the target of the map; with `trace=true` also the trace.  Failures are Problems;
an error in a map has file, line and column.

The map is `source=<canonical>`, or the StructureMap in the path; for a message without either, the message type selects
it.  The header `X-Ipf-Unmapped` contains unmapped codes (JSON: pairs of ConceptMap and code), so that a remote engine
can queue them.

Source: https://hl7.org/fhir/R4/structuremap-operation-transform.html, interface specification "Mapping service".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ipf.errors import Category, Issue, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.xml.writer import from_xml
from ipf.hl7.checks import check_message
from ipf.hl7.message import Message
from ipf.mapping.bundle.transaction import Transaction
from ipf.mapping.language.concepts import Overrides, Table
from ipf.mapping.language.model import StructureMap
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.mapping.library.maps import Library, MappingResult, message_key
from ipf.mapping.library.mapset import read_map, source_key, transform
from ipf.mapping.library.service import result_json
from ipf.ports import DEFAULT_TENANT, Answer, Json, Request
from ipf.ports.threads import run_by_size
from ipf.rest.http.formats import Format, is_fhir, media_type, sent_format

ER7_TYPES = frozenset(
    ("x-application/hl7-v2+er7", "application/hl7-v2+er7", "application/hl7-v2", "x-application/hl7-v2", "text/hl7v2")
)
UNMAPPED_HEADER = "X-Ipf-Unmapped"
_MAX_UNMAPPED = 50
_LARGE = 64 * 1024  # a larger source is mapped in a thread
_MAP_NAMES = frozenset(("map", "sourceMap", "srcMap", "supportingMap"))
_CONTENT_NAMES = frozenset(("content", "resource"))


@dataclass(slots=True)
class TransformRequest:
    """A transform request.  `maps`: the maps in the request; the first one runs.

    `overrides`: translations by ConceptMap and code that override every table.
    """

    source: Json | Message | None = None
    canonical: str = ""
    maps: list[StructureMap] = field(default_factory=list)
    overrides: list[tuple[str, str, Json | None]] = field(default_factory=list)


async def transform_operation(
    request: Request, installation: Installation, run_in_thread: RunInThread, canonical: str = ""
) -> Answer:
    """The response of the operation; `canonical`: of the map in the path."""
    query = dict(reversed(request.query))
    unknown = sorted(set(query) - {"source", "trace", "_format", "_pretty"})
    if unknown:
        raise Problem(Category.VALUE, f"$transform has no parameter {unknown[0][:60]}", unknown[0][:60])
    trace = query.get("trace", "false")
    if trace not in ("true", "false"):
        raise Problem(Category.VALUE, "trace must be true or false", "trace")
    transform_request = await run_by_size(len(request.body), run_in_thread, lambda: _read_request(request))
    transform_request.canonical = canonical or query.get("source", "") or transform_request.canonical
    result = await _run(transform_request, installation, run_in_thread, trace == "true", len(request.body))
    return _response(result, installation.library, trace == "true")


async def _run(
    transform_request: TransformRequest, installation: Installation, run_in_thread: RunInThread, trace: bool, size: int
) -> MappingResult:
    library = installation.library
    source = transform_request.source
    if source is None:
        raise Problem(Category.REQUIRED, "the source is missing: send it as the body, or as parameter 'content'")

    def work() -> MappingResult:
        return _transformed(transform_request, source, library, installation, trace)

    ready = (
        not transform_request.maps and not trace and size < _LARGE and _is_compiled(transform_request, source, library)
    )
    try:
        return work() if ready else await run_in_thread(work)
    except Problem as problem:
        raise _with_location_in_text(problem) from problem


def _is_compiled(transform_request: TransformRequest, source: Json | Message, library: Library) -> bool:
    if transform_request.canonical:
        return library.is_compiled(transform_request.canonical)
    return not isinstance(source, Message) or library.is_ready(source.message_type)


def _transformed(
    transform_request: TransformRequest,
    source: Json | Message,
    library: Library,
    installation: Installation,
    trace: bool,
) -> MappingResult:
    if transform_request.maps:
        library = library.with_more(transform_request.maps)
        program = library.program(transform_request.canonical or transform_request.maps[0].url)
    elif transform_request.canonical:
        program = library.program(transform_request.canonical)
    elif isinstance(source, Message):
        program = library.program_for(source.message_type)
    else:
        raise Problem(Category.REQUIRED, "the map is missing: source=<canonical URL of a StructureMap>", "source")
    key, overrides = source_key(source), None
    if isinstance(source, Message):
        check_message(source, library.environment.without_patient)
        header = source.header
        key = message_key(DEFAULT_TENANT, header.source_system, header.source_id)
        overrides = installation.overrides_for(DEFAULT_TENANT, header.source_system)
    if transform_request.overrides:
        overrides = Overrides(transform_request.overrides)
    environment = library.environment
    result = transform(
        program,
        source,
        key=key,
        trace=trace,
        overrides=overrides,
        table=environment.identity,
        offset=environment.offset,
    )
    target = Transaction(result.target)
    target.entries = result.entries
    return MappingResult(
        target,
        result.map_url,
        result.unmapped,
        result.warnings,
        result.logs,
        result.steps,
        result.milliseconds,
        result.findings,
    )


def _with_location_in_text(problem: Problem) -> Problem:
    """The problem of a map, with its location also in the text."""
    if problem.category not in (Category.MAPPING, Category.COSTLY) or problem.place is None:
        return problem
    return Problem(problem.category, problem.text, problem.place, issues=(Issue(str(problem), problem.place),))


def _response(result: MappingResult, library: Library, trace: bool) -> Answer:
    if trace:
        return Answer(200, dumps(result_json(result)), content_type="application/json")
    unmapped = [(one.concept_map, one.code) for one in library.unmapped_codes(result.unmapped)[:_MAX_UNMAPPED]]
    headers = [(UNMAPPED_HEADER, json.dumps(unmapped))] if unmapped else []
    is_resource = "resourceType" in result.bundle
    return Answer(200, dumps(result.bundle), headers, Format.JSON.value if is_resource else "application/json")


# ---------------------------------------------------------------------------------------------------------- read


def _read_request(request: Request) -> TransformRequest:
    content_type = request.headers.get("content-type") or "application/fhir+json"
    if media_type(content_type) in ER7_TYPES:
        return TransformRequest(_message(request.body, _charset(content_type)))
    if not is_fhir(content_type):
        kinds = "application/fhir+json, application/fhir+xml or x-application/hl7-v2+er7"
        raise Problem(Category.MEDIA_TYPE, f"send {kinds}, not {media_type(content_type)[:100]}")
    body = from_xml(request.body) if sent_format(content_type) is Format.XML else loads(request.body)
    if not isinstance(body, dict):
        raise Problem(Category.MALFORMED, "the body must be one JSON object")
    names = {part.get("name") for part in body.get("parameter", ()) if isinstance(part, dict)}
    if body.get("resourceType") == "Parameters" and names & (_MAP_NAMES | _CONTENT_NAMES):
        return _of_parameters(body)
    return TransformRequest(body)


def _charset(content_type: str) -> str | None:
    for part in content_type.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    return None


def _message(raw: bytes, charset: str | None) -> Message:
    """A message, with or without its MLLP frame."""
    if raw.startswith(b"\x0b"):
        raw = raw[1:].removesuffix(b"\r").removesuffix(b"\x1c")
    return Message.parse(raw, charset)


def _of_parameters(body: Json) -> TransformRequest:
    transform_request = TransformRequest()
    for number, part in enumerate(body["parameter"]):
        place = f"Parameters.parameter[{number}]"
        name, value = part.get("name"), _value(part, place)
        if name in _MAP_NAMES:
            one = _map(value, place)
            transform_request.maps.insert(0 if name != "supportingMap" else len(transform_request.maps), one)
        elif name in _CONTENT_NAMES:
            transform_request.source = _content(value, place)
        elif name == "override" and isinstance(value, dict):
            transform_request.overrides += _overrides(value)
        elif name == "source" and isinstance(value, str):
            transform_request.canonical = value
        else:
            raise Problem(Category.VALUE, f"$transform has no such parameter: {str(name)[:60]}", place)
    return transform_request


def _overrides(table: Json) -> Iterator[tuple[str, str, Json | None]]:
    """The rows of a ConceptMap; a code without a match has no target."""
    url = str(table.get("url", ""))
    for group in table.get("group", ()):
        rows = Table({"group": [group]}).results("Coding")
        for element in group.get("element", ()):
            code = str(element.get("code", ""))
            yield url, code, rows.get(code)


def _value(part: Json, place: str) -> Any:
    values = [value for key, value in part.items() if key == "resource" or key.startswith("value")]
    if len(values) != 1 or not isinstance(values[0], str | dict):
        raise Problem(Category.VALUE, "a parameter must have one value: a resource or a string", place)
    return values[0]


def _map(value: Any, place: str) -> StructureMap:
    """A StructureMap resource, or the text of a map."""
    return read_map(value, place)


def _content(value: Any, place: str) -> Json | Message:
    if isinstance(value, dict):
        return value
    if value.startswith("MSH"):
        return _message(value.encode(), "utf-8")
    content = loads(value)
    if not isinstance(content, dict):
        raise Problem(Category.VALUE, "content must be a resource, a JSON object or an HL7 v2 message", place)
    return content
