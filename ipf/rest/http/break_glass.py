"""Break-glass: a request that lifts labels and Consents for itself, with a reason that is recorded.

The token must have the scope `btg`, and the header X-Break-Glass-Reason states the reason.  Neither alone lifts
anything.  What works later or for others (exports, binding tokens, Subscriptions) is not lifted by the request that
begins it.  Without labels and Consents the header is ignored.

Source: HEART profile of OAuth 2.0 for FHIR, "Break the glass"; v3-ActReason BTG.
"""

from __future__ import annotations

from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import Request
from ipf.security.access import Unauthorized, installed
from ipf.security.privacy.policy import BREAK_GLASS

HEADER = "X-Break-Glass-Reason"
LONGEST = 200
_BACKGROUND = frozenset({"$export", "$get-ws-binding-token"})


def with_break_glass(request: Request) -> Request:
    """The request whose caller is not limited by labels and Consents, if it asks for that.

    Problem UNAUTHORIZED without the scope, VALUE for a reason that is no line of text, FORBIDDEN for background work.
    """
    sent, caller = request.headers.get(HEADER.lower()), request.caller
    if sent is None or installed() is None or caller.is_unlimited or caller.is_anonymous:
        return request
    if BREAK_GLASS not in caller.scopes:
        text = f"{HEADER} needs a token with the scope {BREAK_GLASS}"
        raise Unauthorized(text, f'error="insufficient_scope", scope="{BREAK_GLASS}"')
    reason_of(request)
    if not _BACKGROUND.isdisjoint(request.path):
        raise Problem(Category.FORBIDDEN, f"{HEADER} lifts nothing for {request.path[-1]}, which works later")
    return request.by(replace(caller, break_glass=True))


def reason_of(request: Request) -> str:
    """The reason of a request; Problem VALUE."""
    reason = " ".join(request.headers.get(HEADER.lower(), "").split())
    if not reason or len(reason) > LONGEST or not reason.isprintable():
        text = f"{HEADER} must state the reason: one line of 1 to {LONGEST} visible characters"
        raise Problem(Category.VALUE, text)
    return reason
