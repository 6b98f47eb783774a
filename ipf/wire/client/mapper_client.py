"""Client of a remote mapping service (`IPF_MAPPING_URL`): Matchbox, a second ipf, or any service with `$transform`.

Claimed messages arrive.  `POST <url>/StructureMap/$transform` leaves with the message bytes, and the response is the
transaction Bundle.  The request names the map by its canonical; without one the service chooses by message type.  Code
mappings that operators of this engine have entered go with the message, in a Parameters resource.

A service that cannot be reached, is too busy (408, 429, 5xx), refuses the token (401, 403) or answers what is not FHIR
(a proxy in front of it) is Problem UPSTREAM, which a retry may mend.  Every other refusal is Problem MAPPING with the
diagnostics of the OperationOutcome.  Senders are not affected.

Source: interface specification "Ingest rules" 2 and 4; decisions section 1.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any
from urllib.parse import quote

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.hl7.checks import check_message
from ipf.hl7.message import Message
from ipf.ports import Claimed, Json, Mapped, Mapper, UnmappedCode
from ipf.wire.client.remote_service import RemoteService, Response

ER7 = "x-application/hl7-v2+er7"
UNMAPPED_HEADER = "x-ipf-unmapped"
_RETRIED = frozenset((401, 403, 408, 425, 429))
_MAX_DIAGNOSTICS = 300

Codings = Mapping[str, Mapping[str, Json | None]]
CodeMappings = Callable[[Claimed], Awaitable[Codings | None]]
"""Operators' mappings for codes of the message's sender: Coding (None: no target) by ConceptMap URL and code."""

Canonical = Callable[[str], str | None]
"""The canonical of the map for a message type; None: the service chooses."""


class RemoteMapper:
    """`ports.Mapper` over HTTP.  `url`: the FHIR base of the service, such as `http://other:8090/mapping/fhir`.

    `without_patient`: see `check_message`, which looks at each message first: the service need not.
    """

    def __init__(
        self,
        service: RemoteService,
        url: str,
        canonical: Canonical,
        code_mappings: CodeMappings,
        without_patient: Collection[str] = (),
    ) -> None:
        self._without_patient = without_patient
        self._service = service
        self._url = url.rstrip("/") + "/StructureMap/$transform"
        self._canonical = canonical
        self._code_mappings = code_mappings

    def has_map(self, message_type: str) -> bool:
        """True: only the service knows its maps."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle.  Problem UPSTREAM, MAPPING, and those of `check_message`."""
        check_message(Message.parse(message.raw, message.charset or None), self._without_patient)
        canonical = self._canonical(message.message_type)
        url = self._url if canonical is None else f"{self._url}?source={quote(canonical, safe='')}"
        codings = await self._code_mappings(message)
        if codings:
            body, kind = dumps(_parameters(message, codings)), "application/fhir+json"
        else:
            body, kind = message.raw, f"{ER7};charset={message.charset}" if message.charset else ER7
        headers = {"Content-Type": kind, "Accept": "application/fhir+json"}
        response = await self._service.post(url, body, headers, message.correlation_id)
        if response.status != 200:
            raise _refusal(response)
        return Mapped(_bundle(response), canonical or f"{self._url}#{message.message_type}", _unmapped(response))


_: type[Mapper] = RemoteMapper


def _parameters(message: Claimed, codings: Codings) -> Json:
    text = message.raw.decode(message.charset or "utf-8", "replace")
    content = [{"name": "content", "valueString": text}]
    overrides = [{"name": "override", "resource": _concept_map(url, rows)} for url, rows in codings.items()]
    return {"resourceType": "Parameters", "parameter": content + overrides}


def _concept_map(url: str, rows: Mapping[str, Json | None]) -> Json:
    groups = []
    for code, coding in rows.items():
        target = {"equivalence": "unmatched"} if coding is None else {**coding, "equivalence": "equivalent"}
        system = {"target": target.pop("system")} if "system" in target else {}
        groups.append({**system, "element": [{"code": code, "target": [target]}]})
    return {"resourceType": "ConceptMap", "url": url, "status": "active", "group": groups}


def _bundle(response: Response) -> Json:
    try:
        bundle = loads(response.body)
    except Problem as problem:
        raise Problem(Category.UPSTREAM, f"the mapping service answered no JSON: {problem.text}") from problem
    if not isinstance(bundle, dict) or bundle.get("resourceType") != "Bundle":
        raise Problem(Category.MAPPING, "the mapping service did not answer with a Bundle")
    return bundle


def _refusal(response: Response) -> Problem:
    text = f"the mapping service answered {response.status}"
    if response.status >= 500 or response.status in _RETRIED or response.status < 400:
        return Problem(Category.UPSTREAM, text)
    diagnostics = _diagnostics(response.body)
    if diagnostics is None:
        return Problem(Category.UPSTREAM, text)
    return Problem(Category.MAPPING, f"{text}: {diagnostics}" if diagnostics else text)


def _diagnostics(body: bytes) -> str | None:
    """The text of the first issue of an OperationOutcome, shortened; None: the body is none."""
    try:
        issue: Any = loads(body)["issue"][0]
        text = issue.get("diagnostics") or (issue.get("details") or {}).get("text") or ""
    except (Problem, KeyError, IndexError, TypeError, AttributeError):
        return None
    return text[:_MAX_DIAGNOSTICS] if isinstance(text, str) else ""


def _unmapped(response: Response) -> tuple[UnmappedCode, ...]:
    """The codes for which a remote ipf reports no mapping."""
    try:
        codes = json.loads(response.headers[UNMAPPED_HEADER])
        return tuple(UnmappedCode(str(table), str(code)) for table, code in codes)
    except (KeyError, ValueError, TypeError):
        return ()
