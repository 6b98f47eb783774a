"""A FHIR server and a REST API in memory, with the habits of real ones: pages by offset, clocks that differ, faults.

A page is a window on the current matches, in order of change: what is changed while a pass runs moves to the end, and
the rest moves up.  So a reader that only follows the links misses items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ipf.errors import Category, Problem
from ipf.fhir.model.json import dumps
from ipf.ports.messages.feeds import Reply
from ipf.ports.messages.sources import FHIR_REST, NATIVE_API, Feed, Paging, PolledSource

BASE = "https://ehr.test/fhir"
RESULTS = Feed("results", "Observation?_lastUpdated=gt{{lastRun}}")
SOURCE = PolledSource("ehr", "lab", FHIR_REST, BASE, "EHR", (RESULTS,), interval=60.0, overlap=5.0)
API = PolledSource(
    "ehr", "api", NATIVE_API, "https://ehr.test/v1", "EHR",
    (Feed("changed", "patients/changed", "changed-patients", "patients", "patientid", "", Paging.FIELD, "next",
          after_failure="since={{lastRun}}&until={{now}}"),),
    interval=60.0, overlap=5.0,
)  # fmt: skip


@dataclass
class Source:
    """The state of a simulated source.  `skew`: its clock minus ours.  `faults`: what happens to the next requests."""

    now: Callable[[], datetime]
    page_size: int = 3
    skew: timedelta = timedelta()
    faults: list[Callable[[str], Reply | None]] = field(default_factory=list)
    changed: dict[str, tuple[datetime, int]] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)
    between: Callable[[], object] = lambda: None

    @property
    def time(self) -> datetime:
        """The time of its clock."""
        return self.now() + self.skew

    def change(self, number: str) -> None:
        """Create a resource, or make its next version."""
        self.changed[number] = self.time, self.changed.get(number, (None, 0))[1] + 1

    async def get(self, url: str) -> Reply:
        """See `Fetch.get`."""
        self.urls.append(url)
        if self.faults:
            reply = self.faults.pop(0)(url)
            if reply is not None:
                return reply
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = self._answer(parts.path, query, url)
        date = format_datetime(self.time.replace(microsecond=0), usegmt=True)
        self.between()
        return Reply(200, {"date": date}, dumps(body))

    def _answer(self, path: str, query: dict[str, str], url: str) -> Any:
        since = datetime.fromisoformat(query["_lastUpdated"][2:])
        found = sorted((moment, number) for number, (moment, _) in self.changed.items() if moment > since)
        offset = int(query.get("offset", "0"))
        page = found[offset : offset + self.page_size]
        bundle: Any = {"resourceType": "Bundle", "type": "searchset", "entry": []}
        for moment, number in page:
            version = str(self.changed[number][1])
            meta = {"versionId": version, "lastUpdated": moment.isoformat()}
            resource = {"resourceType": "Observation", "id": number, "meta": meta, "valueInteger": int(version)}
            bundle["entry"].append({"resource": resource, "search": {"mode": "match"}})
        if offset + self.page_size < len(found):
            head = url.partition("&offset=")[0]
            bundle["link"] = [{"relation": "next", "url": f"{head}&offset={offset + self.page_size}"}]
        return bundle


@dataclass
class Queue(Source):
    """A REST API that hands each change out once, unless it is asked for what was handed out in a time."""

    handed_out: list[tuple[datetime, str, int]] = field(default_factory=list)
    waiting: list[tuple[str, int]] = field(default_factory=list)

    def change(self, number: str) -> None:
        """A change is handed out once."""
        super().change(number)
        self.waiting.append((number, self.changed[number][1]))

    def _answer(self, path: str, query: dict[str, str], url: str) -> Any:
        if "since" in query:
            times = [datetime.fromisoformat(query[name]) for name in ("since", "until")]
            found = [(number, count) for moment, number, count in self.handed_out if times[0] <= moment <= times[1]]
            return {"patients": [self._record(*one) for one in found]}
        page, self.waiting = self.waiting[: self.page_size], self.waiting[self.page_size :]
        self.handed_out += [(self.time, *one) for one in page]
        more = {"next": f"{path}?page={len(self.urls)}"} if self.waiting else {}
        return {"patients": [self._record(*one) for one in page], **more}

    def _record(self, number: str, version: int) -> Any:
        return {"patientid": number, "version": version}


def outage(url: str) -> Reply:
    """Nobody answers."""
    raise Problem(Category.UPSTREAM, "no response from the source: connection refused")


def status(code: int, **headers: str) -> Callable[[str], Reply]:
    """An answer with this status; `_` in names of headers is `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda url: Reply(code, named, b"")


def at(seconds: float) -> datetime:
    """A time of the tests."""
    return datetime(2026, 3, 4, 12, tzinfo=UTC) + timedelta(seconds=seconds)
