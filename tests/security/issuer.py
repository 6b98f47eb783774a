"""An identity provider in memory: keys, signed tokens and a key set."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from jwt.algorithms import get_default_algorithms

from ipf.security.keys import KeySet
from ipf.security.tokens import Rules

ISSUER = "https://idp.example.org"
AUDIENCE = "https://ipf.example.org/fhir"
NOW = 1_800_000_000.0
RULES = Rules(ISSUER)
_ALGORITHMS = get_default_algorithms()
_CURVES: dict[str, Any] = {
    "P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1, "secp256k1": ec.SECP256K1,
}  # fmt: skip


@cache
def private(name: str) -> Any:
    """A private key: rsa, rsa-other, rsa-1024, P-256 ..., Ed25519, Ed448 (another one for each name)."""
    kind = name.partition("/")[0]
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if kind == "rsa-1024" else 2048)
    if kind == "Ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "Ed448":
        return ed448.Ed448PrivateKey.generate()
    return ec.generate_private_key(_CURVES[kind]())


def algorithm_of(name: str) -> str:
    """The default algorithm of a key."""
    kind = name.partition("/")[0]
    return {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512", "secp256k1": "ES256K"}.get(
        kind, "EdDSA" if kind.startswith("Ed") else "RS256"
    )


def jwk(name: str, **members: Any) -> dict[str, Any]:
    """The public JWK of a key, with its name as kid; members of value None are omitted."""
    public = private(name).public_key()
    found = _ALGORITHMS[algorithm_of(name)].to_jwk(public, as_dict=True)
    found = {**found, "kid": name, "use": "sig", **members}
    found.pop("key_ops", None) if "key_ops" not in members else None
    return {member: value for member, value in found.items() if value is not None}


def key_set(*names: str) -> KeySet:
    """The published keys."""
    return KeySet.parse({"keys": [jwk(name) for name in names]})


def encoded(content: bytes | Mapping[str, Any]) -> str:
    """base64url."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def claims(**changes: Any) -> dict[str, Any]:
    """Claims of a valid token; claims of value None are omitted."""
    found = {
        "iss": ISSUER, "sub": "ada", "client_id": "app", "aud": AUDIENCE, "iat": NOW - 10, "exp": NOW + 900,
        "scope": "system/Patient.rs", "jti": "1", **changes,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def token(
    key: str = "rsa", header: Mapping[str, Any] | None = None, payload: Any = None, *, alg: str = "", **changes: Any
) -> str:
    """A token signed with this key.  `alg`: the algorithm; `header`: members to add or replace."""
    algorithm = alg or algorithm_of(key)
    head = {"alg": algorithm, "typ": "at+jwt", "kid": key, **(header or {})}
    head = {name: value for name, value in head.items() if value is not None}
    body = encoded(claims(**changes) if payload is None else payload)
    signed = f"{encoded(head)}.{body}"
    return f"{signed}.{encoded(_ALGORITHMS[algorithm].sign(signed.encode(), private(key)))}"
