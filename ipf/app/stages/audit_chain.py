"""The hash chain of the audit trail, and the key of the installation that signs its heads.

The key is `IPF_AUDIT_KEY` (its file or systemd credential, as other secrets).  Without it the first start makes one in
the data folder, readable by its user alone.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from ipf.app.runtime.process import now
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.pipeline.maintenance.audit_chain import AuditChain
from ipf.pipeline.worker import Worker
from ipf.security.audit.chain import BadKey, SigningKey, new_private_key
from ipf.store.audit.chain import PostgresAuditChain
from ipf.telemetry.logs import event_line

log = Logger()

POLL_SECONDS = 1.0
FILE = "audit-key.pem"


async def start_audit_chain(
    settings: Settings, stores: OpenedStores, reactor: Any, stack: AsyncExitStack
) -> AuditChain | None:
    """Start to chain records; None when audit is disabled.  Problem for a key that cannot be used."""
    if not settings.audit_enabled:
        return None
    chain = AuditChain(PostgresAuditChain(stores.fhir_database), signing_key(settings), now)
    await chain.start()
    worker = Worker(chain.step, stores.notifier, None, POLL_SECONDS, reactor, name="audit chain")
    worker.start()
    stack.push_async_callback(chain.stop)
    stack.push_async_callback(worker.stop, settings.stop_seconds)
    return chain


def signing_key(settings: Settings) -> SigningKey | None:
    """The key of the installation; None when it cannot be stored.  Problem when it is not a key."""
    path = Path(settings.data_dir, FILE)
    name = "IPF_AUDIT_KEY" if settings.audit_key is not None else str(path)
    try:
        return SigningKey(settings.audit_key if settings.audit_key is not None else _stored(path))
    except BadKey as bad:
        raise Problem(Category.VALUE, f"{name}: {bad}") from None
    except OSError as failed:
        log.warn(event_line("audit_key_missing", path=path, reason=failed.strerror))
        return None


def _stored(path: Path) -> str:
    """The content of the file, which is made if there is none: first under another name, so never in part."""
    with suppress(FileNotFoundError):
        return path.read_text("ascii", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_private_key())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):  # another process was first
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path.read_text("ascii", "replace")
