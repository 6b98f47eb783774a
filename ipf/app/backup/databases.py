"""The URLs of both databases for a command: those of the settings, or of the embedded PostgreSQL.

An embedded server that a service runs is used as it is.  Otherwise it is started for the command and stopped again.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ipf.app.runtime.databases import DatabaseUrls
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.store.backup.target import named

APPLICATION = f"ipfctl-{os.getpid()}"
"""`application_name` of the sessions of this command: a pg_restore that outlived another one is told apart."""


@asynccontextmanager
async def opened(settings: Settings, reactor: Any, *, alone: bool = False) -> AsyncIterator[DatabaseUrls]:
    """The URLs.  `alone`: no service may run on the embedded server, and a new one may be made.

    Problem UNAVAILABLE when the embedded server cannot be started, or there is none.
    """
    if settings.db_url and settings.fhir_db_url:
        yield _named(DatabaseUrls(settings.db_url, settings.fhir_db_url))
        return
    from ipf.store.postgres.embedded import EmbeddedPostgres

    folder = Path(settings.data_dir)
    if not alone and not (folder / "postgres" / "PG_VERSION").exists():
        text = f"IPF_DATA_DIR: {folder} has no database, and IPF_DB_URL is not set"
        raise Problem(Category.UNAVAILABLE, text)
    postgres = EmbeddedPostgres(folder, reactor)
    urls = _named(DatabaseUrls(postgres.url("ipf"), postgres.url("fhir")))
    if postgres.running() and not alone:
        yield urls
        return
    await postgres.start()
    try:
        yield urls
    finally:
        await postgres.stop()


def _named(urls: DatabaseUrls) -> DatabaseUrls:
    return DatabaseUrls(named(urls.inbox, APPLICATION), named(urls.fhir, APPLICATION))
