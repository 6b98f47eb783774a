"""The primitive types as validation checks them: R4's formats, and what R4 states of them in prose.

A text has more than whitespace; a uri of `urn:uuid:` or `urn:oid:` has a UUID or an OID.  The texts of errors show the
value.

Source: https://hl7.org/fhir/R4/datatypes.html#primitive
"""

from __future__ import annotations

import re
from typing import Any

from ipf.fhir.structure import primitives
from ipf.fhir.structure.primitives import ErrorText, Primitive

_UUID = re.compile(r"urn:uuid:[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
_OID = re.compile(r"urn:oid:[0-2](\.(0|[1-9][0-9]*))+")


def _shown(form: Primitive) -> Primitive:
    """The check with the value in its text: `'yesterday' is not a date`."""

    def check(value: Any) -> ErrorText:
        error = form(value)
        return f"'{value[:60]}' is {error}" if error is not None and error.startswith("not ") else error

    return check


def _text(value: Any) -> ErrorText:
    error = primitives.text(value)
    return primitives.EMPTY if error is None and value.isspace() else error


def _uri(name: str) -> Primitive:
    form = _shown(primitives.PRIMITIVES[name])

    def check(value: Any) -> ErrorText:
        error = form(value)
        if error is not None or not value.startswith("urn:"):
            return error
        if value.startswith("urn:uuid:") and not _UUID.match(value):
            return "after urn:uuid: a UUID is expected"
        if value.startswith("urn:oid:") and not _OID.match(value):
            return "after urn:oid: an OID is expected"
        return None

    return check


PRIMITIVES: dict[str, Primitive] = {
    **{name: _shown(form) for name, form in primitives.PRIMITIVES.items()},
    **dict.fromkeys(("string", "markdown", "xhtml"), _text),
    **{name: _uri(name) for name in ("uri", "url", "canonical")},
}
"""Type -> a function of a JSON value that returns None, or the text of the error."""
