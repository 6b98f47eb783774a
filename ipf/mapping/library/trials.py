"""Trials of maps as JSON in, JSON out, so that they can run in a process of their own (`ipf.app.maps.trial`).

What arrives: a library, and a request with the text of a map and with messages.  What leaves: the result with its
trace, or how the results differ from those of the installed map; the mistake with its place instead.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime

from ipf.errors import Problem
from ipf.mapping.language.grammar import parse
from ipf.mapping.library.maps import Library
from ipf.mapping.library.mistakes import mistake_of
from ipf.mapping.library.service import result_json
from ipf.mapping.runtime.trace import MADE, Produced, RulePosition, Step
from ipf.ports import Claimed, Json

CANDIDATE = "candidate.fml"

Trial = Callable[[Json], Awaitable[Json]]
"""Runs a request; Problem UNAVAILABLE: too many run already; COSTLY: it exceeds its budget of time or memory."""


def request_of(text: str | None, messages: Iterable[Claimed], *, compares: bool = False) -> Json:
    """The request of a trial.  `text`: the map; None: the installed one.  `compares`: with the installed map."""
    return {"map": text, "compares": compares, "messages": [_message(one) for one in messages]}


def run_trial(library: Library, request: Json) -> Json:
    """The result of a request; `mistake` is None where there is none."""
    text, messages = request["map"], [_claimed(one) for one in request["messages"]]
    try:
        candidate = library if text is None else library.with_candidate(parse(text, CANDIDATE))
        if not request["compares"]:
            return {"mistake": None, **result_json(candidate.explain(messages[0], trace=True))}
    except Problem as problem:
        mistake = mistake_of(problem).as_json()
        return {"mistake": mistake, **({"same": 0, "differing": []} if request["compares"] else {})}
    return _compared(library, candidate, messages)


def _compared(library: Library, candidate: Library, messages: Sequence[Claimed]) -> Json:
    same, differing = 0, []
    for claimed in messages:
        before, after = _shown(library, claimed), _shown(candidate, claimed)
        if before == after:
            same += 1
        else:
            differing.append({"id": claimed.id, "before": before, "after": after})
    return {"mistake": None, "same": same, "differing": differing}


def _shown(library: Library, claimed: Claimed) -> Json:
    """The Bundle of a message, or the mistake."""
    try:
        return library.explain(claimed).bundle
    except Problem as problem:
        return {"mistake": mistake_of(problem).as_json()}


def steps_of(result: Json) -> list[Step]:
    """The trace of a result, for the origins of findings."""
    return [
        Step(
            RulePosition(one["map"], one["file"], one["group"], one["rule"], one["line"], one["column"]),
            tuple(one["sources"]),
            [
                Produced(made["entry"], made["resourceType"], made["reference"], made["path"], made.get("value", MADE))
                for made in one["produced"]
            ],
        )
        for one in result.get("steps", ())
    ]


_NAMES = ("id", "source_system", "source_id", "message_type", "charset", "tenant", "listener", "source_protocol")


def _message(claimed: Claimed) -> Json:
    return {"raw": b64encode(claimed.raw).decode(), **{name: getattr(claimed, name) for name in _NAMES}}


def _claimed(message: Json) -> Claimed:
    """A message without a lease."""
    return Claimed(
        message["id"], 0, "", datetime.min.replace(tzinfo=UTC), message["source_system"], message["source_id"],
        message["message_type"], b64decode(message["raw"]), message["charset"], 0, tenant=message["tenant"],
        listener=message["listener"], source_protocol=message["source_protocol"],
    )  # fmt: skip
