"""From the Bundle of a map to entries for the store, and to a transaction Bundle on demand.

Each entry gets a `fullUrl` and, without one from the map, a request that finds its resource again (`identity`).
Entries with the same identifier (system, value and type) become one entry, and references to them are rewritten.

Most maps leave the requests to the engine.  Their entries are made directly, with an `Identity`, without text of
requests and searches.  A map with a request of its own gets a Bundle, and its entries are read from there.

Source: https://hl7.org/fhir/R4/http.html#transaction
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from ipf.errors import Problem
from ipf.mapping.bundle.contents import ContentsOfNumber, condition_of, content_of, is_numbered
from ipf.mapping.bundle.entry_json import entry_as_json
from ipf.mapping.bundle.field_sources import Update, attach
from ipf.mapping.bundle.identity import (
    BY_IDENTIFIER,
    CREATE,
    CREATE_ONCE,
    DERIVED,
    RULES,
    UPDATE,
    Deriver,
    match_identifier,
    plain_identifier,
    request,
    update_by_any,
)
from ipf.mapping.bundle.keys import identity_of, with_further_numbers
from ipf.mapping.bundle.merging import dropped_paths, fill, renew
from ipf.mapping.bundle.numbered_links import attach_numbered
from ipf.mapping.bundle.orders import ORDER, repeated_number, services
from ipf.mapping.bundle.parent_results import link_parents
from ipf.mapping.bundle.replaced_orders import link_replaced
from ipf.mapping.bundle.segment_sets import attach_sets
from ipf.mapping.language.identity_table import IdentityTable
from ipf.mapping.runtime.references import point
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from ipf.ports.identity import Identity, IdentityKey, Role, Service
from ipf.ports.queries.entries import Entry, Link, Method

_CREATE, _UPDATE = Method.CREATE, Method.UPDATE
_is_id = re.compile(r"[A-Za-z0-9\-.]{1,64}").fullmatch


class Transaction:
    """The finished result of a map.  `entries`: None when a map wrote a request; they are in the Bundle then.

    `references`: every reference to an entry; None: there may be others (a map kept one in a variable).
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
        """The fullUrl by id() of each resource."""
        return {number: self._urls[place] for number, place in self._numbers.items()}

    def bundle(self) -> Json:
        """The transaction Bundle.  Call it before the entries are stored."""
        if not self._is_finished:
            self._is_finished = True
            _finish(self._bundle, [entry_as_json(entry) for entry in self.entries or ()])
        return self._bundle

    def hold(self, entries: list[Entry], numbers: dict[int, int]) -> None:
        """Take entries made by the engine; `numbers`: entry by id() of resource."""
        self.entries, self._numbers, self._is_finished = tuple(entries), numbers, False
        self._urls = [entry.full_url or "" for entry in entries]

    def put(self, entries: list[Json], numbers: dict[int, int]) -> None:
        """The same with entries as JSON."""
        self._numbers, self._urls = numbers, [one.get("fullUrl", "") for one in entries]
        _finish(self._bundle, entries)

    def link(self, run: Run, *, is_renamed: bool) -> None:
        """Record the references to entries; `is_renamed`: some of them do not have the name of their entry yet."""
        found: list[Link] = []
        number_of, urls = self._numbers.get, self._urls
        for holder, name, resource in run.references:
            number = number_of(id(resource))
            if number is not None and name in holder:
                if is_renamed:
                    point(holder, name, (run.urn(resource),), urls[number])
                found.append((holder, name, number))
        if run.loose_references:
            merged = self.merged
            known = {urn: merged[number] for number, urn in run.urns.items() if number in merged}
            _rewrite_all([entry.resource for entry in self.entries] if self.entries else self._bundle["entry"], known)
        else:
            self.references = found


@dataclass(frozen=True, slots=True)
class Rules:
    """`table`: which numbers identify.  `moves`: resource types that the map moves from one Patient to another.

    `update`: what an HL7 v2 message states; None = the source is none.
    """

    table: IdentityTable = field(default_factory=IdentityTable)
    moves: frozenset[str] = frozenset()
    update: Update | None = None


DEFAULT_RULES = Rules()


def complete(bundle: Json, run: Run, rules: Rules = DEFAULT_RULES) -> Transaction:
    """Finish a Bundle in place.  A Bundle of another type than transaction, or no Bundle, is not changed."""
    made = finished(bundle, run, rules)
    made.bundle()
    return made


