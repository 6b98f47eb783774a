"""From the Bundle that a map made to entries that a store can take, and to a Bundle when somebody asks for one.

Each entry gets a `fullUrl` and, when the map gave none, a request that finds its resource again (`identity`).  The same
identifier twice becomes one entry, with all references pointing at it.

Nearly all maps leave the requests to the engine.  Then the entries are made at once, and nothing is written as text
that would only be read again: neither requests nor their searches.  A map that writes a request of its own gets a
Bundle, and its entries are read from there.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ipf.errors import Problem
from ipf.fhir.search.query import by_token, parse_criteria
from ipf.mapping.bundle.identity import (
    BY_IDENTIFIER,
    CREATE,
    CREATE_ONCE,
    RULES,
    UPDATE,
    Deriver,
    match_identifier,
    plain_identifier,
    request,
    request_and_condition,
    token,
)
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.entries import Entry, Link, Method
from ipf.ports.search import Query

_CREATE, _UPDATE = Method.CREATE, Method.UPDATE
_is_id = re.compile(r"[A-Za-z0-9\-.]{1,64}").fullmatch


class Transaction:
    """What a map made, finished.  `entries`: None when a map wrote a request; they are in the Bundle then.

    `references`: every reference to an entry; None: they may stand elsewhere too (a map kept one in a variable).
    """

    __slots__ = ("_bundle", "_is_finished", "_numbers", "_urls", "entries", "references")

    def __init__(self, bundle: Json) -> None:
        self._bundle = bundle
        self._is_finished = True
        self._numbers: dict[int, int] = {}
        self._urls: list[str] = []
        self.entries: tuple[Entry, ...] | None = None
        self.references: list[Link] | None = None

    @property
    def merged(self) -> dict[int, str]:
        """The fullUrl by id() of each resource that was made."""
        return {number: self._urls[place] for number, place in self._numbers.items()}

    def bundle(self) -> Json:
        """The Bundle that the map filled, with its entries finished.  To be asked for before these are stored."""
        if not self._is_finished:
            self._is_finished = True
            _finish(self._bundle, [_as_json(entry) for entry in self.entries or ()])
        return self._bundle

    def hold(self, entries: list[Entry], numbers: dict[int, int]) -> None:
        """Take entries that are all the engine's own; `numbers`: which of them each resource is in, by its id()."""
        self.entries, self._numbers, self._is_finished = tuple(entries), numbers, False
        self._urls = [entry.full_url or "" for entry in entries]

    def put(self, entries: list[Json], numbers: dict[int, int]) -> None:
        """The same with entries as JSON."""
        self._numbers, self._urls = numbers, [one.get("fullUrl", "") for one in entries]
        _finish(self._bundle, entries)

    def link(self, run: Run, *, is_renamed: bool) -> None:
        """Note the references to entries; `is_renamed`: not all of them say the name of their entry yet."""
        found: list[Link] = []
        number_of, urls = self._numbers.get, self._urls
        for holder, name, resource in run.references:
            number = number_of(id(resource))
            if number is not None and name in holder:
                if is_renamed:
                    holder[name] = urls[number]
                found.append((holder, name, number))
        if run.loose_references:
            merged = self.merged
            known = {urn: merged[number] for number, urn in run.urns.items() if number in merged}
            _rewrite_all([entry.resource for entry in self.entries] if self.entries else self._bundle["entry"], known)
        else:
            self.references = found


def complete(bundle: Json, run: Run) -> Transaction:
    """Finish a Bundle in place.  A Bundle of another type than transaction, or no Bundle, is left as it is."""
    made = finished(bundle, run)
    made.bundle()
    return made


def finished(bundle: Json, run: Run) -> Transaction:
    """The same, but the Bundle is finished only when the transaction is asked for it."""
    made = Transaction(bundle)
    if bundle.get("resourceType") != "Bundle" or bundle.setdefault("type", "transaction") != "transaction":
        return made
    given = [one for one in bundle.get("entry", ()) if "resource" in one or _stands_alone(one)]
    once = {id(one["resource"]) for one in given if len(one) > 1 and "request" in one and _wants_identifier(one)}
    known = Deriver(given, run).derive()
    usual = _entries([one["resource"] for one in given], run, once, known) if _are_usual(given) else None
    if usual is not None:
        entries, numbers, is_renamed = usual
        made.hold(entries, numbers)
    else:
        kept, numbers, is_renamed = _merge(given, run, once)
        made.put(kept, numbers)
    made.link(run, is_renamed=is_renamed)
    return made


def _are_usual(entries: list[Json]) -> bool:
    """Whether a map left all to the engine, and gave no id that is none (whoever stores the Bundle says so)."""
    for entry in entries:
        if len(entry) > 1 or ("id" in entry["resource"] and not _is_id(entry["resource"]["id"])):
            return False
    return True


def _stands_alone(entry: Json) -> bool:
    """Whether an entry without a resource asks for something, such as a deletion."""
    return "request" in entry and bool(entry["request"].get("ifNoneExist") != BY_IDENTIFIER)


def _wants_identifier(entry: Json) -> bool:
    """Whether the map asked for BY_IDENTIFIER; its placeholder is then taken away."""
    if entry["request"].get("ifNoneExist") != BY_IDENTIFIER or "resource" not in entry:
        return False
    del entry["request"]
    return True


# ------------------------------------------------------------------------------------------------ the usual way


