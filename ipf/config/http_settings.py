"""The settings of HTTP answers.

Source: docs/fhir.md, "Formats"; docs/security.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import boolean
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class HttpSettings:
    """What the answers of `/fhir` and `/mapping` look like."""

    http_compression: bool = variable(
        "IPF_HTTP_COMPRESSION", boolean, True, "answers of /fhir with gzip or zstd, for clients that accept it"
    )
