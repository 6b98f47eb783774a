"""The names in client certificates, which decide who sends to a listener and for which tenant."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID


def names_of(certificate: Any) -> list[str]:
    """The names of a client certificate: its DNS names, else its common names; in lower case."""
    if certificate is None:
        return []
    known: x509.Certificate = certificate.to_cryptography()
    try:
        extension = known.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = extension.value.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        names = []
    if not names:
        names = [str(one.value) for one in known.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [name.lower() for name in names]


def first_match(names: list[str], patterns: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    """The first (pattern, tenant) that one of the names matches."""
    return next(
        (pair for pair in patterns if any(fnmatchcase(name, pair[0].lower()) for name in names)),
        None,
    )
