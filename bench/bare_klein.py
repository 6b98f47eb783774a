"""The peer of `bin/bench fhir`: a Klein application with one route, which answers every request with one body.

Prints its port, and serves until its standard input closes.

usage: python -m bench.bare_klein < body      the first line of standard input is the body
"""

from __future__ import annotations

import sys

from klein import Klein
from twisted.internet import reactor, stdio
from twisted.internet.protocol import Protocol
from twisted.web.server import Site


class _Parent(Protocol):
    """Standard input: its end stops the server."""

    def connectionLost(self, reason: object = None) -> None:
        """Twisted: the parent closed it."""
        if reactor.running:
            reactor.stop()


def main() -> None:
    """Serve."""
    body = sys.stdin.buffer.readline()
    app = Klein()

    @app.route("/", branch=True)
    def every_path(request: object) -> bytes:
        return body

    site = Site(app.resource())
    site.log = lambda request: None  # as the service: no access log
    port = reactor.listenTCP(0, site, interface="127.0.0.1")
    print(port.getHost().port, flush=True)
    stdio.StandardIO(_Parent())
    reactor.run()


if __name__ == "__main__":
    main()
