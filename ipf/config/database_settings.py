"""The settings of the databases on servers of their own."""

from __future__ import annotations

from dataclasses import dataclass

from ipf.config.parsers import integer, postgres_url
from ipf.config.variables import variable


@dataclass(frozen=True)  # only one base of Settings may have slots
class DatabaseSettings:
    """Where the databases are, and a standby for reads."""

    db_url: str | None = variable(
        "IPF_DB_URL", postgres_url, None, "PostgreSQL URL of the inbox database; unset: embedded", secret=True
    )
    fhir_db_url: str | None = variable(
        "IPF_FHIR_DB_URL", postgres_url, None, "PostgreSQL URL of the FHIR database; unset: embedded", secret=True
    )
    fhir_read_db_url: str | None = variable(
        "IPF_FHIR_READ_DB_URL",
        postgres_url,
        None,
        "PostgreSQL URL of one or more standbys of the FHIR database, which answer reads; unset: none",
        secret=True,
    )
    fhir_read_max_staleness_ms: int = variable(
        "IPF_FHIR_READ_MAX_STALENESS_MS",
        integer(1000),
        2000,
        "milliseconds that reads of a standby may be behind; when it may be more, the primary answers",
    )
