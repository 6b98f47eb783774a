"""Cases, their results, and the table of a run.

A case ends by returning (passed), by `Failed`, or by `NotSupported`: the server says itself that it does not have what
the case needs.  An answer of 500 or more always is a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from twisted.internet.error import ConnectError
from twisted.web.client import ResponseFailed

from conformance.server import Reply, Server

PASSED, FAILED, NOT_SUPPORTED = "passed", "failed", "not supported"
NOT_OFFERED = "not offered"
"""The reason where a whole suite needs an operation that the server does not have."""

Case = tuple[str, Callable[[Server], Awaitable[None]]]
"""Name and function."""


class Failed(Exception):
    """The server does something else than the specification says."""


class NotSupported(Exception):
    """The server does not offer what the case needs."""


@dataclass(frozen=True, slots=True)
class Result:
    """The end of one case."""

    suite: str
    case: str
    end: str
    reason: str = ""


def expect(reply: Reply, *statuses: int, optional: bool = False) -> Reply:
    """The reply if it has one of these statuses.  `optional`: a refusal (4xx, 501) means not supported."""
    if reply.status in statuses:
        return reply
    if optional and (400 <= reply.status < 500 or reply.status == 501):
        raise NotSupported(str(reply))
    raise Failed(f"expected {' or '.join(map(str, statuses))}, got {reply}")


def equal(found: object, wanted: object, what: str = "") -> None:
    """Failed when they differ."""
    if found != wanted:
        raise Failed(f"{what}{': ' if what else ''}expected {wanted!r}, got {found!r}"[:300])


def check(holds: object, why: str) -> None:
    """Failed with the reason when it does not hold."""
    if not holds:
        raise Failed(why)


async def run_suite(name: str, cases: Sequence[Case], server: Server) -> list[Result]:
    """The results of the cases, one after the other."""
    results = []
    for case, perform in cases:
        try:
            await perform(server)
        except NotSupported as reason:
            results.append(Result(name, case, NOT_SUPPORTED, str(reason)))
        except (ConnectError, ResponseFailed):
            raise
        except Exception as reason:  # a body of another form than FHIR's fails its case, too
            text = str(reason) if isinstance(reason, Failed) else f"{type(reason).__name__}: {reason}"
            results.append(Result(name, case, FAILED, text[:300]))
        else:
            results.append(Result(name, case, PASSED))
    return results


def table(results: Sequence[Result]) -> str:
    """The counts of each suite, then what failed and what is not supported, with the reasons."""
    names = list(dict.fromkeys(one.suite for one in results))
    lines = [("suite", PASSED, FAILED, NOT_SUPPORTED)]
    for name in [*names, "all"]:
        count = Counter(one.end for one in results if name in (one.suite, "all"))
        lines.append((name, *(str(count[end]) for end in (PASSED, FAILED, NOT_SUPPORTED))))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) if not at else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))) for line in lines]  # fmt: skip
    for end in (FAILED, NOT_SUPPORTED):
        text += _listed(end, [one for one in results if one.end == end])
    return "\n".join(text)


def _listed(title: str, results: Collection[Result]) -> list[str]:
    lines = [
        f"  {one.suite}: {NOT_OFFERED}" if one.reason == NOT_OFFERED else f"  {one.suite}: {one.case}: {one.reason}"
        for one in results
    ]
    return ["", f"{title}:", *dict.fromkeys(lines)] if results else []
