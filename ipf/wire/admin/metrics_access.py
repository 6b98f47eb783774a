"""Access to `/actuator/prometheus`: everybody, or who sends `IPF_METRICS_TOKEN`."""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.wire.admin.access import AdminAccess


class MetricsAccess:
    """The token of scrapers; without one every request is admitted."""

    def __init__(self, token: str | None = None) -> None:
        self._tokens = AdminAccess(token) if token else None

    def check(self, request: Request) -> None:
        """Problem UNAUTHORIZED."""
        if self._tokens is not None and not self._tokens.agent(request):
            raise Problem(Category.UNAUTHORIZED, "metrics need the token of IPF_METRICS_TOKEN")
