"""The operator API on HTTP: `/admin/*`, a Klein application around functions on values.

What arrives: a request with the admin token when one is configured, or with the read-only one.  What leaves: JSON, also
for every refusal; `X-Correlation-Id` as the caller sent it, or a fresh one.  A store that cannot be reached is 503.

Source: interface specification "Message administration", "Admin API", "Correlation", "Errors"; decisions section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from klein import Klein
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.klein_app import AuditHook, application, mount
from ipf.wire.admin.messages import refusal
from ipf.wire.admin.route import AnyMounted


def resource(
    access: AdminAccess,
    tables: Sequence[AnyMounted],
    *,
    below: Mapping[str, IResource] | None = None,
    audit: AuditHook | None = None,
) -> IResource:
    """The resource to mount at `/admin`.  `below`: resources of their own, by the first segment of their paths."""
    app, run = application(access.check, refusal, audit)
    for table in tables:
        mount(app, run, table)
    for name, found in (below or {}).items():
        _branch(app, name, found)
    return app.resource()


def _branch(app: Klein, name: str, found: IResource) -> None:
    @app.route(f"/{name}", branch=True, strict_slashes=False, endpoint=name)
    def branch(_: IRequest) -> IResource:
        return found
