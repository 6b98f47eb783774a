"""The target side of a rule, compiled: closures that put a value where the definitions say it belongs.

`store` closures take the parent object and the value.  Whether the element repeats, and its JSON name among a choice of
types, is settled when the map is compiled.  New elements are noted in `Run.created`, since they may stay empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipf.mapping.kinds import Kind, Member, Models
from ipf.mapping.run import Frame
from ipf.mapping.scope import Act, Get
from ipf.ports import Json

Store = Callable[[Json, Any], None]
Make = Callable[[Frame], Json]


@dataclass(frozen=True, slots=True)
class Spot:
    """Where values of one kind go: `key` of the object at place `parent` of the frame.

    `many`: appended to a list.  `others`: the names of a choice that must go when this one comes.  `is_open`: the model
    is unknown, so a second value makes it a list.
    """

    parent: int
    key: str
    many: bool = False
    others: frozenset[str] = frozenset()
    is_open: bool = False


def spot(member: Member | None, name: str, kind: Kind, parent: int) -> Spot:
    """The place of element `name` for a value of `kind`; without a member the model is unknown."""
    if member is None:
        return Spot(parent, name, is_open=True)
    if not member.is_choice:
        return Spot(parent, member.key, member.many)
    key = member.keys.get(kind.name, member.key)
    return Spot(parent, key, member.many, frozenset(member.keys.values()) - {key})


def storer(place: Spot) -> Store:
    """A closure that puts a value into the object given."""
    key, others = place.key, place.others
    if place.is_open:
        return _store_unknown(key)
    if place.many:
        return _append(key)
    return _replace_choice(key, others) if others else _replace(key)


def _replace(key: str) -> Store:
    def store(parent: Json, value: Any) -> None:
        parent[key] = value

    return store


def _replace_choice(key: str, others: frozenset[str]) -> Store:
    def store(parent: Json, value: Any) -> None:
        if len(parent) > 1:
            for name in parent:
                if name in others:
                    del parent[name]
                    break
        parent[key] = value

    return store


def _append(key: str) -> Store:
    def store(parent: Json, value: Any) -> None:
        held = parent.get(key)
        if held is None:
            parent[key] = [value]
        else:
            held.append(value)

    return store


def _store_unknown(key: str) -> Store:
    """Of a model that is not loaded it is not known what repeats: a second value makes it a list."""

    def store(parent: Json, value: Any) -> None:
        held = parent.get(key)
        if held is None:
            parent[key] = value
        elif type(held) is list:
            held.append(value)
        else:
            parent[key] = [held, value]

    return store


def put_constant(place: Spot, value: Any) -> Act:
    """`tgt.x = 'text'`"""
    parent, key = place.parent, place.key
    if not (place.many or place.others or place.is_open):

        def replace(frame: Frame) -> None:
            frame[parent][key] = value

        return replace
    store = storer(place)
    return lambda frame: store(frame[parent], value)


def put(place: Spot, get: Get) -> Act:
    """`tgt.x = value`; nothing for None."""
    parent, key = place.parent, place.key
    if not (place.many or place.others or place.is_open):

        def replace(frame: Frame) -> None:
            value = get(frame)
            if value is not None:
                frame[parent][key] = value

        return replace
    store = storer(place)

    def act(frame: Frame) -> None:
        value = get(frame)
        if value is not None:
            store(frame[parent], value)

    return act


def list_placer(key: str, mode: str) -> Callable[[Frame, Json, Any], None]:
    """List modes `first` and `last` of a target: where in the list a value goes."""

    def place_first(frame: Frame, parent: Json, value: Any) -> None:
        held = parent.setdefault(key, [])
        firsts = frame[0].firsts
        position = firsts.get(id(held), 0)
        held.insert(position, value)
        firsts[id(held)] = position + 1

    def place_last(frame: Frame, parent: Json, value: Any) -> None:
        held = parent.setdefault(key, [])
        held.append(value)
        frame[0].lasts.append((held, value))

    return place_first if mode == "first" else place_last


def maker(models: Models, place: Spot, kind: Kind) -> Make:
    """How a new, still empty element is made.

    An element that repeats gets one more; one that does not is made once and found again, unless it is a resource.
    """
    template: Json = {"resourceType": kind.name} if models.is_resource(kind) else {}
    if place.many and not template:
        return _make_one_more(place.parent, place.key)
    if not place.many and not place.is_open and not template:
        return _find_or_make(place.parent, place.key)
    return _make(storer(place), place.key, place.parent, template)


def _make_one_more(parent: int, key: str) -> Make:
    def make(frame: Frame) -> Json:
        owner: Json = frame[parent]
        made: Json = {}
        held = owner.get(key)
        if held is None:
            owner[key] = [made]
        else:
            held.append(made)
        frame[0].created.append((owner, key, made))
        return made

    return make


def _find_or_make(parent: int, key: str) -> Make:
    def make(frame: Frame) -> Json:
        owner: Json = frame[parent]
        held = owner.get(key)
        if type(held) is dict:
            return held
        made: Json = {}
        owner[key] = made
        frame[0].created.append((owner, key, made))
        return made

    return make


def _make(store: Store, key: str, parent: int, template: Json) -> Make:
    def make(frame: Frame) -> Json:
        owner: Json = frame[parent]
        made = dict(template)
        store(owner, made)
        frame[0].created.append((owner, key, made))
        return made

    return make


def sharer(make: Make, rule_id: str, parent: int) -> Make:
    """List mode `share`: one element for all rules of this id under the same parent."""

    def shared(frame: Frame) -> Json:
        instances: dict[tuple[int, str], Json] = frame[0].shared
        key = (id(frame[parent]), rule_id)
        found = instances.get(key)
        if found is None:
            found = instances[key] = make(frame)
        return found

    return shared
