"""Senders of several placements on the listeners of one process: each message is stored where its tenant's data are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipf.app.listeners.mllp import count_received
from ipf.app.placements.directory import Directory
from ipf.app.runtime.process import now
from ipf.errors import StoreUnreachable
from ipf.pipeline.receive.group_commit import GroupCommit
from ipf.pipeline.receive.receive import Receiver
from ipf.ports import Outcome, Received, Rejected
from ipf.ports.messages.inbox import MessageStore
from ipf.telemetry.correlation import new_correlation_id


class NoInbox:
    """`MessageStore` that stores nothing, for the reason that `reason` tells: senders receive AE, and send again."""

    def __init__(self, reason: Callable[[], str]) -> None:
        self._reason = reason

    async def store(self, batch: Sequence[Received]) -> list[Outcome]:
        """See `MessageStore.store`."""
        raise StoreUnreachable(self._reason())

    async def reject(self, rejected: Rejected) -> None:
        """See `MessageStore.reject`."""
        raise StoreUnreachable(self._reason())


_: type[MessageStore] = NoInbox


def refusing_receiver(reason: Callable[[], str], reactor: Any) -> Receiver:
    """A receiver that answers AE to every message."""
    inbox = NoInbox(reason)
    commit = GroupCommit(inbox, reactor)
    return Receiver(inbox, commit, reactor, now=now, new_correlation_id=new_correlation_id, observe=count_received)


def placed_receiver(directory: Directory, reactor: Any) -> Receiver:
    """The receiver of the listeners: hands each message to that of its tenant."""
    receiver = refusing_receiver(lambda: "the store cannot be reached", reactor)
    receiver.of_tenant = directory.receiver
    return receiver


class RefusedSenders:
    """`SenderRefused`: a sender that may not send has no tenant, so the default placement records it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def __call__(self, listener: str, host: str, reason: str) -> None:
        """Record it, if that placement is open."""
        serving = self._directory.default.serving
        if serving is not None and serving.refused is not None:
            serving.refused(listener, host, reason)
