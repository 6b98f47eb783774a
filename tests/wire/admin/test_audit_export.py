"""Export and offline check of the audit trail on PostgreSQL: what is changed in the database by hand is found."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import orjson
from twisted.trial.unittest import TestCase

from ipf.app import verify_audit
from ipf.errors import Problem
from ipf.pipeline.maintenance.audit_chain import AuditChain
from ipf.ports.audit.records import ADMIN
from ipf.security.audit.chain import public_pem
from ipf.store.audit.audit import PostgresAuditStore
from ipf.store.audit.chain import PostgresAuditChain
from ipf.wire.admin.audit import export as audit_export
from tests import postgres
from tests.audit_chains import KEY, NOON, OTHER_KEY
from tests.contracts.audit import audit
from tests.wire.admin.test_audit import request


class ExportTests(TestCase):
    """A trail of some records, exported page by page."""

    many = 3_000

    async def setUp(self) -> None:
        self.database = await postgres.database(self, "fhir")
        self.trail = PostgresAuditStore(self.database)
        self.store = PostgresAuditChain(self.database)
        self.chain = AuditChain(self.store, KEY, lambda: NOON)
        self.patch(audit_export, "PAGE", 7)
        await self.chain.start()

    async def fill(self) -> None:
        """Records of two tenants and surfaces, all of them under a head."""
        records = [audit(number, surface=ADMIN if number % 3 else "fhir") for number in range(40)]
        await self.trail.append([*records, *(audit(number, tenant="north") for number in range(5))])
        await self.chain.stop()

    async def export(self, query: str = "") -> Path:
        """The file of an export."""
        path, page, content = Path(self.mktemp()), "", b""
        while True:
            given = await audit_export.export(self.store, lambda: NOON, request(f"audit/export?page={page}&{query}"))
            lines = given.body.splitlines(keepends=True)
            last: dict[str, Any] = orjson.loads(lines[-1])
            content += b"".join(lines[:-1] if last["type"] == "page" else lines)
            if last["type"] != "page":
                path.write_bytes(content)
                return path
            page = last["next"]

    def verify(self, path: Path, key: str = KEY.public_key) -> tuple[int, str]:
        """Exit status and output of `ipfctl audit verify`."""
        pem = Path(self.mktemp())
        pem.write_text(public_pem(key))
        output = StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            status = verify_audit.run([str(path), f"--key={pem}"])
        return status, output.getvalue()

    async def test_an_intact_trail(self) -> None:
        await self.fill()
        for query, records in (("", 45), ("tenant=north", 5), ("surface=admin", 26), ("since=2026-02-01", 45)):
            path = await self.export(query)
            status, output = self.verify(path)
            self.assertEqual((status, output.splitlines()[-1]), (0, "OK: nothing was changed"), output)
            self.assertEqual(path.read_bytes().count(b'"type":"record"'), records)
        status, output = self.verify(path, OTHER_KEY.public_key)
        self.assertIn("its key is not trusted", output)
        self.assertEqual(status, 1)

    async def test_what_is_changed_in_the_database_is_found(self) -> None:
        await self.fill()
        row = f"partition_id = 1 AND id = '{audit(9).id}'"
        forged = (
            "INSERT INTO audit_records SELECT (jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid()))).*"
            f" FROM audit_records a WHERE {row}"
        )
        content = f"CONTENT | record {audit(9).id}"
        for statement, back, expected in (
            (
                "UPDATE audit_records SET agent = 'x' WHERE " + row,
                "agent = 'client-a'",
                content,
            ),
            ("UPDATE audit_records SET status = 403 WHERE " + row, "status = 200", content),
            ("UPDATE audit_records SET surface = 'admin' WHERE " + row, "surface = 'fhir'", "CONTENT | record "),
            ("UPDATE audit_heads SET number = number - 1 WHERE surface = 'fhir'", "", "HEAD SIGNATURE"),
        ):
            await self.database.many(statement)
            status, output = self.verify(await self.export())
            self.assertEqual(status, 1)
            self.assertIn(expected, output)
            if back:
                await self.database.many(f"UPDATE audit_records SET {back} WHERE {row}")
        await self.database.many("UPDATE audit_heads SET number = number + 1 WHERE surface = 'fhir'")
        self.assertEqual(self.verify(await self.export())[0], 0)
        await self.database.many(forged)
        self.assertIn("INSERTED | record ", self.verify(await self.export())[1])
        await self.database.many(f"DELETE FROM audit_records WHERE {row}")
        self.assertIn(f"MISSING | record {audit(9).id}", self.verify(await self.export())[1])
        await self.database.many(f"DELETE FROM audit_chain WHERE {row}")
        self.assertIn("links between", self.verify(await self.export())[1])

    async def test_one_flipped_bit_in_many_records(self) -> None:
        self.patch(audit_export, "PAGE", self.many // 20)
        await self.trail.append([audit(1)])
        await self.database.many(
            "INSERT INTO audit_records SELECT (jsonb_populate_record(a, jsonb_build_object("
            "'id', overlay(a.id::text PLACING lpad(to_hex(n), 12, '0') FROM 25)))).*"
            f" FROM audit_records a, generate_series(1000, {self.many + 998}) n"
        )
        await self.database.many(
            "INSERT INTO audit_unchained (partition_id, surface, recorded_at, id) SELECT partition_id, surface,"
            f" recorded_at, id FROM audit_records WHERE id <> '{audit(1).id}'"
        )
        while await self.chain.step():
            pass
        await self.chain.stop()
        path = await self.export()
        status, output = self.verify(path)
        self.assertEqual((status, output.splitlines()[-1]), (0, "OK: nothing was changed"), output)
        content = bytearray(path.read_bytes())
        at = content.index(b'"agent":"client-a"', len(content) // 2) + len('"agent":"cl')
        content[at] ^= 1
        path.write_bytes(content)
        status, output = self.verify(path)
        faults = [line for line in output.splitlines() if " | " in line]
        self.assertEqual((status, len(faults)), (1, 1), output)
        self.assertTrue(faults[0].startswith("CONTENT | record "), faults)

    async def test_parameters(self) -> None:
        for query in ("since=x", "until=2026-13-01", "surface=x", "page=x", "page=after:x", "page=day:x"):
            with self.assertRaises(Problem):
                await audit_export.export(self.store, lambda: NOON, request(f"audit/export?{query}"))

    async def test_heads(self) -> None:
        await self.fill()
        body = orjson.loads((await audit_export.list_heads(self.store, request("audit/heads?surface=fhir"))).body)
        self.assertEqual({item["tenant"] for item in body["items"]}, {"default", "north"})
        self.assertEqual([key["pem"] for key in body["keys"]], [public_pem(KEY.public_key)])
        self.assertEqual(body["installation"], await self.store.installation())

    def test_files_that_cannot_be_read(self) -> None:
        empty = Path(self.mktemp())
        empty.write_bytes(b"")
        self.assertEqual(self.verify(Path(self.mktemp()))[0], 2)
        self.assertEqual(self.verify(empty)[0], 1)
        output = StringIO()
        with redirect_stderr(output):
            self.assertEqual(verify_audit.run([str(empty), f"--key={empty}"]), 2)
        self.assertIn("no public key in PEM", output.getvalue())