def finished(bundle: Json, run: Run, rules: Rules = DEFAULT_RULES) -> Transaction:
    """The same, but the Bundle is finished on demand."""
    made = Transaction(bundle)
    if bundle.get("resourceType") != "Bundle" or bundle.setdefault("type", "transaction") != "transaction":
        return made
    given = [one for one in bundle.get("entry", ()) if "resource" in one or _stands_alone(one)]
    once = {id(one["resource"]) for one in given if len(one) > 1 and "request" in one and _wants_identifier(one)}
    renewed = {id(one["resource"]) for one in given if len(one) > 1 and "request" in one and _wants_update(one)}
    made_by_map = [one["resource"] for one in given if "resource" in one]
    link_parents(made_by_map, run)
    link_replaced(made_by_map, run)
    deriver = Deriver(given, run, rules.table)
    known = deriver.derive()
    usual = None
    if _are_usual(given):
        usual = _Entries(run, once, renewed, known, deriver, rules).of([one["resource"] for one in given])
    if usual is not None:
        entries, numbers, is_renamed = usual
        made.hold(entries, numbers)
        if rules.update is not None:
            attach(entries, numbers, run, rules.update)
    else:
        kept, numbers, is_renamed = _merge(given, run, once, renewed, rules.table)
        made.put(kept, numbers)
    made.link(run, is_renamed=is_renamed)
    if rules.update is not None and made.entries is not None:
        attach_sets(made.entries, numbers, run, rules.update)
        attach_numbered(made.entries, run)
    run.dropped += dropped_paths(run.lost)
    return made


def _are_usual(entries: list[Json]) -> bool:
    """Whether the map left all requests to the engine, and set no invalid id (the store reports it)."""
    for entry in entries:
        if len(entry) > 1 or ("id" in entry["resource"] and not _is_id(entry["resource"]["id"])):
            return False
    return True


def _stands_alone(entry: Json) -> bool:
    """Whether an entry without a resource has a request, such as a deletion."""
    return "request" in entry and bool(entry["request"].get("ifNoneExist") != BY_IDENTIFIER)


def _wants_identifier(entry: Json) -> bool:
    """Whether the map set BY_IDENTIFIER; removes the placeholder."""
    if entry["request"].get("ifNoneExist") != BY_IDENTIFIER or "resource" not in entry:
        return False
    del entry["request"]
    return True


def _wants_update(entry: Json) -> bool:
    """Whether the map wrote a PUT with the url BY_IDENTIFIER; removes the placeholder."""
    if entry["request"].get("url") != BY_IDENTIFIER or "resource" not in entry:
        return False
    del entry["request"]
    return True


# ------------------------------------------------------------------------- requests of the engine


class _Entries:
    """The entries of one message.

    `once`: the id() of resources that are not to be written over.  `renewed`: of those that the map updates whatever
    their type.  `known`: identifiers by the id() of resources.
    """

    def __init__(
        self,
        run: Run,
        once: set[int],
        renewed: set[int],
        known: dict[int, Json],
        deriver: Deriver,
        rules: Rules,
    ) -> None:
        self._run = run
        self._once = once
        self._renewed = renewed
        self._known = known
        self._deriver = deriver
        self._rules = rules
        self._services: dict[int, tuple[Service, int]] = {}
        self._places: dict[Any, int] = {}
        self._under: dict[int, ContentsOfNumber] = {}
        self._orders: dict[str, str] = {}  # entries of orders by names that the orders have beside
        self._shared: dict[tuple[str, str, str], dict[str, int]] = {}

    def of(self, resources: list[Json]) -> tuple[list[Entry], dict[int, int], bool] | None:
        """An entry for each resource, each identity once; the number of its entry by the id() of every resource; and
        whether one of them is not what references to the resource say.  None: one of them cannot be asked for.
        """
        entries: list[Entry] = []
        numbers: dict[int, int] = {}
        is_renamed, urns = False, self._run.urns
        orders = [one for one in resources if one["resourceType"] == ORDER and "id" not in one]
        if orders:
            named = [(one, match_identifier(one)) for one in orders]
            self._services = services([(one, number) for one, number in named if number is not None], self._once)
        for resource in resources:
            number, place = id(resource), len(entries)
            try:
                method, own, identity = self._request(resource)
            except Problem:
                return None
            twin = self._twin(resource["resourceType"], own, identity, place)
            if identity is not None and is_numbered(resource["resourceType"]):
                twin, identity = self._numbered(resource, identity, twin, entries)
            if twin != place:
                numbers[number], is_renamed = twin, True
                self._unite(entries[twin], resource, identity)
                if resource["resourceType"] == ORDER:
                    self._orders[urns.get(number, "")] = entries[twin].full_url or ""
                continue
            numbers[number] = place
            if own is not None or "meta" in resource:
                _put_in_order(resource)
            url = urns.get(number) or self._run.urn(resource)
            where = f"Bundle.entry[{place}]"
            made = Entry(method, resource["resourceType"], own, resource, None, url, None, where, identity=identity)
            entries.append(made)
        return entries, numbers, is_renamed

    def _unite(self, entry: Entry, resource: Json, identity: Identity | None) -> None:
        """Add a second resource for an entry; one that the map updates whatever its type wins."""
        held = entry.resource or {}
        if id(resource) in self._renewed:
            entry.method, entry.identity = _UPDATE, identity
            renew(held, resource, self._run.lost)
        else:
            fill(held, resource, self._run.lost)

    def _request(self, resource: Json) -> tuple[Method, str | None, Identity | None]:
        resource_type, number = resource["resourceType"], id(resource)
        if "id" in resource:
            return _UPDATE, resource["id"], None
        rule, is_once = RULES.get(resource_type, UPDATE), number in self._once
        if rule == CREATE and not is_once:
            return _CREATE, None, None
        identifier = self._known.get(number) or plain_identifier(resource) or match_identifier(resource)
        if identifier is None:
            return _CREATE, None, None
        is_renewed = number in self._renewed
        is_once = is_once or rule == CREATE_ONCE
        if resource_type == "Patient":
            identity = self._deriver.identity(resource, identifier)
        else:
            role = Role.AUXILIARY if is_once and not is_renewed else Role.PRINCIPAL
            identity = identity_of(resource, identifier, role, may_move=resource_type in self._rules.moves)
        if is_renewed:
            identity = with_further_numbers(identity, resource, is_shared=rule == CREATE_ONCE)
        if number in self._services:
            identity = self._of_order(resource, identity)
        return _CREATE if is_once and not is_renewed else _UPDATE, None, identity

    def _of_order(self, resource: Json, identity: Identity) -> Identity:
        """The identity of an order by its number and service; a further one of both gets a number of its own."""
        service, repeat = self._services[id(resource)]
        if not repeat:
            return replace(identity, service=service)
        number = repeated_number(identity.keys[0], service, repeat)
        resource["identifier"] = [*resource["identifier"], {"system": DERIVED, "value": number}]
        return replace(identity, keys=(IdentityKey(DERIVED, "", number),))

    def _numbered(self, resource: Json, identity: Identity, twin: int, entries: list[Entry]) -> tuple[int, Identity]:
        """The entry of the same number whose content does not contradict; else the place of a new one."""
        place, content = len(entries), content_of(resource, self._orders)
        if twin == place or content is None:
            return twin, identity
        under = self._under.setdefault(twin, ContentsOfNumber(twin, self._orders))
        number = under.find(content, lambda one: entries[one].resource or {})
        if number is not None:
            return number, identity
        first = entries[twin]
        if first.identity is not None and first.resource is not None and not first.identity.further:
            first.identity = replace(first.identity, further=condition_of(first.resource))
        under.add(content, place)
        return place, replace(identity, further=condition_of(resource))

    def _twin(self, resource_type: str, own: str | None, identity: Identity | None, place: int) -> int:
        """The number of the entry for the same resource; `place` when there is none."""
        if identity is None:
            return place if own is None else self._places.setdefault((resource_type, own), place)
        key = identity.keys[0]
        if identity.service is not None:
            return self._places.setdefault((resource_type, key, identity.service.codes), place)
        if RULES.get(resource_type) != CREATE_ONCE:
            return self._places.setdefault((resource_type, key), place)
        kinds = self._shared.setdefault((resource_type, key.system, key.value), {})
        if key.type not in kinds:
            if "" in kinds or (not key.type and kinds):  # the same number, once without its type
                return kinds[""] if "" in kinds else next(iter(kinds.values()))
            kinds[key.type] = place
        return kinds[key.type]


