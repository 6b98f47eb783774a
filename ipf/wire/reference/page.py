"""`GET /admin/docs`: the OpenAPI documents of the operator API as one page without scripts and without requests.

It needs the admin token where one is set, as every path of `/admin` does that is no OpenAPI document; the console shows
the same to people who sign in.

Source: https://spec.openapis.org/oas/v3.1.0; https://www.w3.org/TR/CSP3/
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from typing import Any

from ipf.ports import Answer, Request
from ipf.wire.admin.route import Route, WhenMasked
from ipf.wire.admin.schemas.base import TEXT
from ipf.wire.reference.operations import reference_of

_HTML = "text/html; charset=utf-8"


@dataclass(slots=True)
class Reference:
    """The page of these documents, by the start of their anchors; rendered at the first request."""

    documents: Mapping[str, Mapping[str, Any]]
    _rendered: Answer | None = None

    async def page(self, _: Request, __: str) -> Answer:
        """`GET /admin/docs`."""
        if self._rendered is None:
            self._rendered = page_of(self.documents)
        return self._rendered


ROUTES: tuple[Route[Reference], ...] = (
    Route(
        "GET", "/docs", "docs", "The documents as a page", Reference.page, masked=WhenMasked.NO,
        answers=("text/html", TEXT),
    ),
)  # fmt: skip


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
