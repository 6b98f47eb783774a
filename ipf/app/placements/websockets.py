"""Websocket clients, each bound in the placement that has its subscription."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from ipf.app.placements.directory import Directory, Placement
from ipf.errors import Category, Problem
from ipf.ports import BindingAttempt, Session, TokenBinding, WebsocketClient, WebsocketHub


class PlacedHub:
    """`WebsocketHub` over all placements."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def bind(self, client: WebsocketClient, session: Session, subscription_id: str) -> None:
        """See `WebsocketHub.bind`.  Problem UNAVAILABLE when the placement of the tenant cannot be used."""
        await _hub(self._directory.of(session.tenant)).bind(client, session, subscription_id)

    async def bind_with_token(self, client: WebsocketClient, token: str) -> TokenBinding:
        """See `WebsocketHub.bind_with_token`.

        A token does not say which placement issued it.  All are asked at once; the one that knows it binds the client,
        whether the others answer or not.
        """
        asked = [Deferred.fromCoroutine(_redeem(one, client, token)) for one in self._directory.all]
        waiting: Deferred[TokenBinding] = Deferred()
        refused: list[Problem] = []

        def bound(binding: TokenBinding) -> None:
            if not waiting.called:
                waiting.callback(binding)

        def failed(failure: object) -> None:
            reason = getattr(failure, "value", None)
            known = reason if isinstance(reason, Problem) else Problem(Category.INTERNAL, "the token cannot be checked")
            refused.append(known)
            if len(refused) == len(asked):
                waiting.errback(_worst(refused))

        for one in asked:
            one.addCallbacks(bound, failed)
        return await waiting

    def leave(self, client: WebsocketClient) -> None:
        """See `WebsocketHub.leave`."""
        for one in self._directory.all:
            if one.serving is not None and one.serving.api.sockets is not None:
                one.serving.api.sockets.leave(client)

    def note(self, attempt: BindingAttempt) -> None:
        """`AuditBinding`: an attempt is recorded in the placement of its tenant."""
        serving = self._directory.of(attempt.session.tenant).serving
        if serving is not None and serving.api.bindings is not None:
            serving.api.bindings(attempt)


def _hub(placement: Placement) -> WebsocketHub:
    """The hub of a placement.  A frozen one has none: a binding is for what is written from now on."""
    sockets = placement.use(writes=True).api.sockets
    if sockets is None:
        raise Problem(Category.UNAVAILABLE, placement.unusable)
    return sockets


async def _redeem(placement: Placement, client: WebsocketClient, token: str) -> TokenBinding:
    return await _hub(placement).bind_with_token(client, token)


def _worst(refused: list[Problem]) -> Problem:
    """The token is unknown only when every placement says so."""
    return next((one for one in refused if one.category is not Category.UNAUTHORIZED), refused[0])


_: type[WebsocketHub] = PlacedHub
