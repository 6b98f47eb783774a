"""`GET /admin/docs`: the OpenAPI documents of the operator API as one page without scripts and without requests.

It needs the admin token where one is set, as every path of `/admin` does that is no OpenAPI document; the console shows
the same to people who sign in.

Source: https://spec.openapis.org/oas/v3.1.0; https://www.w3.org/TR/CSP3/
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

from klein import Klein
from twisted.web.iweb import IRequest

from ipf.ports import Answer, Request
from ipf.wire.admin.klein_app import Routes, Run
from ipf.wire.reference.operations import reference_of

_HTML = "text/html; charset=utf-8"


def routes(documents: Mapping[str, Mapping[str, Any]]) -> Routes:
    """The path `/admin/docs`.  `documents`: by the start of their anchors; rendered at the first request."""
    rendered: list[Answer] = []

    def add(app: Klein, run: Run) -> None:
        async def page(_: Request) -> Answer:
            if not rendered:
                rendered.append(page_of(documents))
            return rendered[0]

        @app.route("/docs", methods=["GET"])
        async def show_docs(web: IRequest) -> bytes:
            return await run(web, page)

    return add


def page_of(documents: Mapping[str, Mapping[str, Any]]) -> Answer:
    """The page; its policy admits its own style and nothing else."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only who reads the page pays for it

    style = files(__package__).joinpath("templates/reference.css").read_text()
    environment = Environment(
        loader=PackageLoader("ipf.wire.reference"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    references = [reference_of(document, anchor) for anchor, document in documents.items()]
    version = next((document["info"]["version"] for document in documents.values()), "")
    body = environment.get_template("reference.html").render(references=references, style=style, version=version)
    return Answer(200, body.encode(), (("Content-Security-Policy", _policy(style)),), _HTML)


def _policy(style: str) -> str:
    digest = b64encode(sha256(style.encode()).digest()).decode()
    others = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return f"default-src 'none'; style-src 'sha256-{digest}'; {others}"
