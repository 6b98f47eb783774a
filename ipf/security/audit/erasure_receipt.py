"""Signed receipts of erasures.

A digest is SHA-256 of salt, tenant and the reference of one Patient with NUL between them, so that who knows the
reference can tell that it was erased, and nobody else learns it.  The signature is Ed25519 over `ipf erasure`, NUL, and
the receipt without `signature` as JSON with sorted members, by the key of the audit trail.

Sources: RFC 8032, RFC 8785.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

import orjson

from ipf.ports.fhir.erasure import ErasureReceipt
from ipf.security.audit.chain import SigningKey, is_signature


def begun_receipt(tenant: str, references: Iterable[str], actor: str, reason: str) -> ErasureReceipt:
    """The receipt of an erasure that begins; without time, counts and signature."""
    salt = secrets.token_hex(16)
    digests = [reference_digest(salt, tenant, reference) for reference in sorted(references)]
    return ErasureReceipt(tenant, "", actor, reason, {}, salt, digests, "", "")


def signed(receipt: ErasureReceipt, key: SigningKey) -> ErasureReceipt:
    """The receipt with a signature."""
    receipt = receipt._replace(key_id=key.id)
    return receipt._replace(signature=key.sign(_statement(receipt)))


def reference_digest(salt: str, tenant: str, reference: str) -> str:
    """The salted digest of a reference."""
    return hashlib.sha256("\0".join((salt, tenant, reference)).encode()).hexdigest()


def concerns(receipt: ErasureReceipt, reference: str) -> bool:
    """Whether it is the receipt of this Patient."""
    return reference_digest(receipt.salt, receipt.tenant, reference) in receipt.digests


def is_genuine(receipt: ErasureReceipt, public_key: str) -> bool:
    """Whether this key signed the receipt as it is."""
    try:
        return is_signature(receipt.signature, _statement(receipt), public_key)
    except (TypeError, ValueError):  # of a file: a member of another type
        return False


def _statement(receipt: ErasureReceipt) -> bytes:
    covered = receipt._asdict()
    del covered["signature"]
    return b"ipf erasure\0" + orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)
