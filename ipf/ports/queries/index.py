"""The entries of one resource in the search index.

Text values have no control characters but TAB and LF; every part has at most 1,200 bytes in UTF-8:

| parameter type | value |
|---|---|
| token | `code TAB system`, either possibly empty |
| token, under `code:text` | texts and displays of a CodeableConcept, normalised like a string, after a blank |
| string | `normalised TAB original` (normalised: lower case, accents folded, white space collapsed) |
| reference | `Type/id`, or the full URL or URN when it is not relative; canonicals with and without `|version`; the
  identifier of a reference as a token (it alone has a TAB) |
| uri | unchanged; canonicals with and without `|version` |
| contained resources, under `$contained` | `Type.code LF value` for each of their texts, and `Type LF id` |
| composite | its components, LF between: a text (of a string only the normalised one), `lo LF hi` of a date,
  `lo LF hi LF unit` of a number or quantity |

Source: https://hl7.org/fhir/R4/search.html
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

TextEntry = tuple[str, str]
"""(code of the search parameter, value)"""
DateEntry = tuple[str, int, int]
"""(code, lo, hi): the half-open range [lo, hi) in microseconds since 1970 UTC

Open ends are plus and minus `FOREVER` of `ipf/fhir/model/dates.py`.
"""
QuantityEntry = tuple[str, Decimal, Decimal, str]
"""(code, lo, hi, unit): the closed range [lo, hi]; open ends are Decimal("-Infinity") and Decimal("Infinity")

`unit` is "" for numbers, else `system TAB code TAB unit TAB`, each part possibly empty.
"""


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of one resource, as sets: `after.texts - before.texts` is the difference.

    `words`: for `_text` and `_content`, the words with their positions (`'bone':1,7 'liver':3`); empty unless they are
    indexed.
    """

    texts: frozenset[TextEntry] = frozenset()
    dates: frozenset[DateEntry] = frozenset()
    quantities: frozenset[QuantityEntry] = frozenset()
    words: frozenset[TextEntry] = frozenset()

    def __len__(self) -> int:
        return len(self.texts) + len(self.dates) + len(self.quantities) + len(self.words)


EMPTY = Entries()
