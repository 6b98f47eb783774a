"""Operation parameters: from the URL or a Parameters resource, and Parameters as a response.

Source: https://hl7.org/fhir/R4/operations.html#request
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Any

from ipf.errors import Category, Problem
from ipf.fhir.model.dates import date_range, moment
from ipf.fhir.structure.check import check_type
from ipf.ports import Json, Request
from ipf.ports.threads import RunInThread, run_by_size
from ipf.rest.http.exchange import resource_body, selection


class Parts(tuple[tuple[str, Any], ...]):
    """The names and values of the parts of a parameter."""

    __slots__ = ()


class Arguments:
    """Named values: strings, numbers and booleans unchanged, structures and resources as JSON objects."""

    def __init__(self, pairs: Iterable[tuple[str, Any]], known: Collection[str] | None) -> None:
        self._values: dict[str, list[Any]] = defaultdict(list)
        for name, value in pairs:
            if known is not None and name not in known:
                raise Problem(Category.NOT_SUPPORTED, f"this operation has no parameter {name[:60]}", name[:60])
            self._values[name].append(value)

    @classmethod
    def of(cls, request: Request, known: Collection[str] | None) -> Arguments:
        """The parameters of a request.  Problem NOT_SUPPORTED for one that is not `known`; None: any name is."""
        pairs: list[tuple[str, Any]] = list(selection(request.query))
        if request.method == "POST" and request.body:
            sent = resource_body(request, "Parameters").get("parameter", ())
            for one in sent if isinstance(sent, list | tuple) else [None]:
                if not isinstance(one, dict) or not isinstance(one.get("name"), str):
                    raise Problem(Category.MALFORMED, "a parameter needs a name", "Parameters.parameter")
                pairs.append((one["name"], value_of(one)))
        return cls(pairs, known)

    @classmethod
    async def read(cls, request: Request, known: Collection[str] | None, run_in_thread: RunInThread) -> Arguments:
        """`of`; a large body is parsed in a thread."""
        return await run_by_size(len(request.body), run_in_thread, lambda: cls.of(request, known))

    def has(self, name: str) -> bool:
        """Whether the parameter is there."""
        return name in self._values

    def text(self, name: str) -> str | None:
        """One string; Problem VALUE for another type."""
        value = self._one(name)
        if value is not None and not isinstance(value, str):
            raise Problem(Category.VALUE, f"{name} must be a text", name)
        return value

    def texts(self, name: str) -> list[str]:
        """All strings of a repeatable parameter, which may also be separated by commas."""
        values = self._values.get(name, ())
        if not all(isinstance(value, str) for value in values):
            raise Problem(Category.VALUE, f"{name} must be a text", name)
        return [part for value in values for part in value.split(",") if part]

    def required(self, name: str) -> str:
        """One required string."""
        value = self.text(name)
        if not value:
            raise Problem(Category.REQUIRED, f"the parameter {name} is required", name)
        return value

    def number(self, name: str) -> int | None:
        """A whole number, 0 or more."""
        value = self._one(name)
        if value is None:
            return None
        if isinstance(value, bool) or not str(value).isascii() or not str(value).isdigit() or len(str(value)) > 9:
            raise Problem(Category.VALUE, f"{name} must be a number from 0", name)
        return int(value)

    def parts(self, name: str) -> list[dict[str, Any]]:
        """The parts of a repeatable parameter, each by name.  Problem VALUE for a value instead of parts."""
        values = self._values.get(name, [])
        if not all(isinstance(value, Parts) for value in values):
            raise Problem(Category.VALUE, f"{name} must have parts, in Parameters", name)
        return [dict(value) for value in values]

    def everything(self) -> list[tuple[str, Any]]:
        """Names and values of all parameters."""
        return [(name, one) for name, some in self._values.items() for one in some]

    def given(self) -> list[tuple[str, Any]]:
        """Names and values of all parameters that are no structures."""
        return [(name, one) for name, one in self.everything() if not isinstance(one, dict | Parts)]

    def pairs(self) -> list[tuple[str, str]]:
        """All parameters as in a URL.  Problem VALUE for a value that is no text, number or boolean."""
        found = []
        for name, value in self.everything():
            if isinstance(value, bool):
                value = "true" if value else "false"
            if value is None or isinstance(value, dict | tuple | list):
                raise Problem(Category.VALUE, f"{name[:60]} must have a text as in a URL, in valueString", name[:60])
            found.append((name, str(value)))
        return found

    def today(self, name: str, now: datetime) -> None:
        """A date for which definitions are asked: those of now are there, no others.

        Problem NOT_SUPPORTED for a date in the past, VALUE for what is no date.
        """
        value = self.text(name)
        span = date_range(value.replace(" ", "+")) if value is not None else None
        if value is not None and span is None:
            raise Problem(Category.VALUE, f"{name} must be a date", name)
        if span is not None and moment(span[1]) + timedelta(days=1) <= now:
            text = f"this server has its definitions as they are now, not as they were at {str(value)[:40]}"
            raise Problem(Category.NOT_SUPPORTED, text, name)

    def boolean(self, name: str, default: bool = False) -> bool:
        """A boolean, of the URL or of Parameters; `default` when absent."""
        value = self._one(name)
        if value is None:
            return default
        if not isinstance(value, bool) and value not in ("true", "false"):
            raise Problem(Category.VALUE, f"{name} must be true or false", name)
        return value in (True, "true")

    def structure(self, name: str, kind: str) -> Json | None:
        """One value of a data type or one resource.  Problem MALFORMED names the elements that are not of its type."""
        self._one(name)
        return next(iter(self.structures(name, kind)), None)

    def structures(self, name: str, kind: str) -> list[Json]:
        """All values of a repeatable parameter, as `structure`."""
        values = self._values.get(name, [])
        for value in values:
            if not isinstance(value, dict):
                raise Problem(Category.VALUE, f"{name} must be sent in Parameters", name)
            check_type(value, kind, name)
        return values

    def resources(self, name: str, kinds: Collection[str]) -> list[Json]:
        """All values of a repeatable parameter, each a resource of one of these types."""
        values = self._values.get(name, [])
        for value in values:
            kind = str(value.get("resourceType")) if isinstance(value, dict) else ""
            if kind not in kinds:
                raise Problem(Category.VALUE, f"{name} must be a resource of type {' or '.join(kinds)}", name)
            check_type(value, kind, name)
        return values

    def choices(self, name: str, kind: str) -> list[str | Json]:
        """All values of a repeatable parameter that is a string in a URL and a structure in Parameters."""
        values = self._values.get(name, [])
        for value in values:
            if not isinstance(value, str | dict):
                raise Problem(Category.VALUE, f"{name} must be a text or a {kind}", name)
            if isinstance(value, dict):
                check_type(value, kind, name)
        return [part for value in values for part in (value.split(",") if isinstance(value, str) else [value]) if part]

    def _one(self, name: str) -> Any:
        values = self._values.get(name, ())
        if len(values) > 1:
            raise Problem(Category.VALUE, f"{name} may be given once", name)
        return values[0] if values else None


def value_of(parameter: Json) -> Any:
    """The value, the resource or the parts of a parameter.  Problem MALFORMED for two of them."""
    given = [name for name in parameter if name in ("resource", "part") or name.startswith("value")]
    if len(given) > 1:
        name = str(parameter.get("name"))[:60]
        text = f"the parameter {name} has {given[0][:60]} and {given[1][:60]}: it may have one value"
        raise Problem(Category.MALFORMED, text, "Parameters.parameter")
    if "resource" in parameter:
        return parameter["resource"]
    if isinstance(parameter.get("part"), list | tuple):
        named = [one for one in parameter["part"] if isinstance(one, dict) and isinstance(one.get("name"), str)]
        return Parts((one["name"], value_of(one)) for one in named)
    return next((value for name, value in parameter.items() if name.startswith("value")), None)


def parameters_of(*members: Json | None) -> Json:
    """A Parameters resource of these; None is left out."""
    return {"resourceType": "Parameters", "parameter": [one for one in members if one is not None]}
