"""`StructureMap/$transform`: one source through one map, and nothing is stored.

What arrives: a source as FHIR JSON or XML, as JSON of a logical model, as an HL7 v2 message in its own encoding (ER7),
or all of it in a Parameters resource, which may bring maps of its own.  What leaves: what the map made; with
`trace=true` also how that came to be.  Failures are Problems: what is wrong with a map names file, line and column.

The map is `source=<canonical>`, or that of the StructureMap in the path; for a message it may be left out, then its
type chooses.  Codes that no ConceptMap had stand in the header `X-Ipf-Unmapped` (JSON: pairs of ConceptMap and code),
so that an engine elsewhere can queue them.

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
from ipf.hl7.message import Message
from ipf.mapping.bundle.transaction import Transaction
from ipf.mapping.language.concepts import Overrides, Table
from ipf.mapping.language.model import StructureMap
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.mapping.library.maps import Library, MappingResult, message_key
from ipf.mapping.library.mapset import read_map, source_key, transform
from ipf.mapping.library.service import result_json
from ipf.ports import DEFAULT_TENANT, Answer, Json, Request
from ipf.rest.http.formats import Format, is_fhir, media_type, sent_format

ER7_TYPES = frozenset(
    ("x-application/hl7-v2+er7", "application/hl7-v2+er7", "application/hl7-v2", "x-application/hl7-v2", "text/hl7v2")
)
UNMAPPED_HEADER = "X-Ipf-Unmapped"
_MOST_UNMAPPED = 50
_LARGE = 64 * 1024  # a larger source is mapped in a thread
_MAP_NAMES = frozenset(("map", "sourceMap", "srcMap", "supportingMap"))
_CONTENT_NAMES = frozenset(("content", "resource"))


@dataclass(slots=True)
class Wanted:
    """What is to be transformed.  `maps`: those that the request brought; the first is the one to run.

    `overrides`: answers for codes, by ConceptMap and code, that go before every table.
    """

    source: Json | Message | None = None
    canonical: str = ""
    maps: list[StructureMap] = field(default_factory=list)
    overrides: list[tuple[str, str, Json | None]] = field(default_factory=list)


async def transform_operation(
    request: Request, installation: Installation, run_in_thread: RunInThread, canonical: str = ""
) -> Answer:
    """The answer of the operation; `canonical`: the map that the path names."""
    query = dict(reversed(request.query))
    unknown = sorted(set(query) - {"source", "trace", "_format", "_pretty"})
    if unknown:
        raise Problem(Category.VALUE, f"$transform has no parameter {unknown[0][:60]}", unknown[0][:60])
    trace = query.get("trace", "false")
    if trace not in ("true", "false"):
        raise Problem(Category.VALUE, "trace must be true or false", "trace")
    wanted = _wanted(request)
    wanted.canonical = canonical or query.get("source", "") or wanted.canonical
    result = await _run(wanted, installation, run_in_thread, trace == "true", len(request.body))
    return _answer(result, installation.library, trace == "true")


async def _run(
    wanted: Wanted, installation: Installation, run_in_thread: RunInThread, trace: bool, size: int
) -> MappingResult:
    library = installation.library
    source = wanted.source
    if source is None:
        raise Problem(Category.REQUIRED, "there is nothing to transform: send it as body, or as parameter 'content'")

    def work() -> MappingResult:
        return _transformed(wanted, source, library, installation, trace)

    ready = not wanted.maps and not trace and size < _LARGE and _is_compiled(wanted, source, library)
    try:
        return work() if ready else await run_in_thread(work)
    except Problem as problem:
        raise _placed(problem) from problem


def _is_compiled(wanted: Wanted, source: Json | Message, library: Library) -> bool:
    if wanted.canonical:
        return library.is_compiled(wanted.canonical)
    return not isinstance(source, Message) or library.is_ready(source.message_type)


def _transformed(
    wanted: Wanted, source: Json | Message, library: Library, installation: Installation, trace: bool
) -> MappingResult:
    if wanted.maps:
        library = library.with_more(wanted.maps)
        program = library.program(wanted.canonical or wanted.maps[0].url)
    elif wanted.canonical:
        program = library.program(wanted.canonical)
    elif isinstance(source, Message):
        program = library.program_for(source.message_type)
    else:
        raise Problem(Category.REQUIRED, "name the map: source=<canonical of a StructureMap>", "source")
    key, overrides = source_key(source), None
    if isinstance(source, Message):
        header = source.header
        key = message_key(DEFAULT_TENANT, header.source_system, header.source_id)
        overrides = installation.overrides_for(DEFAULT_TENANT, header.source_system)
    if wanted.overrides:
        overrides = Overrides(wanted.overrides)
    made = transform(program, source, key=key, trace=trace, overrides=overrides)
    target = Transaction(made.target)
    return MappingResult(target, made.map_url, made.unmapped, made.warnings, made.logs, made.steps, made.milliseconds)


def _placed(problem: Problem) -> Problem:
    """The text of a mistake in a map says where it is, also for those who show only the text."""
    if problem.category is not Category.MAPPING or problem.place is None:
        return problem
    return Problem(problem.category, problem.text, problem.place, issues=(Issue(str(problem), problem.place),))


def _answer(result: MappingResult, library: Library, trace: bool) -> Answer:
    if trace:
        return Answer(200, dumps(result_json(result)), content_type="application/json")
    unmapped = [(one.concept_map, one.code) for one in library.unmapped_codes(result.unmapped)[:_MOST_UNMAPPED]]
    headers = [(UNMAPPED_HEADER, json.dumps(unmapped))] if unmapped else []
    is_resource = "resourceType" in result.bundle
    return Answer(200, dumps(result.bundle), headers, Format.JSON.value if is_resource else "application/json")


# ---------------------------------------------------------------------------------------------------------- read


def _wanted(request: Request) -> Wanted:
    content_type = request.headers.get("content-type") or "application/fhir+json"
    if media_type(content_type) in ER7_TYPES:
        return Wanted(_message(request.body, _charset(content_type)))
    if not is_fhir(content_type):
        kinds = "application/fhir+json, application/fhir+xml or x-application/hl7-v2+er7"
        raise Problem(Category.MEDIA_TYPE, f"send {kinds}, not {media_type(content_type)[:100]}")
    body = from_xml(request.body) if sent_format(content_type) is Format.XML else loads(request.body)
    if not isinstance(body, dict):
        raise Problem(Category.MALFORMED, "the body must be one JSON object")
    names = {part.get("name") for part in body.get("parameter", ()) if isinstance(part, dict)}
    if body.get("resourceType") == "Parameters" and names & (_MAP_NAMES | _CONTENT_NAMES):
        return _of_parameters(body)
    return Wanted(body)


def _charset(content_type: str) -> str | None:
    for part in content_type.split(";")[1:]:
        name, _, value = part.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"') or None
    return None


def _message(raw: bytes, charset: str | None) -> Message:
    """A message, also in its MLLP frame."""
    if raw.startswith(b"\x0b"):
        raw = raw[1:].removesuffix(b"\r").removesuffix(b"\x1c")
    return Message.parse(raw, charset)


def _of_parameters(body: Json) -> Wanted:
    wanted = Wanted()
    for number, part in enumerate(body["parameter"]):
        place = f"Parameters.parameter[{number}]"
        name, value = part.get("name"), _value(part, place)
        if name in _MAP_NAMES:
            one = _map(value, place)
            wanted.maps.insert(0 if name != "supportingMap" else len(wanted.maps), one)
        elif name in _CONTENT_NAMES:
            wanted.source = _content(value, place)
        elif name == "override" and isinstance(value, dict):
            wanted.overrides += _overrides(value)
        elif name == "source" and isinstance(value, str):
            wanted.canonical = value
        else:
            raise Problem(Category.VALUE, f"$transform has no such parameter: {str(name)[:60]}", place)
    return wanted


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
        raise Problem(Category.VALUE, "must have one value: a resource, or a text", place)
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
        raise Problem(Category.VALUE, "must be a resource, JSON of an object, or an HL7 v2 message", place)
    return content
