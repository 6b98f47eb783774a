"""The mapping service elsewhere (`IPF_MAPPING_URL`): Matchbox, a second ipf, or whatever offers `$transform`.

What arrives: claimed messages.  What leaves: `POST <url>/StructureMap/$transform` with the message as it came, and the
transaction Bundle that was answered.  The map is named by its canonical; without one the far end chooses by type.  What
operators of this engine answered for codes of the sender goes with the message (then as a Parameters resource).

A service that cannot be reached, is too busy (408, 429, 5xx) or refuses the token (401, 403) is Problem UPSTREAM; every
other refusal is MAPPING with what the OperationOutcome says.  Either way the row is tried again with backoff; a sender
never learns of it.

Source: interface specification "Ingest rules" 2 and 4; decisions section 1.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps, loads
from ipf.ports import Claimed, Json, Mapped, Mapper, UnmappedCode
from ipf.wire.client.fhir_service import Remote, Reply

ER7 = "x-application/hl7-v2+er7"
UNMAPPED_HEADER = "x-ipf-unmapped"
_LATER = frozenset((401, 403, 408, 425, 429))
_LONGEST = 300

Codings = Mapping[str, Mapping[str, Json | None]]
CodeAnswers = Callable[[Claimed], Awaitable[Codings | None]]
"""What operators answered for codes of a message's sender: Coding (None: no target) by ConceptMap and code."""

Canonical = Callable[[str], str | None]
"""The canonical of the map for a message type; None: the far end chooses."""


class RemoteMapper:
    """`ports.Mapper` over HTTP.  `url`: the FHIR base of the service, e.g. `http://other:8090/mapping/fhir`."""

    def __init__(self, remote: Remote, url: str, canonical: Canonical, answers: CodeAnswers) -> None:
        self._remote = remote
        self._url = url.rstrip("/") + "/StructureMap/$transform"
        self._canonical = canonical
        self._answers = answers

    def has_map(self, message_type: str) -> bool:
        """True: only the far end knows."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """Message bytes to transaction Bundle.  Problem UPSTREAM or MAPPING."""
        canonical = self._canonical(message.message_type)
        url = self._url if canonical is None else f"{self._url}?source={quote(canonical, safe='')}"
        answers = await self._answers(message)
        if answers:
            body, kind = dumps(_parameters(message, answers)), "application/fhir+json"
        else:
            body, kind = message.raw, f"{ER7};charset={message.charset}" if message.charset else ER7
        headers = {"Content-Type": kind, "Accept": "application/fhir+json"}
        reply = await self._remote.post(url, body, headers, message.correlation_id)
        if reply.status != 200:
            raise _refusal(reply)
        return Mapped(_bundle(reply), canonical or f"{self._url}#{message.message_type}", _unmapped(reply))


_: type[Mapper] = RemoteMapper


def _parameters(message: Claimed, answers: Codings) -> Json:
    text = message.raw.decode(message.charset or "utf-8", "replace")
    content = [{"name": "content", "valueString": text}]
    return {
        "resourceType": "Parameters",
        "parameter": content + [{"name": "override", "resource": _table(url, rows)} for url, rows in answers.items()],
    }


def _table(url: str, rows: Mapping[str, Json | None]) -> Json:
    groups = []
    for code, coding in rows.items():
        target = {"equivalence": "unmatched"} if coding is None else {**coding, "equivalence": "equivalent"}
        system = {"target": target.pop("system")} if "system" in target else {}
        groups.append({**system, "element": [{"code": code, "target": [target]}]})
    return {"resourceType": "ConceptMap", "url": url, "status": "active", "group": groups}


def _bundle(reply: Reply) -> Json:
    try:
        bundle = loads(reply.body)
    except Problem as problem:
        raise Problem(Category.MAPPING, f"the mapping service answered no JSON: {problem.text}") from problem
    if not isinstance(bundle, dict) or bundle.get("resourceType") != "Bundle":
        raise Problem(Category.MAPPING, "the mapping service did not answer with a Bundle")
    return bundle


def _refusal(reply: Reply) -> Problem:
    text = f"the mapping service answered {reply.status}"
    if reply.status >= 500 or reply.status in _LATER or reply.status < 400:
        return Problem(Category.UPSTREAM, text)
    said = _diagnostics(reply.body)
    return Problem(Category.MAPPING, f"{text}: {said}" if said else text)


def _diagnostics(body: bytes) -> str:
    """What the first issue of an OperationOutcome says, shortened."""
    try:
        issue: Any = loads(body)["issue"][0]
        said = issue.get("diagnostics") or (issue.get("details") or {}).get("text") or ""
    except (Problem, KeyError, IndexError, TypeError, AttributeError):
        return ""
    return said[:_LONGEST] if isinstance(said, str) else ""


def _unmapped(reply: Reply) -> tuple[UnmappedCode, ...]:
    """The codes that a second ipf says it did not know."""
    try:
        return tuple(UnmappedCode(str(table), str(code)) for table, code in json.loads(reply.headers[UNMAPPED_HEADER]))
    except (KeyError, ValueError, TypeError):
        return ()
