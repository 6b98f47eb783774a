"""The settings of HTTP answers and of imports.

Source: docs/reference/fhir.md, "Formats"; docs/reference/access-control.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean, endpoint_patterns
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class HttpSettings:
    """Compression of the answers of `/fhir` and `/mapping`, and where imports may read from."""

    http_compression: bool = variable(
        "IPF_HTTP_COMPRESSION", boolean, True, "answers of /fhir with gzip or zstd, for clients that accept it"
    )
    import_allow: tuple[str, ...] = variable(
        "IPF_IMPORT_ALLOW", endpoint_patterns, (), "host patterns or networks that $import may read from"
    )