def _entries(
    resources: list[Json], run: Run, once: set[int], known: dict[int, Json]
) -> tuple[list[Entry], dict[int, int], bool] | None:
    """An entry for each resource, each condition once; the number of its entry by the id() of every resource; and
    whether one of them is not what references to the resource say.  None: one of them cannot be asked for.

    `once`: the id() of resources that are not to be written over.  `known`: identifiers by the id() of resources.
    """
    entries: list[Entry] = []
    numbers: dict[int, int] = {}
    by_condition: dict[str, int] = {}
    is_renamed, urns = False, run.urns
    for resource in resources:
        number, place = id(resource), len(entries)
        try:
            method, own, query, condition = _request(resource, known.get(number), number in once)
        except Problem:
            return None
        if condition:
            twin = by_condition.setdefault(condition, place)
            if twin != place:
                numbers[number], is_renamed = twin, True
                _fill(entries[twin].resource or {}, resource)
                continue
        numbers[number] = place
        if own is not None or "meta" in resource:
            _put_in_order(resource)
        url = urns.get(number) or run.urn(resource)
        where = f"Bundle.entry[{place}]"
        entries.append(Entry(method, resource["resourceType"], own, resource, query, url, None, where))
    return entries, numbers, is_renamed


def _request(resource: Json, known: Json | None, is_once: bool) -> tuple[Method, str | None, Query | None, str]:
    """Method, id, condition, and a text that is equal for those that mean one resource (empty: no other does)."""
    resource_type = resource["resourceType"]
    if "id" in resource:
        own = resource["id"]
        return _UPDATE, own, None, f"{resource_type}/{own}"
    rule = RULES.get(resource_type, UPDATE)
    if rule == CREATE and not is_once:
        return _CREATE, None, None, ""
    identifier = known or plain_identifier(resource) or match_identifier(resource)
    if identifier is None:
        return _CREATE, None, None, ""
    system, value = identifier.get("system", ""), identifier["value"]
    if rule == CREATE_ONCE or is_once:
        query = _shared(resource_type, system, value)
        return _CREATE, None, query, query.canonical
    query = _query(resource_type, system, value)
    return _UPDATE, None, query, query.canonical


def _query(resource_type: str, system: str, value: str) -> Query:
    short = by_token(resource_type, "identifier", system, value) if system else None
    return short or parse_criteria(f"{resource_type}?identifier={token({'system': system, 'value': value})}")


_shared = lru_cache(maxsize=4096)(_query)
"""The search for a doctor, a ward or an organization, which come again and again."""


def _as_json(entry: Entry) -> Json:
    """An entry of a Bundle."""
    resource = entry.resource or {}
    is_once = entry.method is _CREATE and entry.condition is not None
    return {"fullUrl": entry.full_url, "resource": resource, "request": request(resource, is_once=is_once)}


# ---------------------------------------------------------------------------------- where a map wrote a request


def _merge(entries: list[Json], run: Run, once: set[int]) -> tuple[list[Json], dict[int, int], bool]:
    """The same as JSON; what a map says of an entry stands."""
    kept: list[Json] = []
    by_condition: dict[str, int] = {}
    numbers: dict[int, int] = {}
    is_renamed, urns = False, run.urns
    for entry in entries:
        resource = entry.get("resource")
        if resource is None:
            kept.append(entry)
            continue
        number, is_plain, how = id(resource), len(entry) == 1, entry.get("request")
        if how is None:
            how, condition = request_and_condition(resource, is_once=number in once)
        else:
            condition = _condition(how)
        twin = by_condition.get(condition) if condition else None
        if twin is not None:
            numbers[number], is_renamed = twin, True
            _fill(kept[twin]["resource"], resource)
            continue
        url = entry.get("fullUrl") or urns.get(number) or run.urn(resource)
        if "id" in resource or "meta" in resource:
            _put_in_order(resource)
        made = {"fullUrl": url, "resource": resource, "request": how}
        if not is_plain:
            is_renamed = True
            made |= {key: value for key, value in entry.items() if key not in made}
        by_condition[condition] = numbers[number] = len(kept)
        kept.append(made)
    return kept, numbers, is_renamed


def _condition(how: Json) -> str:
    """What an entry is found by; empty when it is not conditional."""
    once = how.get("ifNoneExist")
    if once:
        return f"{how['url']}?{once}"
    return how["url"] if how.get("method") == "PUT" else ""


# ----------------------------------------------------------------------------------------------------- in place


def _finish(bundle: Json, entries: list[Json]) -> None:
    """The members of a Bundle in their order."""
    made: Json = {key: bundle[key] for key in ("resourceType", "id", "meta", "type") if key in bundle}
    made.update({key: value for key, value in bundle.items() if key not in made}, entry=entries)
    bundle.clear()
    bundle.update(made)


def _fill(resource: Json, twin: Json) -> None:
    """What the second description of a thing adds to the first; where both speak, the first counts."""
    for key, value in twin.items():
        resource.setdefault(key, value)


def _put_in_order(resource: Json) -> None:
    """resourceType, id and meta first.  In place, since others hold the resource."""
    rest = dict(resource)
    resource.clear()
    for key in ("resourceType", "id", "meta"):
        if key in rest:
            resource[key] = rest.pop(key)
    resource.update(rest)


def _rewrite_all(value: Any, urls: dict[str, str]) -> None:
    """Replace references wherever they stand: only needed when a map kept one in a variable."""
    items = list(value.items()) if type(value) is dict else list(enumerate(value))
    for key, one in items:
        if type(one) in (dict, list):
            _rewrite_all(one, urls)
        elif type(one) is str and urls.get(one, one) != one:
            value[key] = urls[one]
