"""Pages out of templates: Jinja2 with automatic escaping, the texts of one language, times and numbers for people.

A time is written as UTC in `<time datetime=...>`; the script of the pages shows it in the time zone of the reader with
UTC on hover.  Without the script it stays UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, pass_context, select_autoescape
from jinja2.runtime import Context
from markupsafe import Markup

from ipf.console.html.bidi import isolated
from ipf.console.html.static import StaticFiles
from ipf.console.html.texts import texts
from ipf.fhir.model.json import indented


class Renderer:
    """Renders templates of `ipf/console/templates`, and those of the admin API in `ipf/wire/reference/templates`."""

    def __init__(self, static: StaticFiles) -> None:
        self._environment = Environment(
            loader=ChoiceLoader([PackageLoader("ipf.console"), PackageLoader("ipf.wire.reference")]),
            autoescape=select_autoescape(default=True, default_for_string=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "when": when,
            "number": _number,
            "breakable": breakable,
            "ago": ago,
            "sparkline": sparkline,
            "place": place,
            "shortened": shortened,
            "indented": indented_text,
        }
        self._environment.globals["static"] = static.url

    def page(self, template: str, language: str, values: dict[str, Any]) -> bytes:
        """The HTML of a template."""
        words = Words(texts(language), language)
        text = self._environment.get_template(template).render(t=words, language=language, **values)
        return isolated(text).encode()


class Words:
    """The texts of one language as templates use them: `t("list.range", first=1)`, `t.get("state.x", "x")`."""

    def __init__(self, texts: Mapping[str, str], language: str = "en") -> None:
        self._texts = texts
        self._language = language

    def __call__(self, key: str, **parts: object) -> str:
        """The text of a key; KeyError when there is none."""
        return self._texts[key].format(**parts) if parts else self._texts[key]

    def count(self, key: str, count: int, **parts: object) -> str:
        """The text of a count: `KEY_none` of 0 and `KEY_one` of 1 where they exist, else `KEY` with `{count}`."""
        exact = f"{key}_none" if count == 0 else f"{key}_one" if count == 1 else key
        return self(exact if exact in self._texts else key, count=number(count, self._language), **parts)

    def get(self, key: str, default: str) -> str:
        """The text of a key that may have none."""
        return self._texts.get(key, default)


def moment_of(value: object) -> datetime | None:
    """A time of the engine's APIs: ISO 8601, or a datetime."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return datetime.fromisoformat(str(value)).astimezone(UTC)
    except ValueError:
        return None


def when(value: object, form: str = "time") -> Markup:
    """A time.  `form`: `time`, or `clock`: hours, minutes and seconds alone."""
    moment = moment_of(value)
    if moment is None:
        return Markup("&ndash;")
    text = f"{moment:%H:%M:%S}" if form == "clock" else f"{moment:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" data-form="{}" title="{}">{}</time>').format(
        moment.isoformat().replace("+00:00", "Z"), form, text, text
    )


def ago(seconds: float | None) -> str:
    """A duration with one unit: `42 s`, `7 min`, `3 h`, `5 d`."""
    if seconds is None:
        return "–"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


_PARTS = re.compile(r"[^./|]*[./|]+|[^./|]+")
_PLACES = {"messages": "/messages/{}", "identity-conflicts": "/conflicts/{}", "jobs": "/jobs/{}",
           "subscriptions": "/subscriptions/{}", "unmapped-codes": "/codes/{}"}  # fmt: skip
_ROW = re.compile(r"([A-Za-z-]{1,64})/([A-Za-z0-9\-.]{1,64})(/_history/\d+)?")


def place(reference: str) -> str:
    """The page of what a reference names: of a resource (`Patient/7`), or of a row (`messages/7`); "" for none."""
    found = _ROW.fullmatch(reference)
    if found is None:
        return ""
    if found[1][:1].isupper():
        return f"/browse/{found[1]}/{found[2]}"
    is_page = found[2].isdigit() or found[1] == "subscriptions"
    return _PLACES[found[1]].format(found[2]) if found[1] in _PLACES and is_page else ""


def shortened(reference: str) -> str:
    """A reference for a narrow column: `Patient/01a208d2…`."""
    kind, _, id = reference.partition("/")
    id = id.partition("/")[0]
    return f"{kind}/{id[:8]}…" if len(id) > 12 else f"{kind}/{id}"


def sparkline(counts: Sequence[int], width: int = 120, height: int = 24) -> Markup:
    """Counts as a line; a picture for those who see it, the figures beside it say the same."""
    most, step = max([1, *counts]), width / max(len(counts) - 1, 1)
    high = height - 2
    points = " ".join(f"{place * step:.1f},{1 + high - count / most * high:.1f}" for place, count in enumerate(counts))
    return Markup(
        '<svg class="spark" width="{}" height="{}" viewBox="0 0 {} {}" aria-hidden="true"><polyline points="{}"/></svg>'
    ).format(width, height, width, height, points)


def number(value: object, language: str = "en") -> str:
    """A number with thin spaces between groups of three digits, and at most one digit of a fraction.

    `console.js` has the same.  The decimal sign is that of the language.
    """
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return str(value)
    whole, _, fraction = f"{value:,.1f}".partition(".")
    sign = "," if language == "de" else "."
    return whole.replace(",", "\u202f") + (f"{sign}{fraction}" if fraction != "0" else "")


@pass_context
def _number(context: Context, value: object) -> str:
    return number(value, str(context.get("language", "en")))


def breakable(path: object) -> Markup:
    """A path of elements, which may be broken behind its dots and slashes, and nowhere else."""
    return Markup("<wbr>").join(Markup.escape(part) for part in _PARTS.findall(str(path)))


def indented_text(value: Any) -> str:
    """JSON for reading, with every decimal as it was sent."""
    return indented(value).decode()
