"""The answer of a source: what it means, when it was given, and how long the source asks to wait."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

from ipf.errors import Category, Problem
from ipf.fhir.model.json import loads
from ipf.ports import Json
from ipf.ports.messages.feeds import Reply

MAX_DIAGNOSTICS = 300
_LONGEST_WAIT = 86_400.0


class Limited(Problem):
    """The source asks to wait.  `seconds`: how long; None = it does not say."""

    def __init__(self, text: str, seconds: float | None) -> None:
        super().__init__(Category.UPSTREAM, text)
        self.seconds = seconds


def check(reply: Reply) -> None:
    """Refuse an answer without a page.  Problem UPSTREAM with the diagnostics of its OperationOutcome."""
    if reply.status != 200:
        diagnostics = _diagnostics(reply.body)
        text = f"the source answered {reply.status}"
        raise Problem(Category.UPSTREAM, f"{text}: {diagnostics}" if diagnostics else text)


def _diagnostics(body: bytes) -> str:
    """The text of the first issue of an OperationOutcome; empty when the body is none."""
    try:
        issue: Json = loads(body)["issue"][0]
        return str(issue.get("diagnostics") or (issue.get("details") or {}).get("text") or "")[:MAX_DIAGNOSTICS]
    except (Problem, KeyError, IndexError, TypeError, AttributeError):
        return ""


def source_time(reply: Reply, elapsed: timedelta) -> datetime | None:
    """When the source began to answer, by its clock (RFC 9110 section 6.6.1, whole seconds)."""
    try:
        return parsedate_to_datetime(reply.headers.get("date", "")) - elapsed - timedelta(seconds=1)
    except (ValueError, TypeError):
        return None


def wait_seconds(given: str, now: datetime) -> float | None:
    """`Retry-After` in seconds: a number or a time (RFC 9110 section 10.2.3); None: it cannot be read."""
    if given.strip().isdecimal():
        return min(float(given), _LONGEST_WAIT)
    try:
        return min(max((parsedate_to_datetime(given) - now).total_seconds(), 0.0), _LONGEST_WAIT)
    except (ValueError, TypeError):
        return None
