"""The keys of a JSON Web Key Set that may verify a token.

Only public keys of RSA (2,048 bits up), the NIST curves and the Edwards curves are taken, and each algorithm goes with
one kind of key, so that no token can choose how its key is used.  What is no signing key, is known to be weak, or
cannot be read is left out and named in `KeySet.refused`; two keys with one `kid` are both left out, since nobody can
tell which is meant.

Sources: RFC 7517, RFC 7518 section 3.1, RFC 8037, RFC 8725; ROCA: Nemec et al., "The Return of Coppersmith's Attack".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jwt import InvalidKeyError
from jwt.algorithms import Algorithm, get_default_algorithms

_DEFAULT = get_default_algorithms()
_NAMES = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
ALGORITHMS: Mapping[str, Algorithm] = {name: _DEFAULT[name] for name in _NAMES}
"""What a token may be signed with.  Never `none`, never HMAC."""

_KIND = {name: "RSA" for name in _NAMES if name[:2] in ("RS", "PS")}
_KIND |= {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed"}
_READERS: Mapping[str, Algorithm] = {"RSA": _DEFAULT["RS256"], "EC": _DEFAULT["ES256"], "OKP": _DEFAULT["EdDSA"]}
_PUBLIC = frozenset(("kty", "n", "e", "crv", "x", "y"))
_SMALLEST_RSA = 2048
_LARGEST_RSA = 16_384
_MOST_KEYS = 100


class KeyRefused(Exception):
    """A key that may not verify.  The text says why."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key.  `kind`: RSA, P-256, P-384, P-521 or Ed.  `algorithm`: the only one it is for; None = any."""

    kid: str | None
    kind: str
    algorithm: str | None
    public: Any = field(compare=False, repr=False)

    def fits(self, algorithm: str) -> bool:
        """Whether a token of this algorithm may be verified with it."""
        return _KIND.get(algorithm) == self.kind and self.algorithm in (None, algorithm)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of an issuer.  `refused`: why others were left out."""

    keys: tuple[Key, ...] = ()
    refused: tuple[str, ...] = ()

    @staticmethod
    def parse(document: Any) -> KeySet:
        """A JWK Set.  KeyRefused when it is none."""
        given = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(given, list):
            raise KeyRefused("this is no JSON Web Key Set")
        keys: list[Key] = []
        refused: list[str] = []
        for number, one in enumerate(given[:_MOST_KEYS]):
            try:
                keys.append(read_key(one))
            except KeyRefused as reason:
                refused.append(f"keys[{number}]: {reason}")
        named = [one.kid for one in keys if one.kid is not None]
        twice = {kid for kid in named if named.count(kid) > 1}
        refused += [f"kid {kid[:40]!r} stands for several keys" for kid in sorted(twice)]
        return KeySet(tuple(key for key in keys if key.kid not in twice), tuple(refused))

    def find(self, kid: str | None, algorithm: str) -> Key | None:
        """The one key for a token; without a `kid` only when there is no doubt."""
        fitting = [key for key in self.keys if key.fits(algorithm)]
        if kid is not None:
            return next((key for key in fitting if key.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None

    def knows(self, kid: str | None) -> bool:
        """Whether any key has this name."""
        return any(key.kid == kid for key in self.keys)


def read_key(jwk: Any) -> Key:
    """One JWK.  KeyRefused says why it is none that may verify."""
    if not isinstance(jwk, dict):
        raise KeyRefused("is no object")
    kid, algorithm, kty = jwk.get("kid"), jwk.get("alg"), jwk.get("kty")
    if kid is not None and not isinstance(kid, str):
        raise KeyRefused("its kid is no text")
    if not isinstance(kty, str) or kty not in _READERS:
        raise KeyRefused(f"keys of type {str(kty)[:20]} verify nothing here")
    if jwk.get("use", "sig") != "sig" or "verify" not in _operations(jwk):
        raise KeyRefused("is not for signatures")
    if algorithm is not None and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS):
        raise KeyRefused(f"is for the algorithm {str(algorithm)[:20]}")
    public = _public(jwk)
    kind = _checked_rsa(public) if kty == "RSA" else "Ed" if kty == "OKP" else str(jwk.get("crv"))
    if kind not in _KIND.values():
        raise KeyRefused(f"is on the curve {kind[:20]}")
    key = Key(kid, kind, algorithm, public)
    if algorithm is not None and not key.fits(algorithm):
        raise KeyRefused(f"cannot be used with {algorithm}, which it says it is for")
    return key


def _operations(jwk: Mapping[str, Any]) -> list[Any]:
    operations = jwk.get("key_ops", ["verify"])
    return operations if isinstance(operations, list) else []


def _public(jwk: Mapping[str, Any]) -> Any:
    try:
        return _READERS[jwk["kty"]].from_jwk({name: value for name, value in jwk.items() if name in _PUBLIC})
    except (InvalidKeyError, ValueError, TypeError, KeyError, OverflowError):
        raise KeyRefused("cannot be read") from None


def _checked_rsa(public: Any) -> str:
    numbers = public.public_numbers()
    bits = numbers.n.bit_length()
    if not _SMALLEST_RSA <= bits <= _LARGEST_RSA:
        raise KeyRefused(f"has {bits} bits; {_SMALLEST_RSA} are the least")
    if numbers.e < 3 or numbers.e % 2 == 0:
        raise KeyRefused("has an exponent that proves nothing")
    if _is_roca(numbers.n):
        raise KeyRefused("was made by a generator whose keys can be factored (ROCA)")
    return "RSA"


def _powers(prime: int) -> frozenset[int]:
    """What 65537 generates modulo a prime."""
    found, power = {1}, 65537 % prime
    while power not in found:
        found.add(power)
        power = power * 65537 % prime
    return frozenset(found)


_PRIMES = [n for n in range(3, 168) if all(n % other for other in range(2, n))]
_GENERATED = {prime: _powers(prime) for prime in _PRIMES}


def _is_roca(modulus: int) -> bool:
    """Whether the modulus is, modulo every small prime, a power of 65537: by chance once in 2^27 or less often."""
    return all(modulus % prime in powers for prime, powers in _GENERATED.items())
