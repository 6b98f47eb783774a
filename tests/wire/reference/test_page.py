"""`/admin/docs`: everything of the documents is there, every link leads somewhere, nothing comes from elsewhere."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from html import unescape
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.wire.reference.operations import reference_of
from ipf.wire.reference.page import page_of
from ipf.wire.reference.table import admin_document, observe_api_document

DOCUMENTS = {"admin": admin_document("1"), "observe": observe_api_document("1")}


def document_of(schema: dict[str, Any]) -> dict[str, Any]:
    """A document with one schema and one operation."""
    answer = {"description": "done", "content": {"application/json": {"schema": schema}}}
    operation = {"operationId": "one", "responses": {"200": answer}}
    info, paths = {"title": "t", "version": "1"}, {"/admin/x": {"get": operation}}
    return {"info": info, "paths": paths, "components": {"schemas": {"S": schema}}}


class ReferenceTests(TestCase):
    def test_types_in_words(self) -> None:
        for schema, words in (
            ({"type": "string", "format": "date-time"}, "string (date-time)"),
            ({"type": ["integer", "null"]}, "integer or null"),
            ({"type": "integer", "default": 20}, "integer, default 20"),
            ({"enum": ["hour", None]}, "hour | null"),
            ({"const": "Bearer"}, "Bearer"),
            ({"type": "array", "items": {"$ref": "#/components/schemas/S"}}, "array of S"),
            ({"oneOf": [{"$ref": "#/components/schemas/S"}, {"type": "null"}]}, "S or null"),
            ({}, "any"),
        ):
            (found,) = reference_of(document_of(schema), "a").schemas
            self.assertEqual("".join(part.text for part in found.type), words)

    def test_members_of_members(self) -> None:
        inner = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
        schema = {
            "type": "object",
            "properties": {"items": {"type": "array", "items": inner}, "last": {"oneOf": [inner, {"type": "null"}]}},
            "required": ["items"],
        }
        (found,) = reference_of(document_of(schema), "a").schemas
        rows = [(one.name, one.required) for one in found.rows]
        self.assertEqual(rows, [("items", True), ("items[].id", True), ("last", False), ("last.id", True)])


class PageTests(TestCase):
    def setUp(self) -> None:
        self.answer = page_of(DOCUMENTS)
        self.html = self.answer.body.decode()

    def test_every_operation_and_schema_is_on_the_page(self) -> None:
        shown = re.findall(r'<span class="badge \w+">(\w+)</span> <code>([^<]+)</code>', self.html)
        said = {
            (method.upper(), path)
            for document in DOCUMENTS.values()
            for path, operations in document["paths"].items()
            for method in operations
        }
        self.assertEqual({(method, unescape(path)) for method, path in shown}, said)
        self.assertEqual(len(shown), len(said))
        for anchor, document in DOCUMENTS.items():
            for name in document["components"]["schemas"]:
                self.assertIn(f'id="{anchor}-schema-{name}"', self.html)

    def test_every_link_leads_somewhere(self) -> None:
        ids = re.findall(r'id="([^"]+)"', self.html)
        self.assertEqual(len(ids), len(set(ids)))
        links = set(re.findall(r'href="([^"]+)"', self.html))
        self.assertEqual({one for one in links if not one.startswith("#")},
                         {"/admin/openapi.json", "/admin/observe/openapi.json"})  # fmt: skip
        self.assertEqual({one[1:] for one in links if one.startswith("#")} - set(ids), set())

    def test_the_policy_admits_the_style_alone(self) -> None:
        style = re.findall(r"<style>(.*?)</style>", self.html, re.S)
        self.assertEqual(len(style), 1)
        digest = b64encode(sha256(style[0].encode()).digest()).decode()
        policy = dict(self.answer.headers)["Content-Security-Policy"]
        sources = re.findall(r"[\w-]+-src .*?(?=;)", policy)
        self.assertEqual(sources, ["default-src 'none'", f"style-src 'sha256-{digest}'"])
        for word in ("<script", "src=", "style=", "url(", "@import", "onclick"):
            self.assertNotIn(word, self.html)

    def test_hostile_text_is_text(self) -> None:
        hostile = document_of({"type": "object", "description": "<script>x</script>"})
        self.assertNotIn("<script", page_of({"a": hostile}).body.decode())
