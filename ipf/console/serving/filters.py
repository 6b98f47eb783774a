"""Filters as people write them: types of messages and times, as the engine asks for them.

What arrives: what somebody typed, pasted, or took from a page.  What leaves: the value of a parameter of the admin API.
What is not understood goes to the engine as it is, which says what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

TIMES = ("received_from", "received_to", "since", "until")
"""Filters that take a time."""
AGO = ("15m", "1h", "1d")
"""Times ago that the pages offer; texts `list.ago_NAME`."""
_AGO = re.compile(r"(\d{1,5}) ?(m|min|h|d)")
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?(?: ?(?:UTC|Z))?")


def asked(given: Mapping[str, str], now: datetime) -> dict[str, str]:
    """The parameters of a request.  `now`: for times ago."""
    made: dict[str, Callable[[str], str]] = {"message_type": message_type}
    made |= dict.fromkeys(TIMES, lambda text: moment(text, now))
    return {name: made.get(name, str)(text) for name, text in given.items()}


def message_type(text: str) -> str:
    """`ADT^A08`, `ADT^A08^ADT_A01`, `adt_a08`, `ADT-A08`, `ADT A08` -> `ADT_A08`."""
    parts = [part for part in re.split(r"[\^_ -]", text.strip().upper()) if part]
    return "_".join(parts[:2]) if parts else text


def moment(text: str, now: datetime) -> str:
    """`15m`, `2 h`, `1d` ago, `2026-11-29 18:15:49` and `2026-11-29 18:15:49 UTC` as ISO 8601.

    A time without a zone is UTC; the script of the list sends that of the reader with its zone.
    """
    ago = _AGO.fullmatch(text.strip().lower())
    if ago is not None:
        since = now.astimezone(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return since.isoformat(timespec="seconds").replace("+00:00", "Z")
    if _LOCAL.fullmatch(text.strip()) is None:
        return text
    plain = text.strip().removesuffix("UTC").removesuffix("Z").strip().replace(" ", "T")
    return f"{plain}Z" if "T" in plain else plain