# ------------------------------------------------------------------------- requests of the map


def _merge(
    entries: list[Json], run: Run, once: set[int], renewed: set[int], table: IdentityTable
) -> tuple[list[Json], dict[int, int], bool]:
    """The same as JSON; members of an entry from the map stay.

    `renewed`: the id() of resources that the map updates whatever their type; they win over a twin.
    """
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
        if number in renewed:
            how, condition = update_by_any(resource)
        elif how is None:
            how, condition = request(resource, table, is_once=number in once)
        else:
            condition = _condition(how)
        twin = by_condition.get(condition) if condition else None
        if twin is not None:
            numbers[number], is_renamed = twin, True
            if number in renewed:
                kept[twin]["request"] = how
                renew(kept[twin]["resource"], resource, run.lost)
            else:
                fill(kept[twin]["resource"], resource, run.lost)
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
    """The condition of an entry; empty when it is not conditional."""
    once = how.get("ifNoneExist")
    if once:
        return f"{how['url']}?{once}"
    return how["url"] if how.get("method") == "PUT" else ""


# ----------------------------------------------------------------------------------------------------- in place


def _finish(bundle: Json, entries: list[Json]) -> None:
    """The members of a Bundle in their order."""
    made = {key: bundle[key] for key in ("resourceType", "id", "meta", "type", *bundle) if key in bundle}
    bundle.clear()
    bundle.update(made, entry=entries)


def _put_in_order(resource: Json) -> None:
    """resourceType, id and meta first.  In place, since others refer to the object."""
    rest = dict(resource)
    resource.clear()
    for key in ("resourceType", "id", "meta"):
        if key in rest:
            resource[key] = rest.pop(key)
    resource.update(rest)


def _rewrite_all(value: Any, urls: dict[str, str]) -> None:
    """Replace references anywhere: only needed when a map kept one in a variable."""
    items = list(value.items()) if type(value) is dict else list(enumerate(value))
    for key, one in items:
        if type(one) in (dict, list):
            _rewrite_all(one, urls)
        elif type(one) is str and urls.get(one, one) != one:
            value[key] = urls[one]
