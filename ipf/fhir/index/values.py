"""The index entries of one value, by the type of the search parameter and the FHIR type of the value.

Each indexer writes the entries under the codes that it was made for.  A value that does not have the form of its type
(a stored resource need not be valid) gives no entry and no error.

Source: https://hl7.org/fhir/R4/search.html#ptypes
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

from ipf.fhir.index.entries import (
    clean,
    later_words,
    string_value,
    text_code,
    token_value,
    unit_value,
    word_codes,
    words_value,
)
from ipf.fhir.model.dates import FOREVER, date_range
from ipf.fhir.model.reference import indexed_form
from ipf.ports.queries.index import DateEntry, QuantityEntry, TextEntry

Codes = tuple[str, ...]
DateEntryRange = tuple[int, int] | None
INFINITY = Decimal("Infinity")
_STRING_TYPES = ("string", "markdown", "code", "id", "uri", "url", "canonical", "oid", "uuid", "xhtml")
_URI_TYPES = ("uri", "url", "canonical", "oid", "uuid")
PARTS = {
    "HumanName": ("family", "given", "prefix", "suffix", "text"),
    "Address": ("line", "city", "district", "state", "postalCode", "country", "text"),
}


class EntryCollector:
    """Entries of one resource while they are collected (repeats allowed)."""

    __slots__ = ("dates", "quantities", "texts")

    def __init__(self) -> None:
        self.texts: list[TextEntry] = []
        self.dates: list[DateEntry] = []
        self.quantities: list[QuantityEntry] = []


Indexer = Callable[[Any, EntryCollector], None]


def indexer_for(parameter_type: str, type_name: str, codes: Codes, covered: Codes = ()) -> Indexer | None:
    """The function that indexes values of a FHIR type for a type of parameter; None when they have no meaning there.

    `covered`: parts of a HumanName or an Address that other parameters write.
    """
    if covered:
        return _strings(_parts(tuple(one for one in PARTS[type_name] if one not in covered)))(codes)
    make = _MAKERS.get((parameter_type, type_name))
    return None if make is None else make(codes)


def _texts(values_of: Callable[[Any], Iterable[str]]) -> Callable[[Codes], Indexer]:
    """A maker of leaves that write each text of `values_of(value)` under each code."""

    def make(codes: Codes) -> Indexer:
        if len(codes) == 1:
            (code,) = codes

            def one_code(value: Any, entries: EntryCollector) -> None:
                entries.texts += [(code, text) for text in values_of(value)]

            return one_code

        def many_codes(value: Any, entries: EntryCollector) -> None:
            for text in values_of(value):
                for code in codes:
                    entries.texts.append((code, text))

        return many_codes

    return make


# Tokens


def _token_text(code: object, system: object) -> str:
    """The text value of a Coding or an Identifier; "" when it has neither code nor system."""
    system_text = system if type(system) is str else ""
    if type(code) is not str or not code:
        return token_value("", system_text) if system_text else ""
    return token_value(code, system_text)


def _token(code: object, system: object) -> tuple[str, ...]:
    text = _token_text(code, system)
    return (text,) if text else ()


def _primitive_token(value: Any) -> tuple[str, ...]:
    if value is True or value is False:
        return ("true\t",) if value else ("false\t",)
    return (token_value(value, ""),) if type(value) is str else ()


def _coding(value: Any) -> tuple[str, ...]:
    if type(value) is not dict:
        return ()
    return _token(value.get("code"), value.get("system"))


def _codeable_concept(value: Any) -> Iterable[str]:
    codings = value.get("coding") if type(value) is dict else None
    return [text for one in codings for text in _coding(one)] if type(codings) is list else ()


def _concept_texts(value: Any) -> Iterable[str]:
    """The text and the displays of a CodeableConcept."""
    if type(value) is not dict:
        return ()
    codings = value.get("coding")
    found = [one.get("display") for one in codings if type(one) is dict] if type(codings) is list else []
    found.append(value.get("text"))
    return [words_value(text) for text in {text for text in found if type(text) is str} if not text.isspace() and text]


def _concept(codes: Codes) -> Indexer:
    """Codes, and for `:text` the texts; as a component of a composite (its code is empty) codes alone."""
    write_codes = _texts(_codeable_concept)(codes)
    if not any(codes):
        return write_codes
    write_texts = _texts(_concept_texts)(tuple(map(text_code, codes)))

    def index(value: Any, entries: EntryCollector) -> None:
        write_codes(value, entries)
        write_texts(value, entries)

    return index


def _identifier(value: Any) -> tuple[str, ...]:
    return _token(value.get("value"), value.get("system")) if type(value) is dict else ()


# Strings


def _strings(values_of: Callable[[Any], Iterable[str]]) -> Callable[[Codes], Indexer]:
    """As `_texts`; for names also what begins with a later word, under codes of its own."""

    def make(codes: Codes) -> Indexer:
        write = _texts(values_of)(codes)
        by_word = tuple(one for code in codes for one in word_codes(code))
        if not by_word:
            return write

        def index(value: Any, entries: EntryCollector) -> None:
            start = len(entries.texts)
            write(value, entries)
            texts = {text for _, text in entries.texts[start:]}
            entries.texts += [(code, end) for text in texts for end in later_words(text) for code in by_word]

        return index

    return make


def _string(value: Any) -> tuple[str, ...]:
    if type(value) is not str or not value:
        return ()
    return (string_value(value),)


def _parts(names: tuple[str, ...]) -> Callable[[Any], Iterable[str]]:
    wanted = frozenset(names)

    def values(value: Any) -> Iterable[str]:
        if type(value) is not dict:
            return ()
        found: list[str] = []
        for name, part in value.items():
            if name in wanted:
                if type(part) is list:
                    for text in part:
                        found += _string(text)
                else:
                    found += _string(part)
        return found

    return values


def _concept_strings(value: Any) -> Iterable[str]:
    if type(value) is not dict:
        return ()
    codings = value.get("coding")
    displays = [one.get("display") for one in codings if type(one) is dict] if type(codings) is list else []
    return [text for one in (value.get("text"), *displays) for text in _string(one)]


# References and URIs


def _reference(value: Any) -> tuple[str, ...]:
    if type(value) is not dict:
        return ()
    text = value.get("reference")
    form = indexed_form(text) if type(text) is str else None
    identified = _identifier(value["identifier"]) if "identifier" in value else ()
    return identified if form is None else (clean(form), *identified)


def _uri(value: Any) -> tuple[str, ...]:
    return (clean(value),) if type(value) is str and value else ()


def _canonical(value: Any) -> tuple[str, ...]:
    if type(value) is not str or not value or value[0] == "#":
        return ()
    url, bar, _ = value.partition("|")
    return (clean(value), clean(url)) if bar else (clean(value),)


# Dates


def _date(value: Any) -> DateEntryRange:
    return date_range(value) if type(value) is str else None


def _period(value: Any) -> DateEntryRange:
    if type(value) is not dict:
        return None
    start, end = _date(value.get("start")), _date(value.get("end"))
    if start is None and end is None:
        return None
    return (-FOREVER if start is None else start[0]), (FOREVER if end is None else end[1])


def _timing(value: Any) -> DateEntryRange:
    """The outer limits of a schedule: its bounds and its events."""
    if type(value) is not dict:
        return None
    repeat, events = value.get("repeat"), value.get("event")
    ranges = [_date(one) for one in events] if type(events) is list else []
    ranges.append(_period(repeat.get("boundsPeriod")) if type(repeat) is dict else None)
    known = [one for one in ranges if one is not None]
    return (min(lo for lo, _ in known), max(hi for _, hi in known)) if known else None


def _dates(range_of: Callable[[Any], DateEntryRange]) -> Callable[[Codes], Indexer]:
    def make(codes: Codes) -> Indexer:
        def collect(value: Any, entries: EntryCollector) -> None:
            found = range_of(value)
            if found is not None:
                entries.dates.extend([(code, *found) for code in codes])

        return collect

    return make


# Numbers and quantities

Measured = tuple[Decimal, Decimal, str] | None


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, Decimal):
        return Decimal(value) if value.is_finite() else None
    if type(value) is int or type(value) is float:
        try:
            return Decimal(str(value))
        except InvalidOperation:
            return None
    return None


def _number(value: Any) -> Measured:
    number = _decimal(value)
    return None if number is None else (number, number, "")


def _unit(value: dict[str, Any]) -> str:
    parts = [value.get(name) for name in ("system", "code", "unit")]
    return unit_value(*(one if type(one) is str else "" for one in parts))


def _quantity(value: Any) -> Measured:
    number = _decimal(value.get("value")) if type(value) is dict else None
    if number is None:
        return None
    comparator = value.get("comparator")
    lo = -INFINITY if comparator in ("<", "<=") else number
    hi = INFINITY if comparator in (">", ">=") else number
    return lo, hi, _unit(value)


def _money(value: Any) -> Measured:
    number = _decimal(value.get("value")) if type(value) is dict else None
    if number is None:
        return None
    currency = value.get("currency")
    return number, number, unit_value("urn:iso:std:iso:4217", currency if type(currency) is str else "", "")


def _range(value: Any) -> Measured:
    if type(value) is not dict:
        return None
    low, high = _quantity(value.get("low")), _quantity(value.get("high"))
    if low is None:
        return None if high is None else (-INFINITY, high[1], high[2])
    return low[0], INFINITY if high is None else high[1], low[2]


def _quantities(measure: Callable[[Any], Measured]) -> Callable[[Codes], Indexer]:
    def make(codes: Codes) -> Indexer:
        def collect(value: Any, entries: EntryCollector) -> None:
            found = measure(value)
            if found is not None:
                entries.quantities.extend([(code, *found) for code in codes])

        return collect

    return make


_MAKERS: dict[tuple[str, str], Callable[[Codes], Indexer]] = {
    **{("token", one): _texts(_primitive_token) for one in (*_STRING_TYPES, "boolean")},
    ("token", "Coding"): _texts(_coding),
    ("token", "CodeableConcept"): _concept,
    ("token", "Identifier"): _texts(_identifier),
    ("token", "ContactPoint"): _texts(_identifier),
    **{("string", one): _strings(_string) for one in _STRING_TYPES},
    **{("string", one): _strings(_parts(parts)) for one, parts in PARTS.items()},
    ("string", "CodeableConcept"): _texts(_concept_strings),
    ("reference", "Reference"): _texts(_reference),
    ("reference", "canonical"): _texts(_canonical),
    ("reference", "uri"): _texts(_uri),
    ("reference", "url"): _texts(_uri),
    **{("uri", one): _texts(_uri) for one in _URI_TYPES},
    ("uri", "canonical"): _texts(_canonical),
    ("uri", "string"): _texts(_uri),
    **{("date", one): _dates(_date) for one in ("date", "dateTime", "instant")},
    ("date", "Period"): _dates(_period),
    ("date", "Timing"): _dates(_timing),
    **{("number", one): _quantities(_number) for one in ("decimal", "integer", "positiveInt", "unsignedInt")},
    ("number", "Range"): _quantities(_range),
    **{("quantity", one): _quantities(_quantity) for one in ("Quantity", "Age", "Count", "Distance", "Duration")},
    ("quantity", "MoneyQuantity"): _quantities(_quantity),
    ("quantity", "SimpleQuantity"): _quantities(_quantity),
    ("quantity", "Money"): _quantities(_money),
    ("quantity", "Range"): _quantities(_range),
}
