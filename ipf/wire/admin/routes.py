"""Paths of `/admin`: effects, replay, dead letters, jobs, rejects, settings in effect, OpenAPI."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import orjson
from klein import Klein
from twisted.web.iweb import IRequest

from ipf.config.settings import Settings
from ipf.ports import Answer, EffectsStore, Inbox, MessageAdmin, ReplayPreview, Request, UnmappedCodes
from ipf.wire.admin.inbox import effects, jobs, rejects
from ipf.wire.admin.klein_app import Run
from ipf.wire.admin.schemas.document import document
from ipf.wire.http.serving import JSON


@dataclass(frozen=True, slots=True)
class Operations:
    """The parts that these paths use.  `given`: names of the environment variables that are set."""

    inbox: Inbox
    codes: UnmappedCodes
    messages: MessageAdmin
    effects: EffectsStore
    replay_preview: ReplayPreview
    settings: Settings
    given: Collection[str]
    version: str

    def __call__(self, app: Klein, run: Run) -> None:
        """Add the paths to the application (`klein_app.Routes`)."""
        _messages(self, app, run)
        _dead_letters(self, app, run)
        _jobs(self, app, run)
        _rejects(self, app, run)
        _about(self, app, run)


def _messages(with_: Operations, app: Klein, run: Run) -> None:
    @app.route("/messages/<message_id>/effects", methods=["GET"])
    async def show_effects(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda _: effects.effects(with_.inbox, with_.messages, with_.effects, message_id))

    @app.route("/messages/<message_id>/conversions", methods=["GET"])
    async def conversions(web: IRequest, message_id: str) -> bytes:
        return await run(web, lambda request: effects.conversions(with_.inbox, with_.codes, message_id, request))

    @app.route("/messages/replay", methods=["POST"])
    async def replay(web: IRequest) -> bytes:
        return await run(web, lambda request: jobs.replay(with_.messages, with_.replay_preview, request))


def _dead_letters(with_: Operations, app: Klein, run: Run) -> None:
    @app.route("/dead-letters/errors", methods=["GET"])
    async def errors(web: IRequest) -> bytes:
        return await run(web, lambda request: jobs.error_groups(with_.messages, request))

    @app.route("/dead-letters/retry", methods=["POST"])
    async def retry(web: IRequest) -> bytes:
        return await run(web, lambda request: jobs.dead_letters(with_.messages, "retry", request))

    @app.route("/dead-letters/discard", methods=["POST"])
    async def discard(web: IRequest) -> bytes:
        return await run(web, lambda request: jobs.dead_letters(with_.messages, "discard", request))


def _jobs(with_: Operations, app: Klein, run: Run) -> None:
    @app.route("/jobs", methods=["GET"])
    async def list_jobs(web: IRequest) -> bytes:
        return await run(web, lambda request: jobs.list_jobs(with_.messages, request))

    @app.route("/jobs/<number>", methods=["GET"])
    async def get_job(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: jobs.get_job(with_.messages, number))

    @app.route("/jobs/<number>/cancel", methods=["POST"])
    async def cancel_job(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: jobs.cancel_job(with_.messages, number))


def _rejects(with_: Operations, app: Klein, run: Run) -> None:
    @app.route("/rejects", methods=["GET"])
    async def list_rejects(web: IRequest) -> bytes:
        return await run(web, lambda request: rejects.list_rejects(with_.messages, request))

    @app.route("/rejects/<number>", methods=["GET"])
    async def get_reject(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: rejects.get_reject(with_.messages, number))

    @app.route("/rejects/<number>", methods=["DELETE"])
    async def delete_reject(web: IRequest, number: str) -> bytes:
        return await run(web, lambda _: rejects.delete_reject(with_.messages, number))


def _about(with_: Operations, app: Klein, run: Run) -> None:
    async def config(_: Request) -> Answer:
        return rejects.config(with_.settings, with_.given)

    described = Answer(200, orjson.dumps(document(with_.version)), (), JSON)

    async def openapi(_: Request) -> Answer:
        return described

    @app.route("/config", methods=["GET"])
    async def show_config(web: IRequest) -> bytes:
        return await run(web, config)

    @app.route("/openapi.json", methods=["GET"])
    async def show_openapi(web: IRequest) -> bytes:
        return await run(web, openapi)
