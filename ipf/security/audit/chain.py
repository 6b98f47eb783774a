"""Hashes and signatures of the audit trail's chains.

Canonical bytes are JSON in UTF-8 without spaces, members sorted by name, as RFC 8785 writes strings and integers:

- digest of a record, version 1: SHA-256 of the object of the columns `ports.audit.chain.COLUMNS`; `recorded_at` is ISO
  8601 in UTC, `origin` the text of its jsonb.  A later column belongs to another version, so that old hashes stay.
- hash of a link: SHA-256 of the previous link's hash (32 bytes) and the object of the link without `hash`.
- before the first link: SHA-256 of `ipf audit chain`, installation, tenant, surface, with NUL between them.
- signature of a head: Ed25519 over the object of the head without `signature`.

The first link of a day follows the last one of the day before, so that no day can be left out.

Sources: RFC 8032 (Ed25519), RFC 8785 (JSON Canonicalization Scheme), FIPS 180-4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ipf.ports.audit.chain import Chain, Head, Link, Waiting

VERSION = 1


class BadKey(Exception):
    """A text that is no Ed25519 key in PEM."""


class SigningKey:
    """The private key of an installation.  `pem`: PKCS 8 without a password.  BadKey."""

    def __init__(self, pem: str) -> None:
        try:
            key = load_pem_private_key(pem.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise BadKey("not a private key in PEM without a password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadKey("not an Ed25519 key")
        self._key = key
        self.public_key = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()
        self.id = key_id(self.public_key)

    def signed(self, link: Link, at: str, reason: str, before: str | None = None) -> Head:
        """The head of a chain that ends with `link`."""
        head = Head(link.tenant, link.surface, link.day, link.number, link.hash, at, reason, before, self.id, "")
        return head._replace(signature=self.sign(_statement(head)))

    def sign(self, statement: bytes) -> str:
        """The signature of a statement, which begins with what it is about and NUL."""
        return self._key.sign(statement).hex()


def new_private_key() -> str:
    """A new private key in PEM."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def key_id(public_key: str) -> str:
    """The id of a public key: 16 digits of its SHA-256."""
    return hashlib.sha256(bytes.fromhex(public_key)).hexdigest()[:16]


def public_pem(public_key: str) -> str:
    """A public key in PEM."""
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_pem(pem: str) -> str:
    """A public key from PEM.  BadKey."""
    try:
        key = load_pem_public_key(pem.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise BadKey("not a public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadKey("not an Ed25519 key")
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def is_signed(head: Head, public_key: str) -> bool:
    """Whether this key made the signature."""
    return is_signature(head.signature, _statement(head), public_key)


def is_signature(digits: str, statement: bytes, public_key: str) -> bool:
    """Whether this key signed the statement."""
    try:
        signature = bytes.fromhex(digits)
        if signature.hex() != digits:  # digits are lower case: each text has one form
            return False
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def genesis(installation: str, chain: Chain) -> str:
    """The hash before the first link of a chain."""
    return hashlib.sha256("\0".join(("ipf audit chain", installation, *chain)).encode()).hexdigest()


def digest_of(record: Mapping[str, Any]) -> str:
    """The digest of a record: an object of exactly the columns of a version."""
    return hashlib.sha256(_canonical(record)).hexdigest()


def hash_of(previous: str, link: Link) -> str:
    """The hash of a link after `previous`; `link.hash` is not read."""
    covered = link._asdict()
    del covered["hash"]
    return hashlib.sha256(bytes.fromhex(previous) + _canonical(covered)).hexdigest()


def next_links(
    installation: str, waiting: Sequence[Waiting], tails: Mapping[Chain, Link], position: int, today: str
) -> tuple[list[Link], list[Link]]:
    """The links of records after the last links of their chains; and the last links of days that end with them."""
    last, links, ended = dict(tails), [], []
    for one in waiting:
        position += 1
        chain = one.tenant, one.surface
        tail = last.get(chain)
        day = today if tail is None else max(today, tail.day)  # a clock that goes back does not reopen a day
        same_day = tail is not None and tail.day == day
        digest = None if one.record is None else digest_of(one.record)
        number = tail.number + 1 if tail is not None and same_day else 1
        link = Link(position, *chain, day, number, one.id, one.recorded_at, VERSION, digest, "")
        previous = genesis(installation, chain) if tail is None else tail.hash
        if tail is not None and not same_day:
            ended.append(tail)
        last[chain] = link._replace(hash=hash_of(previous, link))
        links.append(last[chain])
    return links, ended


def _statement(head: Head) -> bytes:
    covered = head._asdict()
    del covered["signature"]
    return b"ipf audit head\0" + _canonical(covered)


def _canonical(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
