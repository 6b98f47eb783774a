"""Parses a SubscriptionTopic: its triggers, its filters and its notification shapes.

Input: the resource in the form of R4B or R5, or from an R4 Basic (`basic.py`).  Output: a `Topic`, or Problem
BUSINESS_RULE with an issue for each reason.  A topic fires for all that its resource triggers say, or it is refused.
Event triggers, filters and includes that are not supported have no effect; `check_topic` lists them, and a
Subscription that uses such a filter is refused.

All criteria of a trigger must hold; one trigger of several suffices.  `resultForCreate` and `resultForDelete` are the
result of the criteria for the missing version; without them the criteria fail.  Without `supportedInteraction` creates,
updates and deletions count.

Source: https://hl7.org/fhir/R4B/subscriptiontopic.html, https://hl7.org/fhir/R5/subscriptiontopic.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ipf.errors import Category, Issue, Problem
from ipf.fhir.fhirpath import FhirPathError, compile
from ipf.fhir.model.definitions import definitions
from ipf.fhir.search.evaluation.possible import refuse_impossible
from ipf.fhir.search.language.includes import read_include
from ipf.fhir.search.language.query import parse_criteria
from ipf.fhir.search.predicate import parameters_that_need_store
from ipf.fhir.topics.trigger import TopicExpression
from ipf.ports import Json
from ipf.ports.queries.search import Include, Query
from ipf.ports.queries.topics import INTERACTIONS, Filter, Topic, Trigger

_PASSES = "test-passes"
_RESULTS = frozenset({_PASSES, "test-fails"})
_PLACE = "SubscriptionTopic"
ANY_TYPE = "*"
"""`canFilterBy.resource` of a filter for every type that has the parameter, as topics of US Core write it."""
_COMPARATORS = frozenset(("=", "eq", "ne", "gt", "lt", "ge", "le", "sa", "eb", "ap"))


def is_served(resource: Json) -> bool:
    """Whether a SubscriptionTopic is one that subscriptions may use."""
    return resource.get("status") == "active" and bool(resource.get("url"))


def check_topic(resource: Json) -> tuple[Issue, ...]:
    """The parts of a SubscriptionTopic that have no effect.  Problem BUSINESS_RULE when it cannot be served.

    Drafts may be incomplete.
    """
    if not isinstance(resource.get("url"), str):
        raise Problem(Category.BUSINESS_RULE, "a topic needs a url", f"{_PLACE}.url")
    return _parse(resource, is_new=True)[1] if resource.get("status") == "active" else ()


def read_topic(resource: Json) -> Topic:
    """The topic of a valid SubscriptionTopic.  Problem BUSINESS_RULE with all reasons."""
    return _parse(resource)[0]


def _parse(resource: Json, *, is_new: bool = False) -> tuple[Topic, tuple[Issue, ...]]:
    """`is_new`: refuse criteria that can never match, too; what is stored is served as it is."""
    parser = _TopicParser(resource, is_new)
    topic = parser.topic()
    if parser.issues:
        raise Problem(Category.BUSINESS_RULE, "the topic cannot be served", issues=tuple(parser.issues))
    return topic, tuple(parser.unsupported)


class _TopicParser:
    """Parses a topic.  `issues` refuse it; `unsupported` are parts that have no effect."""

    def __init__(self, resource: Json, is_new: bool) -> None:
        self._is_new = is_new
        self.issues: list[Issue] = []
        self.unsupported: list[Issue] = []
        self._resource = resource

    def topic(self) -> Topic:
        """The topic; valid only when there are no issues."""
        resource = self._resource
        triggers = tuple(self._triggers())
        if not triggers and not self.issues:
            self._refuse("a topic needs a resourceTrigger: nothing else fires here", "resourceTrigger")
        for number, _ in enumerate(resource.get("eventTrigger", ())):
            self._leave_out("event triggers are not supported", f"eventTrigger[{number}]")
        types = frozenset(trigger.resource_type for trigger in triggers)
        return Topic(
            str(resource.get("url", "")),
            str(resource.get("version", "")),
            str(resource.get("title", "")),
            triggers,
            tuple(self._filters(types)),
            dict(self._shapes()),
            str(resource.get("meta", {}).get("versionId", "")),
        )

    def _refuse(self, text: str, place: str) -> None:
        self.issues.append(Issue(text, f"{_PLACE}.{place}", Category.BUSINESS_RULE))

    def _leave_out(self, text: str, place: str) -> None:
        self.unsupported.append(Issue(text, f"{_PLACE}.{place}", Category.NOT_SUPPORTED, severity="warning"))

    def _type(self, item: Json, place: str, reject: Callable[[str, str], None]) -> str | None:
        name = str(item.get("resource", "")).rpartition("/")[2]
        if name in definitions().resource_types:
            return name
        reject(f"{name[:60] or 'nothing'} is not a resource type of this server", f"{place}.resource")
        return None

    def _triggers(self) -> Iterator[Trigger]:
        for number, item in enumerate(self._resource.get("resourceTrigger", ())):
            place = f"resourceTrigger[{number}]"
            name = self._type(item, place, self._refuse)
            interactions = frozenset(item.get("supportedInteraction", INTERACTIONS))
            if not interactions <= INTERACTIONS:
                self._refuse("interactions are create, update and delete", f"{place}.supportedInteraction")
            if name is None:
                continue
            rule, inside = item.get("queryCriteria", {}), f"{place}.queryCriteria"
            for member in ("resultForCreate", "resultForDelete"):
                if rule.get(member, _PASSES) not in _RESULTS:
                    self._refuse("must be test-passes or test-fails", f"{inside}.{member}")
            yield Trigger(
                name,
                interactions,
                self._query(name, rule.get("previous"), f"{inside}.previous"),
                self._query(name, rule.get("current"), f"{inside}.current"),
                rule.get("resultForCreate") == _PASSES,
                rule.get("resultForDelete") == _PASSES,
                rule.get("requireBoth") is True,
                self._expression(item.get("fhirPathCriteria"), f"{place}.fhirPathCriteria"),
                place,
            )

    def _query(self, name: str, text: str | None, place: str) -> Query | None:
        if text is None:
            return None
        kind, mark, search = text.partition("?")
        if mark and kind not in ("", name):
            self._refuse(f"the search is on {kind[:60]}, the trigger on {name}", place)
            return None
        try:
            query = alone(parse_criteria(f"{name}?{search if mark else text}"))
            if self._is_new:
                refuse_impossible(query, place)
            return query
        except Problem as refused:
            self._refuse(refused.text, place)
            return None

    def _expression(self, text: str | None, place: str) -> TopicExpression | None:
        if text is None:
            return None
        try:
            return TopicExpression(compile(text))
        except FhirPathError as refused:
            self._refuse(f"not valid FHIRPath: {refused}", place)
            return None

    def _filters(self, types: frozenset[str]) -> Iterator[Filter]:
        for number, item in enumerate(self._resource.get("canFilterBy", ())):
            place = f"canFilterBy[{number}]"
            any_type = item.get("resource", ANY_TYPE) == ANY_TYPE
            name = "" if any_type else self._type(item, place, self._leave_out)
            if name is None:
                continue
            parameter = str(item.get("filterParameter", ""))
            bases = [name] if name else sorted(types)
            if not any(parameter in definitions().search_parameters(base) for base in bases):
                self._leave_out(f"{parameter[:60]} is not a search parameter of {', '.join(bases)}", place)
                continue
            yield Filter(name, parameter, *_modifiers_and_comparators(item))

    def _shapes(self) -> Iterator[tuple[str, tuple[Include, ...]]]:
        for number, item in enumerate(self._resource.get("notificationShape", ())):
            place = f"notificationShape[{number}]"
            name = self._type(item, place, self._leave_out)
            if name is not None:
                found = [*self._includes(name, item, place, "include", "_include"),
                         *self._includes(name, item, place, "revInclude", "_revinclude")]  # fmt: skip
                yield name, tuple(found)

    def _includes(self, name: str, item: Json, place: str, member: str, parameter: str) -> Iterator[Include]:
        for number, text in enumerate(item.get(member, ())):
            for written in str(text).split("&"):
                key, mark, value = written.partition("=")
                try:
                    found = read_include(
                        _parameter(key, parameter) if mark else parameter, value if mark else key, name
                    )
                    if found.reverse and not found.source:
                        raise Problem(Category.NOT_SUPPORTED, "write Type:parameter, or Type:*")
                except Problem as refused:
                    self._leave_out(refused.text, f"{place}.{member}[{number}]")
                else:
                    yield found


def _parameter(key: str, parameter: str) -> str:
    """`_include`, `_include:iterate`, or the R5 form `iterate`."""
    return f"{parameter}:{key}" if key in ("iterate", "recurse") else key


def _modifiers_and_comparators(item: Json) -> tuple[frozenset[str] | None, frozenset[str] | None]:
    """The modifiers and comparators that a filter allows, None = all; R4B lists both under `modifier`."""
    comparators = frozenset(item["comparator"]) if "comparator" in item else None
    if "modifier" not in item:
        return None, comparators
    codes = frozenset(item["modifier"])
    of_r4b = codes & _COMPARATORS
    return codes - _COMPARATORS, (comparators or frozenset()) | of_r4b if of_r4b else comparators


def alone(query: Query) -> Query:
    """A query on single resources; Problem BUSINESS_RULE names the parameters that need other resources."""
    needs_store = parameters_that_need_store(query)
    if needs_store or query.includes:
        names = ", ".join(needs_store) or "_include"
        text = f"{names} cannot be used: a subscription is matched on one resource, without others or value sets"
        raise Problem(Category.BUSINESS_RULE, text)
    return query
