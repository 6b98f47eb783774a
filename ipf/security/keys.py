"""The keys of a JSON Web Key Set that may verify a token.

Accepted are public keys of RSA (2,048 bits and more), the NIST curves and the Edwards curves.  Each algorithm needs one
kind of key, so a token cannot choose how its key is used.  Keys that are not for signatures, are known to be weak or
cannot be parsed are omitted and named in `KeySet.refused`, as are keys that share a `kid`.

Sources: RFC 7517, RFC 7518 section 3.1, RFC 8037, RFC 8725; ROCA: Nemec et al., "The Return of Coppersmith's Attack".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import InvalidKeyError
from jwt.algorithms import Algorithm, get_default_algorithms

_DEFAULT = get_default_algorithms()
_NAMES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ALGORITHMS: Mapping[str, Algorithm] = {name: _DEFAULT[name] for name in _NAMES}
"""The signature algorithms that tokens may use.  Never `none`, never HMAC."""

_KIND = {name: "RSA" for name in _NAMES if name[:2] in ("RS", "PS")}
_KIND |= {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed"}
_READERS: Mapping[str, Algorithm] = {"RSA": _DEFAULT["RS256"], "EC": _DEFAULT["ES256"], "OKP": _DEFAULT["EdDSA"]}
_PUBLIC = frozenset(("kty", "n", "e", "crv", "x", "y"))
_SMALLEST_RSA = 2048
_LARGEST_RSA = 16_384
_MOST_KEYS = 100


class KeyRefused(Exception):
    """A key that is not accepted.  The text is the reason."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key.  `kind`: RSA, P-256, P-384, P-521 or Ed.  `algorithm`: the only one it is for; None = any.

    `encoded`: the key as SubjectPublicKeyInfo, so that a key that replaces another under its `kid` differs from it.
    """

    kid: str | None
    kind: str
    algorithm: str | None
    encoded: bytes = field(repr=False)
    public: Any = field(compare=False, repr=False)

    def fits(self, algorithm: str) -> bool:
        """Whether a token of this algorithm may be verified with it."""
        return _KIND.get(algorithm) == self.kind and self.algorithm in (None, algorithm)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer.  `refused`: the reasons for omitted keys."""

    keys: tuple[Key, ...] = ()
    refused: tuple[str, ...] = ()

    @staticmethod
    def parse(document: Any) -> KeySet:
        """The key set of a parsed JWK Set.  KeyRefused when the document is not a JWK Set."""
        given = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(given, list):
            raise KeyRefused("this is not a JSON Web Key Set")
        keys: list[Key] = []
        refused: list[str] = []
        if len(given) > _MOST_KEYS:
            refused.append(f"of {len(given)} keys only the last {_MOST_KEYS}, the newest, are used")
        first = max(0, len(given) - _MOST_KEYS)
        for number, one in enumerate(given[first:], first):
            try:
                keys.append(read_key(one))
            except KeyRefused as reason:
                refused.append(f"keys[{number}]: {reason}")
        named = [one.kid for one in keys if one.kid is not None]
        twice = {kid for kid in named if named.count(kid) > 1}
        refused += [f"kid {kid[:40]!r} is used by several keys" for kid in sorted(twice)]
        return KeySet(tuple(key for key in keys if key.kid not in twice), tuple(refused))

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The key for a token; without a `kid`, the only key for the algorithm."""
        fitting = [key for key in self.keys if key.fits(algorithm)]
        if kid is not None:
            return next((key for key in fitting if key.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None

    def knows(self, kid: str | None) -> bool:
        """Whether any key has this `kid`."""
        return any(key.kid == kid for key in self.keys)


def read_key(jwk: Any) -> Key:
    """The key of a parsed JWK.  KeyRefused when it is not accepted."""
    if not isinstance(jwk, dict):
        raise KeyRefused("is not a JSON object")
    kid, algorithm, kty = jwk.get("kid"), jwk.get("alg"), jwk.get("kty")
    if kid is not None and not isinstance(kid, str):
        raise KeyRefused("its kid is not a string")
    if not isinstance(kty, str) or kty not in _READERS:
        raise KeyRefused(f"keys of type {str(kty)[:20]} are not supported")
    if jwk.get("use", "sig") != "sig" or "verify" not in _operations(jwk):
        raise KeyRefused("is not for signatures")
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS):
        raise KeyRefused(f"is for the algorithm {str(algorithm)[:20]}")
    public = _public(jwk)
    kind = _checked_rsa(public) if kty == "RSA" else "Ed" if kty == "OKP" else str(jwk.get("crv"))
    if kind not in _KIND.values():
        raise KeyRefused(f"is on the curve {kind[:20]}")
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    key = Key(kid, kind, algorithm, encoded, public)
    if algorithm is not None and not key.fits(algorithm):
        raise KeyRefused(f"does not fit its alg {algorithm}")
    return key


def _operations(jwk: Mapping[str, Any]) -> list[Any]:
    operations = jwk.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else []


def _public(jwk: Mapping[str, Any]) -> Any:
    try:
        return _READERS[jwk["kty"]].from_jwk({name: value for name, value in jwk.items() if name in _PUBLIC})
    except (InvalidKeyError, ValueError, TypeError, KeyError, OverflowError):
        raise KeyRefused("cannot be parsed") from None


def _checked_rsa(public: Any) -> str:
    numbers = public.public_numbers()
    bits = numbers.n.bit_length()
    if not _SMALLEST_RSA <= bits <= _LARGEST_RSA:
        raise KeyRefused(f"has {bits} bits; the range is {_SMALLEST_RSA} to {_LARGEST_RSA}")
    if numbers.e < 3 or numbers.e % 2 == 0:
        raise KeyRefused("has an invalid exponent")
    if _is_roca(numbers.n):
        raise KeyRefused("is vulnerable to ROCA")
    return "RSA"


def _powers(prime: int) -> frozenset[int]:
    """The powers of 65537 modulo a prime."""
    found, power = {1}, 65537 % prime
    while power not in found:
        found.add(power)
        power = power * 65537 % prime
    return frozenset(found)


_PRIMES = [n for n in range(3, 168) if all(n % other for other in range(2, n))]
_GENERATED = {prime: _powers(prime) for prime in _PRIMES}


def _is_roca(modulus: int) -> bool:
    """Whether the modulus is a power of 65537 modulo every small prime; by chance at most one in 2^27 is."""
    return all(modulus % prime in powers for prime, powers in _GENERATED.items())
