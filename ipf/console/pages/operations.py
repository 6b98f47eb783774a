"""The lists of operation: rejected frames, jobs, unmapped codes, unread fields, identity conflicts, the audit trail."""

from __future__ import annotations

from ipf.console.serving.lists import Column, Filter, Kind, ListPage

REJECTS = ListPage(
    "rejects", "/admin/rejects",
    (Column("received_at", Kind.TIME), Column("peer"), Column("reason", Kind.LONG), Column("tenant", shown=False)),
    (Filter("tenant"),),
)  # fmt: skip
JOBS = ListPage(
    "jobs", "/admin/jobs",
    (Column("id", Kind.NUMBER), Column("status", Kind.STATUS), Column("created_at", Kind.TIME),
     Column("done", Kind.NUMBER), Column("total", Kind.NUMBER), Column("tenant", shown=False)),
    (Filter("status", first=True), Filter("tenant")),
    row="/jobs/{id}",
)  # fmt: skip
CODES = ListPage(
    "codes", "/admin/unmapped-codes",
    (Column("code", Kind.CODE), Column("concept_map", Kind.CODE), Column("source_system"), Column("count", Kind.NUMBER),
     Column("messages", Kind.NUMBER), Column("last_seen", Kind.TIME), Column("status", Kind.STATUS),
     Column("first_seen", Kind.TIME, shown=False), Column("tenant", shown=False)),
    (Filter("source_system", first=True), Filter("code", first=True), Filter("status", ("open", "mapped"), first=True),
     Filter("concept_map"), Filter("tenant")),
    row="/codes/{id}",
)  # fmt: skip
UNREAD = ListPage(
    "unread", "/admin/unread-fields",
    (Column("path", Kind.CODE), Column("source_system"), Column("message_type"), Column("kind"),
     Column("occurrences", Kind.NUMBER), Column("last_seen", Kind.TIME), Column("reason", Kind.LONG, shown=False)),
    (Filter("source_system", first=True), Filter("message_type", first=True), Filter("path", first=True),
     Filter("kind"), Filter("tenant")),
)  # fmt: skip
CONFLICTS = ListPage(
    "conflicts", "/admin/identity-conflicts",
    (Column("id", Kind.NUMBER), Column("kind"), Column("resource_type"), Column("candidates", Kind.LIST),
     Column("status", Kind.STATUS), Column("what_to_do", Kind.LONG)),
    (Filter("status", ("open", "answered", "closed"), first=True), Filter("source_system", first=True),
     Filter("resource_type"), Filter("message_id"), Filter("tenant")),
    row="/conflicts/{id}",
)  # fmt: skip
AUDIT = ListPage(
    "audit", "/admin/audit",
    (Column("recorded_at", Kind.TIME), Column("actor", Kind.FILTER), Column("interaction", Kind.FILTER),
     Column("entities", Kind.REFERENCES), Column("target", Kind.LONG), Column("http_status", Kind.NUMBER),
     Column("patients", Kind.REFERENCES, shown=False), Column("via", shown=False),
     Column("agent", Kind.FILTER, shown=False), Column("address", shown=False), Column("surface", shown=False),
     Column("correlation_id", Kind.FILTER, shown=False), Column("tenant", shown=False)),
    (Filter("actor", first=True), Filter("patient", first=True), Filter("surface", ("fhir", "admin"), first=True),
     Filter("action", ("C", "R", "U", "D", "E")), Filter("outcome", ("0", "4", "8")),
     *map(Filter, ("entity", "interaction", "since", "until", "agent", "correlation_id", "tenant"))),
)  # fmt: skip

OTHERS = (UNREAD, REJECTS, AUDIT)
"""Lists without a page for a row."""

LISTS = (CONFLICTS, CODES, JOBS, *OTHERS)
