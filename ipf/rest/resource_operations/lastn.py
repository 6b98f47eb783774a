"""Observation/$lastn: the newest Observations of each code, of one subject or several.

All search parameters of Observation select; `max` is the number of Observations of each group.  The answer is one page:
`_sort` and `_count` are no parameters of this operation, and a result of more than a page is refused.

Source: https://hl7.org/fhir/R4/observation-operation-lastn.html
"""

from __future__ import annotations

from collections.abc import Sequence

from ipf.errors import Category, Problem
from ipf.fhir.index.lastn import OBSERVATION
from ipf.fhir.model.bundle import searchset
from ipf.ports import Answer, Request
from ipf.ports.queries.search import Query
from ipf.rest.http.arguments import Arguments
from ipf.rest.http.exchange import applied
from ipf.rest.interactions.searches.include import Included
from ipf.rest.interactions.searches.search import CURSOR, Scope, is_strict, queries_of, self_link, warnings_of
from ipf.rest.write.repository import Repository

MAX = "max"
_SUBJECTS = frozenset({"patient", "subject"})
_NO_PARAMETERS = frozenset({"_sort", "_count", CURSOR})
_SCOPE = Scope((OBSERVATION,), OBSERVATION)

Pairs = Sequence[tuple[str, str]]


async def lastn(request: Request, repository: Repository) -> Answer:
    """A searchset Bundle in the order of the codes, each newest first.  Problem REQUIRED, VALUE or COSTLY."""
    if request.path[0] != OBSERVATION:
        raise Problem(Category.NOT_FOUND, f"$lastn is defined for {OBSERVATION}")
    arguments = await Arguments.read(request, None, repository.run_in_thread)
    most, pairs = _most(arguments), [pair for pair in arguments.pairs() if pair[0] != MAX]
    ignored = [pair for pair in pairs if pair[0] in _NO_PARAMETERS]
    if ignored and is_strict(request, repository):
        name = ignored[0][0]
        raise Problem(Category.NOT_SUPPORTED, f"$lastn has no parameter {name}: it has one page in its own order", name)
    used = [pair for pair in pairs if pair not in ignored]
    (query,) = await queries_of(request, repository, used, _SCOPE)
    ignored += query.ignored
    _check(query)
    found = await repository.store.lastn(request.tenant, query, most, repository.max_page_size)
    used = [(MAX, str(most)), *(pair for pair in used if pair not in ignored)]
    links = [self_link(request, "/".join(request.path), used)]
    matches = [] if query.summary_count else found
    included = Included(repository.store, request.tenant, request.base_url, repository.max_page_size, request.caller)
    await included.add(query.includes, matches)
    warnings = warnings_of(ignored, included.left_out)
    body = searchset(matches, len(found), request.base_url, links, included=included.versions, outcome=warnings)
    return Answer(200, body, applied(request, "handling", "lenient", "strict"), about=(*matches, *included.versions))


def _most(arguments: Arguments) -> int:
    most = arguments.number(MAX)
    if most == 0:
        raise Problem(Category.VALUE, f"{MAX} must be a number from 1", MAX)
    return most or 1


def _check(query: Query) -> None:
    """Problem REQUIRED unless there are a subject, and a category or a code."""
    names = [term.name.partition(".")[0].partition(":") for term in query.terms]
    if not any(code in _SUBJECTS and modifier != "missing" for code, _, modifier in names):
        raise Problem(Category.REQUIRED, "$lastn needs a subject: the search parameter patient or subject", "patient")
    if not any(code == "category" or "code" in code.split("-") for code, _, _ in names):
        raise Problem(
            Category.REQUIRED, "$lastn needs a search parameter category, or one of a code such as code", "code"
        )
