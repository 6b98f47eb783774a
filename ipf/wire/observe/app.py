"""`/admin/observe/*` as a Klein application of its own, mounted below the operator API.

Its refusals carry `schema_version`, also where nothing is at a path.  The OpenAPI document needs no token.
"""

from __future__ import annotations

import orjson
from klein import Klein
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource

from ipf.ports import Answer, Request
from ipf.wire.admin.klein_app import AuditHook, Check, Routes, Run, application
from ipf.wire.http.serving import JSON
from ipf.wire.observe.observe import Observe, refusal
from ipf.wire.observe.openapi import document


def routes(observe: Observe, check: Check, version: str, audit: AuditHook | None = None) -> Routes:
    """Mounts `resource` below the operator API."""
    mounted = resource(observe, check, version, audit)

    def add(app: Klein, run: Run) -> None:
        @app.route("/observe", branch=True, strict_slashes=False)
        def show_observe(web: IRequest) -> IResource:
            return mounted

    return add


def resource(observe: Observe, check: Check, version: str, audit: AuditHook | None = None) -> IResource:
    """The resource of `/admin/observe`.  `check`: of the admin token, which lets the OpenAPI document pass."""
    app, run = application(check, refusal, audit)
    described = Answer(200, orjson.dumps(document(version)), (), JSON)

    async def describe(_: Request) -> Answer:
        return described

    @app.route("/system", methods=["GET"])
    async def system(web: IRequest) -> bytes:
        return await run(web, observe.system)

    @app.route("/throughput", methods=["GET"])
    async def throughput(web: IRequest) -> bytes:
        return await run(web, observe.throughput)

    @app.route("/live", methods=["GET"])
    async def live(web: IRequest) -> bytes:
        return await run(web, observe.live)

    @app.route("/interfaces", methods=["GET"])
    async def interfaces(web: IRequest) -> bytes:
        return await run(web, observe.interfaces)

    @app.route("/dlq", methods=["GET"])
    async def dlq(web: IRequest) -> bytes:
        return await run(web, observe.dlq)

    @app.route("/trace/<correlation_id>", methods=["GET"])
    async def trace(web: IRequest, correlation_id: str) -> bytes:
        return await run(web, lambda _: observe.trace(correlation_id))

    @app.route("/openapi.json", methods=["GET"])
    async def openapi(web: IRequest) -> bytes:
        return await run(web, describe)

    return app.resource()
