"""Which tenant a caller belongs to: the claim of its token, held against the list of this deployment.

With tenancy off every request belongs to the one default partition, whatever its token claims.  With it on, a caller
without the claim, with one that cannot be a name, or with one that is not on the list, is refused with 403; a tenant
that is not known yet comes into being with the first thing that is written for it.  Only this module turns a claim into
`Request.tenant`, which every store call is bound to.

Source: interface specification "Multi-tenancy"; decisions section 5.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ipf.errors import Category, Problem
from ipf.ports import DEFAULT_TENANT, Caller, Request

TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
"""What a tenant may be called."""

Identify = Callable[[Request], Awaitable[Request]]


@dataclass(frozen=True, slots=True)
class Tenancy:
    """The rule of one deployment.  `allowed`: None or empty = every well-formed name."""

    is_enabled: bool = False
    allowed: frozenset[str] = frozenset()

    def of(self, caller: Caller) -> str:
        """The tenant that a caller may see.  Problem FORBIDDEN; it never repeats the claim."""
        if not self.is_enabled or caller.is_system:
            return DEFAULT_TENANT
        if not caller.tenant:
            raise Problem(Category.FORBIDDEN, "the token names no tenant")
        if not TENANT.fullmatch(caller.tenant):
            raise Problem(Category.FORBIDDEN, "the token's tenant is no name that this server can use")
        if self.allowed and caller.tenant not in self.allowed:
            raise Problem(Category.FORBIDDEN, "the token's tenant is not served here")
        return caller.tenant


def placing(identify: Identify, tenancy: Tenancy) -> Identify:
    """`identify`, with the tenant of the caller put into the request.  Who is not known yet is left to the router."""
    if not tenancy.is_enabled:
        return identify

    async def identified(request: Request) -> Request:
        request = await identify(request)
        if request.caller.is_anonymous:
            return request
        return request.by(request.caller, tenancy.of(request.caller))

    return identified
