"""The target side of a rule, compiled: closures that put a value where the definitions say it belongs.

`store` closures take the parent object and the value.  Whether the element repeats, and its JSON name among a choice of
types, is settled when the map is compiled.  New elements are noted in `Run.created`, since they may stay empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipf.mapping.kinds import Kind, Member, Models
from ipf.mapping.run import Frame
from ipf.ports import Json

Store = Callable[[Json, Any], None]
Make = Callable[[Frame], Json]


def storer(member: Member | None, name: str, kind: Kind) -> Store:
    """How a value of `kind` is put into element `name`; without a member the model is unknown."""
    if member is None:
        return _store_unknown(name)
    key = member.keys.get(kind.name, member.key) if member.is_choice else member.key
    if member.many:
        return _append(key)
    if member.is_choice:
        return _replace_choice(key, frozenset(member.keys.values()) - {key})
    return _replace(key)


def _replace(key: str) -> Store:
    def store(parent: Json, value: Any) -> None:
        parent[key] = value

    return store


def _replace_choice(key: str, others: frozenset[str]) -> Store:
    def store(parent: Json, value: Any) -> None:
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


def list_placer(member: Member, mode: str) -> Callable[[Frame, Json, Any], None]:
    """List modes `first` and `last` of a target: where in the list a value goes."""
    key = member.key

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


def maker(models: Models, member: Member | None, name: str, kind: Kind, parent: int) -> Make:
    """How a new, still empty element is made under the object at place `parent` of the frame.

    An element that repeats gets one more; one that does not is made once and found again, unless it is a resource.
    """
    template: Json = {"resourceType": kind.name} if models.is_resource(kind) else {}
    if member is not None and not member.many and not template:
        key = member.keys.get(kind.name, member.key) if member.is_choice else member.key
        return _find_or_make(key, parent)
    store = storer(member, name, kind)
    key = name if member is None else member.keys.get(kind.name, member.key) if member.is_choice else member.key
    return _make(store, key, parent, template)


def _find_or_make(key: str, parent: int) -> Make:
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
