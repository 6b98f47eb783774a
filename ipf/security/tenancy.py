"""The tenant of a caller: a claim of its token, checked against the list of this deployment.

With tenancy off, every request belongs to the default tenant, whatever its token claims.  With tenancy on, a caller
without the claim, with a malformed name, or with a name that is not on the list is refused with 403.  The name of the
default tenant, which owns maps and search parameters of all, is for operators: it is accepted only when the list names
it.  The first write creates a new tenant.  Only this module turns a claim into `Request.tenant`, which every store call
is bound to.

Source: interface specification "Multi-tenancy"; decisions section 5.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.ports import DEFAULT_TENANT, Caller, Request

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
"""The form of a tenant name."""

Identify = Callable[[Request], Awaitable[Request]]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The tenancy settings.  `allowed`: None or empty = every well-formed name."""

    is_enabled: bool = False
    allowed: frozenset[str] = frozenset()

    def of(self, caller: Caller) -> str:
        """The tenant of a caller.  Problem FORBIDDEN; its text never contains the claim."""
        if not self.is_enabled or caller.is_system:
            return DEFAULT_TENANT
        if not caller.tenant:
            raise Problem(Category.FORBIDDEN, "the token names no tenant")
        if not TENANT.fullmatch(caller.tenant):
            raise Problem(Category.FORBIDDEN, "the tenant in the token is not a valid name")
        if caller.tenant == DEFAULT_TENANT and DEFAULT_TENANT not in self.allowed:
            raise Problem(Category.FORBIDDEN, "the tenant in the token is reserved for the operators of this server")
        if self.allowed and caller.tenant not in self.allowed:
            raise Problem(Category.FORBIDDEN, "the tenant in the token is not served by this server")
        return caller.tenant


def placing(identify: Identify, tenancy: Tenancy) -> Identify:
    """As `identify`, and sets the tenant of the request.  The router handles callers that are not identified yet."""
    if not tenancy.is_enabled:
        return identify

    async def identified(request: Request) -> Request:
        request = await identify(request)
        if request.caller.is_anonymous:
            return request
        return request.by(request.caller, tenancy.of(request.caller))

    return identified
