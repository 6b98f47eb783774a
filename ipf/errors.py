"""The categories of failure.

Pure code and stages raise :class:`Problem`.  `rest/http/outcome.py` renders it as a FHIR OperationOutcome,
`wire/admin/app.py` as the error body of the admin API, `hl7/ack.py` as MSA and ERR.  No other module builds error
bodies.

Sources: https://hl7.org/fhir/R4/http.html (status codes), https://hl7.org/fhir/R4/valueset-issue-type.html,
HL7 v2.5.1 table 0357 (ERR-3), interface specification "Errors", decisions section 3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class Rendering:
    """The rendering of a category for each kind of caller.

    `retry`: the same input may succeed later although nobody corrects it, a map, or what operators decide.
    """

    http_status: int
    issue_type: str
    admin_code: str
    ack_code: str
    err_code: str
    retry: bool


class Category(Enum):
    """The categories.  A new one is a row here."""

    MALFORMED = Rendering(400, "structure", "bad_request", "AR", "100", False)
    INVALID = Rendering(422, "invalid", "bad_request", "AR", "102", False)
    VALUE = Rendering(400, "value", "bad_request", "AR", "102", False)
    REQUIRED = Rendering(400, "required", "bad_request", "AR", "101", False)
    NOT_SUPPORTED = Rendering(400, "not-supported", "bad_request", "AR", "200", False)
    UNAUTHORIZED = Rendering(401, "login", "unauthorized", "AR", "207", True)
    FORBIDDEN = Rendering(403, "forbidden", "unauthorized", "AR", "207", True)
    NOT_FOUND = Rendering(404, "not-found", "not_found", "AR", "204", True)
    COSTLY = Rendering(400, "too-costly", "bad_request", "AR", "207", False)
    METHOD = Rendering(405, "not-supported", "bad_request", "AR", "200", False)
    NOT_ACCEPTABLE = Rendering(406, "not-supported", "bad_request", "AR", "207", False)
    CONFLICT = Rendering(409, "conflict", "invalid_status", "AE", "205", True)
    GONE = Rendering(410, "deleted", "not_found", "AR", "204", True)
    PRECONDITION = Rendering(412, "conflict", "bad_request", "AR", "207", True)
    AMBIGUOUS = Rendering(412, "multiple-matches", "bad_request", "AR", "205", False)
    TOO_LARGE = Rendering(413, "too-costly", "payload_too_large", "AR", "207", False)
    MEDIA_TYPE = Rendering(415, "not-supported", "bad_request", "AR", "207", False)
    MISDIRECTED = Rendering(421, "forbidden", "bad_request", "AR", "207", False)
    BUSINESS_RULE = Rendering(422, "business-rule", "bad_request", "AR", "207", False)
    UNMAPPED = Rendering(422, "not-found", "upstream_failed", "AE", "200", False)
    MAPPING = Rendering(422, "processing", "upstream_failed", "AE", "207", False)
    UPSTREAM = Rendering(502, "transient", "upstream_failed", "AE", "207", True)
    UNAVAILABLE = Rendering(503, "transient", "upstream_failed", "AE", "207", True)
    INTERNAL = Rendering(500, "exception", "upstream_failed", "AE", "207", True)


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding and its place (`Patient.name[0].given`, or `PID^1^3` in a message).

    `code`, `severity`: of the OperationOutcome issue, if they are not those of the category, and `error`.
    """

    text: str
    place: str | None = None
    category: Category | None = None
    code: str = ""
    severity: str = ""


class Problem(Exception):
    """A failure with a category, a sentence for a person, and the place that it concerns.

    `text` never contains data of a patient, since it is logged and sent to the caller.
    """

    def __init__(
        self, category: Category, text: str, place: str | None = None, *, issues: tuple[Issue, ...] = ()
    ) -> None:
        super().__init__(text if place is None else f"{place}: {text}")
        self.category = category
        self.text = text
        self.place = place
        self.issues = issues or (Issue(text, place, category),)

    def inside(self, place: str) -> Problem:
        """The same failure, for the resource at this place of a Bundle."""
        issues = tuple(
            replace(issue, place=f"{place}.resource ({issue.place})" if issue.place else place) for issue in self.issues
        )
        return Problem(self.category, self.text, place, issues=issues)

    @property
    def rendering(self) -> Rendering:
        """The rendering of its category."""
        return self.category.value

    @property
    def is_permanent(self) -> bool:
        """Whether no retry mends it: somebody has to change the message, a map, a setting or a decision."""
        return not self.category.value.retry


class StoreUnreachable(Problem):
    """PostgreSQL is unreachable, or the connection was lost before the commit was confirmed.

    Whether anything is stored is unknown.  `detail`: the error of the driver, for the log, with addresses and user
    names; `text` is also sent to callers.
    """

    def __init__(self, text: str = "the store cannot be reached", detail: str = "") -> None:
        super().__init__(Category.UNAVAILABLE, text)
        self.detail = detail or text


class WriteConflict(Problem):
    """Another transaction changed the same rows first; the whole transaction may be retried."""

    def __init__(self, text: str = "another writer changed the same rows") -> None:
        super().__init__(Category.CONFLICT, text)
