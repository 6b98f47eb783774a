"""Verification of bearer tokens: a token in, a Caller out, or TokenRefused with the reason.

A token is a JWS in compact form.  A key of the issuer signs it, with an algorithm of that kind of key (`keys.py`).  Its
claims name this issuer and this audience, and it has not expired.  Only `kid` selects the key: `jku`, `x5u`, `x5c` and
`jwk` are ignored.  `crit` is refused, since no extension is supported.  A token that is bound to a key of its sender
(`cnf`) is refused, since a bearer does not prove possession of that key.

Sources: RFC 7515, RFC 7519, RFC 8725, RFC 9068 (at+jwt), RFC 6750; interface specification "Authentication".
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import jwt
from jwt.api_jws import PyJWS

from ipf.ports import Caller
from ipf.security.keys import ALGORITHMS, Key, KeySet
from ipf.security.purposes import purposes

LONGEST = 16_384
_LATEST = 253_402_300_799  # seconds since 1970: the last of the year 9999, after which there is no datetime
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+", re.ASCII)
_TYPES = frozenset((None, "jwt", "at+jwt", "application/jwt", "application/at+jwt"))
_JWS = PyJWS()
_ID = re.compile(r"(?:Patient/)?([A-Za-z0-9.-]{1,64})", re.ASCII)
_USER = re.compile(r"(?:.*/)?([A-Z][A-Za-z]+/[A-Za-z0-9.-]{1,64})(?:/_history/[A-Za-z0-9.-]+)?/?", re.ASCII)


class TokenRefused(Exception):
    """A token that is not accepted.  The text is the reason, and contains nothing of the token."""


class UnknownKey(TokenRefused):
    """No known key has signed the token; the issuer may have rotated its keys."""


class WrongSignature(TokenRefused):
    """The key that the token names has not signed it; the issuer may have replaced the key under its `kid`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The requirements on a token.  `audience` None: any.  `skew`: seconds that the issuer's clock may differ."""

    issuer: str
    audience: str | None = None
    skew: float = 30.0
    tenant_claim: str = "tenant"
    patient_claim: str = "patient"


def verify(token: str, keys: KeySet, rules: Rules, now: float) -> Caller:
    """The caller that a token names.  UnknownKey, WrongSignature or TokenRefused.  `now`: seconds since 1970.

    PyJWT's decode verifies the signature with the one algorithm of the key, and issuer and audience.  Times are checked
    here: PyJWT reads the wall clock, and accepts instants that no date has.
    """
    key, algorithm, payload = _key_of(token, keys)
    _object(_decoded(payload))
    claims = _refused(lambda: jwt.decode(
        token, key.public, algorithms=[algorithm], issuer=rules.issuer, audience=rules.audience,
        options={"require": ["iss"], "verify_signature": True, "verify_iss": True,
                 "verify_aud": rules.audience is not None, "verify_exp": False, "verify_nbf": False,
                 "verify_iat": False, "verify_sub": False, "verify_jti": False},
    ))  # fmt: skip
    if "cnf" in claims:
        raise TokenRefused("it is bound to a key of its sender, and was sent as a bearer token")
    expires_at = _check_time(claims, rules.skew, now)
    caller = caller_of(claims, rules, expires_at)
    if caller.is_anonymous:
        raise TokenRefused("it names neither a subject nor a client")
    return caller


def verify_signature(token: str, keys: KeySet) -> bytes:
    """The payload of a JWS that a key of the set has signed.  UnknownKey, WrongSignature or TokenRefused."""
    key, algorithm, _ = _key_of(token, keys)
    payload: bytes = _refused(lambda: _JWS.decode(token, key.public, algorithms=[algorithm]))
    return payload


def _key_of(token: str, keys: KeySet) -> tuple[Key, str, str]:
    """The key and the algorithm for a token, and its payload as it is encoded.  UnknownKey or TokenRefused."""
    if len(token) > LONGEST or not _COMPACT.fullmatch(token):
        raise TokenRefused("it is not a JWS in compact form")
    head, payload, signature = token.split(".")
    header = _object(_decoded(head))
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused("it is signed with an algorithm that is not allowed")
    _check_header(header)
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise TokenRefused("its kid is not a string")
    _decoded(signature)
    key = keys.find(kid, algorithm)
    if key is None:
        if kid is not None and keys.knows(kid):
            raise TokenRefused("its algorithm does not fit the key that it names")
        raise UnknownKey("no key of the issuer fits it")
    return key, algorithm, payload


