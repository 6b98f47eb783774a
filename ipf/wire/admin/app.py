"""The operator API on HTTP: `/admin/*`, a Klein application around functions on values.

What arrives: a request with the admin token when one is configured, or with the read-only one.  What leaves: JSON, also
for every refusal; `X-Correlation-Id` as the caller sent it, or a fresh one.  A store that cannot be reached is 503.
Mount `resource` at `/admin`.

Source: interface specification "Message administration", "Admin API", "Correlation", "Errors"; decisions section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from klein import Klein
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.ports import Inbox, MappingAdmin, Notifier, UnmappedCodes
from ipf.wire.admin import messages
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.inbox import unmapped
from ipf.wire.admin.klein_app import AuditHook, Routes, Run, application
from ipf.wire.admin.mapping import maps as mapping
from ipf.wire.admin.systems.subscriptions import SubscriptionAdmin
from ipf.wire.admin.systems.subscriptions import routes as subscription_routes


def resource(
    inbox: Inbox,
    notifier: Notifier,
    access: AdminAccess,
    codes: UnmappedCodes | None = None,
    mapping_admin: MappingAdmin | None = None,
    subscriptions: SubscriptionAdmin | None = None,
    *,
    more: Sequence[Routes] = (),
    audit: AuditHook | None = None,
) -> IResource:
    """The resource to mount at `/admin`.

    `codes`, `mapping_admin`, `subscriptions`: without them their paths are 404.  `more`: further paths.
    """
    app, run = application(access.check, messages.refusal, audit)
    _message_routes(app, run, inbox, notifier)
    if codes is not None:
        _code_routes(app, run, codes, notifier)
    if mapping_admin is not None:
        _mapping_routes(app, run, mapping_admin, notifier)
    if subscriptions is not None:
        subscription_routes(app, run, subscriptions)
    for add in more:
        add(app, run)
    return app.resource()


def _message_routes(app: Klein, run: Run, inbox: Inbox, notifier: Notifier) -> None:
    """Messages of the inbox."""

    @app.route("/messages", methods=["GET"])
    async def list_messages(web: IRequest) -> bytes:
        return await run(web, lambda request: messages.list_messages(inbox, request))

    @app.route("/messages/<message_id>", methods=["GET"])
    async def get_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.get_message(inbox, message_id))

    @app.route("/messages/<message_id>", methods=["DELETE"])
    async def delete_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.delete_message(inbox, message_id))

    @app.route("/messages/<message_id>/retry", methods=["POST"])
    async def retry_message(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: messages.retry_message(inbox, notifier, message_id))


def _code_routes(app: Klein, run: Run, codes: UnmappedCodes, notifier: Notifier) -> None:
    """Unmapped codes, code overrides, further conversions."""

    @app.route("/unmapped-codes", methods=["GET"])
    async def list_codes(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_codes(codes, request))

    @app.route("/unmapped-codes/<number>", methods=["GET"])
    async def get_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_code(codes, number))

    @app.route("/unmapped-codes/<number>/map", methods=["POST"])
    async def map_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.map_code(codes, notifier, number, request))

    @app.route("/unmapped-codes/<number>/requeue", methods=["POST"])
    async def requeue_code(web: IRequest, number: str) -> bytes:
        return await run(web, lambda request: unmapped.requeue_code(codes, notifier, number, request))

    @app.route("/code-overrides", methods=["GET"])
    async def list_overrides(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_overrides(codes, request))

    @app.route("/code-overrides/<number>", methods=["GET"])
    async def get_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.get_override(codes, number))

    @app.route("/code-overrides/<number>", methods=["DELETE"])
    async def delete_override(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_override(codes, notifier, number))

    @app.route("/conversions", methods=["GET"])
    async def list_conversions(web: IRequest) -> bytes:
        return await run(web, lambda request: unmapped.list_conversions(codes, request))

    @app.route("/conversions/<number>/retry", methods=["POST"])
    async def retry_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.retry_conversion(codes, notifier, number))

    @app.route("/conversions/<number>", methods=["DELETE"])
    async def delete_conversion(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: unmapped.delete_conversion(codes, number))


def _mapping_routes(app: Klein, run: Run, mapping_admin: MappingAdmin, notifier: Notifier) -> None:
    """Installed maps, reload, trace."""

    @app.route("/mapping", methods=["GET"])
    async def describe(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.describe(mapping_admin))

    @app.route("/mapping/reload", methods=["POST"])
    async def reload(web: IRequest) -> bytes:
        return await run(web, lambda _: mapping.reload(mapping_admin, notifier))

    @app.route("/messages/<message_id>/trace", methods=["GET"])
    async def trace(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: mapping.trace(mapping_admin, message_id))
