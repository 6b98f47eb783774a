"""Signed receipts of erasures.

The digest is SHA-256 of salt, tenant and reference with NUL between them, so that who knows the reference can tell that
it was erased, and nobody else learns it.  The signature is Ed25519 over `ipf erasure`, NUL, and the receipt without
`id` and `signature` as JSON with sorted members, by the key of the audit trail.

Sources: RFC 8032, RFC 8785.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping

import orjson

from ipf.ports.erasure import ErasureReceipt
from ipf.security.audit_chain import SigningKey, is_signature


def new_receipt(
    key: SigningKey, tenant: str, reference: str, at: str, actor: str, reason: str, counts: Mapping[str, int]
) -> ErasureReceipt:
    """The signed receipt of an erasure."""
    salt = secrets.token_hex(16)
    digest = reference_digest(salt, tenant, reference)
    receipt = ErasureReceipt(tenant, at, actor, reason, dict(counts), salt, digest, key.id, "")
    return receipt._replace(signature=key.sign(_statement(receipt)))


def reference_digest(salt: str, tenant: str, reference: str) -> str:
    """The salted digest of a reference."""
    return hashlib.sha256("\0".join((salt, tenant, reference)).encode()).hexdigest()


def is_genuine(receipt: ErasureReceipt, public_key: str) -> bool:
    """Whether this key signed the receipt as it is."""
    return is_signature(receipt.signature, _statement(receipt), public_key)


def _statement(receipt: ErasureReceipt) -> bytes:
    covered = receipt._asdict()
    del covered["signature"], covered["id"]
    return b"ipf erasure\0" + orjson.dumps(covered, option=orjson.OPT_SORT_KEYS)