def _refused(decode: Callable[[], Any]) -> Any:
    """What PyJWT decodes.  TokenRefused with the reason, which contains nothing of the token."""
    try:
        return decode()
    except jwt.InvalidSignatureError:
        raise WrongSignature("its signature is wrong") from None
    except (jwt.InvalidIssuerError, jwt.MissingRequiredClaimError) as error:
        claim = getattr(error, "claim", "iss")
        raise TokenRefused("it is for another audience" if claim == "aud" else "it is from another issuer") from None
    except jwt.InvalidAudienceError:
        raise TokenRefused("it is for another audience") from None
    except jwt.PyJWTError:
        raise TokenRefused("it cannot be decoded") from None


def _check_header(header: Mapping[str, Any]) -> None:
    if "crit" in header or header.get("b64", True) is not True:
        raise TokenRefused("its header requires extensions that are not supported")
    kind = header.get("typ")
    if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
        raise TokenRefused("it is a token for another purpose")


def _check_time(claims: Mapping[str, Any], skew: float, now: float) -> float:
    """Check the times of the token; its expiry in seconds since 1970."""
    expires_at, not_before, issued_at = (_instant(claims, name) for name in ("exp", "nbf", "iat"))
    if expires_at is None:
        raise TokenRefused("it has no expiry (exp)")
    if now >= expires_at + skew:
        raise TokenRefused("it has expired")
    if not_before is not None and now < not_before - skew:
        raise TokenRefused("it is not valid yet")
    if issued_at is not None and now < issued_at - skew:
        raise TokenRefused("it was issued in the future")
    return expires_at


def _instant(claims: Mapping[str, Any], name: str) -> float | None:
    if name not in claims:
        return None
    value = claims[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(f"its {name} is not a number of seconds")
    if not -_LATEST <= value <= _LATEST:  # also for NaN, and for integers that no float holds
        raise TokenRefused(f"its {name} is not within the years up to 9999")
    return float(value)


def caller_of(claims: Mapping[str, Any], rules: Rules, expires_at: float | None = None) -> Caller:
    """The caller of verified claims; malformed claims are ignored."""
    user = _text(claims, "fhirUser", "fhir_user")
    reference = _USER.fullmatch(user)
    person = user[-200:] if reference is None else reference[1]
    patient = _ID.fullmatch(_text(claims, rules.patient_claim))
    if patient is None and person.startswith("Patient/"):
        patient = _ID.fullmatch(person)
    return Caller(
        subject=_text(claims, "sub"),
        client=_text(claims, "client_id", "azp", "cid", "appid"),
        scopes=_scopes(claims),
        tenant=_text(claims, rules.tenant_claim) or None,
        patient=None if patient is None else patient[1],
        user=person or None,
        issuer=rules.issuer,
        expires_at=expires_at,
        purpose=purposes(claims),
    )


def _text(claims: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = claims.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _scopes(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """`scope` as RFC 9068 writes it, or the list (`scope`, `scp`) of other providers."""
    found: list[str] = []
    for name in ("scope", "scp"):
        value = claims.get(name)
        for one in value if isinstance(value, list) else [value]:
            found += one.split() if isinstance(one, str) else ()
    return tuple(dict.fromkeys(found))


def _decoded(part: str) -> bytes:
    """Decode base64url without padding; only the canonical encoding is accepted."""
    try:
        content = urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except ValueError:
        raise TokenRefused("it cannot be decoded") from None
    if urlsafe_b64encode(content).rstrip(b"=") != part.encode():
        raise TokenRefused("it is not in canonical form")
    return content


def _object(content: bytes) -> dict[str, Any]:
    """Parse a JSON object without repeated members."""
    try:
        value = json.loads(content.decode("utf-8"), object_pairs_hook=_members, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused("it is not JSON") from None
    if not isinstance(value, dict):
        raise TokenRefused("it is not a JSON object")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise TokenRefused("a member appears twice in it")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(text)
