"""One handler as a Klein application, for `/fhir` and `/mapping`: their route table is `rest/router.py`."""

from __future__ import annotations

from klein import Klein
from twisted.internet.defer import Deferred
from twisted.web.iweb import IRequest
from twisted.web.resource import IResource
from werkzeug.routing import PathConverter

from ipf.ports import Handler
from ipf.wire.http.serving import Refuse, serve


class AnyPath(PathConverter):
    """Any path; werkzeug's own converter does not match line breaks (`%0A`)."""

    regex = r"[^/][\s\S]*?"


def resource(handle: Handler, refuse: Refuse, base_url: str | None = None) -> IResource:
    """The resource to mount: hands every path below the mount to `handle`.

    `refuse`: renders a Problem.  `base_url`: start of links and locations; None = as the caller addressed the server.
    """
    app = Klein()
    app.url_map.converters["path"] = AnyPath
    app.url_map.strict_slashes = False

    @app.route("/", branch=True)
    def every_path(web: IRequest) -> Deferred[bytes]:
        return serve(web, handle, refuse, below=1, base_url=base_url)

    return app.resource()
