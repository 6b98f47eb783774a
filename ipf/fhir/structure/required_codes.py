"""The codes that required bindings of elements of type `code` permit: `Patient.gender`, `Observation.status`.

The table `fhir/r4/required-codes.json` is generated from the definitions beside it by `generate_required_codes.py`.
Media types are tested by their form, since there is no complete list of them.

Sources: https://hl7.org/fhir/R4/terminologies.html#required, RFC 6838
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import orjson

from ipf.config.paths import folder
from ipf.fhir.model.regex import pattern

_VALUE_SET = "http://hl7.org/fhir/ValueSet/"
_SHORT_FORMS = frozenset(("xml", "json", "ttl"))  # the FHIR formats in CapabilityStatement.format
_LONGEST_MEDIA_TYPE = 1000
_MEDIA_TYPE = r"[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9*][\w!#$&^.+*-]*(\s*;\s*[\w-]+=(\"[^\"]*\"|[^;\"]+))*"


@dataclass(frozen=True, slots=True)
class RequiredCodes:
    """The value set of a required binding.  `codes`: None for media types."""

    url: str
    codes: frozenset[str] | None

    @property
    def contains(self) -> Callable[[str], bool]:
        """The test of a code."""
        return is_media_type if self.codes is None else self.codes.__contains__


def required_codes(element_path: str) -> RequiredCodes | None:
    """The codes of an element, such as `Patient.gender`; None without a required binding."""
    return _table().get(element_path)


def is_media_type(code: str) -> bool:
    """Whether the code has the form of a media type, or is the short name of a FHIR format."""
    if code in _SHORT_FORMS:
        return True
    return len(code) <= _LONGEST_MEDIA_TYPE and pattern(_MEDIA_TYPE).is_all_of(code)


@lru_cache(maxsize=1)
def _table() -> dict[str, RequiredCodes]:
    read = orjson.loads((folder("fhir") / "r4" / "required-codes.json").read_bytes())
    sets = {
        name: RequiredCodes(name if "/" in name else _VALUE_SET + name, frozenset(codes.split()) if codes else None)
        for name, codes in read["sets"].items()
    }
    return {path: sets[name] for path, name in read["elements"].items()}
