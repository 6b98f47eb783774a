"""Receipts of erasures, checked without a service."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from twisted.trial.unittest import SynchronousTestCase

from ipf.app.verify_audit import trusted_keys
from ipf.app.verify_erasures import fault_of, receipts_in, run
from ipf.security.audit.chain import SigningKey, new_private_key, public_pem
from ipf.security.audit.erasure_receipt import begun_receipt, signed
from ipf.wire.admin.patients.erasure import receipt_item

KEY = SigningKey(new_private_key())


def receipt(number: int = 7, patient: str = "Patient/x") -> dict[str, Any]:
    """What the API answers."""
    begun = begun_receipt("default", [patient, "Patient/z"], "operator", "asked for")
    at = "2026-01-31T08:05:09+00:00"
    return receipt_item(signed(begun._replace(id=number, at=at, counts={"messages": 2, "versions": 3}), KEY))


def is_noticed(content: bytes | bytearray, keys: Mapping[str, str]) -> bool:
    """Whether the receipt in a file cannot be read, or has a fault."""
    try:
        (found,) = receipts_in(orjson.loads(content))
    except (ValueError, KeyError, TypeError):
        return True
    return bool(fault_of(found, keys))


class VerifyErasuresTest(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.key = self.folder / "key.pem"
        self.key.write_text(public_pem(KEY.public_key))
        self.said = ""

    def check(self, content: bytes, *more: str) -> int:
        """The exit status for a file."""
        file = self.folder / "receipts.json"
        file.write_bytes(content)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            status = run([str(file), f"--key={self.key}", *more])
        self.said = out.getvalue()
        return status

    def test_genuine(self) -> None:
        """One, the answer of the erasure, a page, a list."""
        for content in (
            receipt(), {"dry_run": False, "receipt": receipt()}, {"total": 1, "items": [receipt()]},
            [receipt(), receipt(8)],
        ):  # fmt: skip
            self.assertEqual(self.check(json.dumps(content).encode()), 0, self.said)
            self.assertIn("erasure 7 of 2026-01-31T08:05:09+00:00 by operator: genuine", self.said)

    def test_patient(self) -> None:
        """Who knows the reference can tell."""
        content = json.dumps([receipt()]).encode()
        for name, status in (("Patient/x", 0), ("z", 0), ("Patient/y", 1)):
            self.assertEqual(self.check(content, f"--patient={name}"), status, self.said)
        self.assertEqual(self.check(content, "--patient=x", "--tenant=north"), 1)

    def test_any_flipped_bit_is_noticed(self) -> None:
        """Of the file as the service answers it: by what the command calls for every bit, by the command for some."""
        content = json.dumps(receipt(), separators=(",", ":")).encode()
        keys = trusted_keys([self.key])
        self.assertEqual(is_noticed(content, keys), False)
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            self.assertTrue(is_noticed(changed, keys), bytes(changed))
            if bit % 37 == 0:
                self.assertGreater(self.check(bytes(changed)), 0, bytes(changed))

    def test_not_genuine(self) -> None:
        """Another key, an erasure that was not finished, no receipt, no JSON."""
        other = SigningKey(new_private_key())
        begun = begun_receipt("default", ["Patient/x"], "a", "r")
        foreign = receipt_item(signed(begun, other))
        self.assertEqual(self.check(json.dumps(foreign).encode()), 1)
        self.assertIn("not trusted", self.said)
        self.assertEqual(self.check(json.dumps(foreign | {"key_id": KEY.id}).encode()), 1)
        self.assertIn("does not fit", self.said)
        self.assertEqual(self.check(json.dumps(receipt_item(begun)).encode()), 1)
        self.assertIn("NOT FINISHED", self.said)
        self.assertEqual(self.check(b"[]"), 1)
        for content in (b"", b"{", b"7", b'{"items": [1]}', b'{"receipt": {}}'):
            self.assertEqual(self.check(content), 2, content)
