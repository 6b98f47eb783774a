"""Times as people read and write them: local ones in tables, ISO 8601 in files, and those of options.

What arrives: a text of the service in UTC, or what somebody typed.  What leaves: a text for a table or a file, or the
ISO 8601 text of a request.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import click

UTC_ASKED = "ipf.cli.utc"
"""The key of `click.Context.meta` that `--utc` sets."""
_MOMENT = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)$")
_AGO = re.compile(r"^(\d{1,6})\s?(min|m|h|d)$")
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days"}


def for_people(text: str, utc: bool) -> str:
    """`2026-11-29 18:15:49` in the zone of this host, or in UTC; a text that is no time stays as it is."""
    moment = _moment(text)
    return text if moment is None else f"{_in_zone(moment, utc):%Y-%m-%d %H:%M:%S}"


def for_files(text: str, utc: bool) -> str:
    """`2026-11-29T18:15:49.123000+01:00` in the zone of this host, or in UTC; any other text stays as it is."""
    moment = _moment(text)
    return text if moment is None else _in_zone(moment, utc).isoformat().replace("+00:00", "Z")


def _moment(text: str) -> datetime | None:
    if not _MOMENT.match(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:  # such as the 13th month
        return None


def _in_zone(moment: datetime, utc: bool) -> datetime:
    try:
        return moment.astimezone(UTC if utc else None)
    except (OverflowError, OSError):  # the first and the last day of all times
        return moment


class Moment(click.ParamType):  # type: ignore[type-arg]  # no parameter in the oldest Click
    """The type of an option: a time as tables show it, ISO 8601, or a time ago such as `15m`, `2h`, `3d`."""

    name = "time"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """ISO 8601 in UTC.  Without an offset it is local time, with `--utc` UTC, as in tables."""
        text = value.strip()
        ago = _AGO.match(text)
        if ago:
            moment = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
            return moment.isoformat(timespec="seconds").replace("+00:00", "Z")
        try:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC) if ctx and ctx.meta.get(UTC_ASKED) else moment.astimezone()
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no time: write 2026-11-29 18:15, 2026-11-29, 15m, 2h or 3d (ago)", param, ctx)
