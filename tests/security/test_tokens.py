"""Tables of bearer tokens: accepted tokens, the effect of each claim, known attacks."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.trial.unittest import TestCase

from ipf.ports import Caller
from ipf.security.keys import ALGORITHMS, KeyRefused, KeySet, read_key
from ipf.security.tokens import Rules, TokenRefused, UnknownKey, verify
from tests.security.issuer import (
    AUDIENCE,
    ISSUER,
    NOW,
    RULES,
    algorithm_of,
    claims,
    encoded,
    jwk,
    key_set,
    private,
    token,
)

KEYS = key_set("rsa", "P-256", "P-384", "P-521", "Ed25519", "Ed448")

# (key, algorithm): does the pair verify?  Every other pair of a key here and an allowed algorithm must not.
PAIRS = [
    *(("rsa", name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
    ("P-256", "ES256"),
    ("P-384", "ES384"),
    ("P-521", "ES512"),
    ("Ed25519", "EdDSA"),
    ("Ed448", "EdDSA"),
]

# Changes of the claims, and what is said of them; "" = accepted.
CLAIMS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"iss": "https://idp.example.org/"}, "another issuer"),
    ({"iss": "https://IDP.example.org"}, "another issuer"),
    ({"iss": "https://evil.example.org"}, "another issuer"),
    ({"iss": [ISSUER]}, "another issuer"),
    ({"iss": None}, "another issuer"),
    ({"exp": NOW - 29}, ""),
    ({"exp": NOW - 30}, "expired"),
    ({"exp": NOW - 3600}, "expired"),
    ({"exp": None}, "has no expiry"),
    ({"exp": str(NOW + 900)}, "exp is not a number of seconds"),
    ({"exp": True}, "exp is not a number of seconds"),
    ({"exp": [NOW]}, "exp is not a number of seconds"),
    ({"exp": NOW + 900.5}, ""),
    ({"exp": 10**400}, "exp is not within the years up to 9999"),
    ({"exp": 1e300}, "exp is not within the years up to 9999"),
    ({"exp": -(10**400)}, "exp is not within the years up to 9999"),
    ({"exp": 253_402_300_799}, ""),
    ({"nbf": -(10**400)}, "nbf is not within the years up to 9999"),
    ({"iat": -1e308}, "iat is not within the years up to 9999"),
    ({"nbf": NOW - 1}, ""),
    ({"nbf": NOW + 30}, ""),
    ({"nbf": NOW + 31}, "not valid yet"),
    ({"nbf": "now"}, "nbf is not a number of seconds"),
    ({"iat": NOW + 30}, ""),
    ({"iat": NOW + 31}, "in the future"),
    ({"iat": None}, ""),
    ({"iat": {}}, "iat is not a number of seconds"),
    ({"aud": None}, ""),
    ({"aud": "another"}, ""),
    ({"sub": None}, ""),
    ({"client_id": None}, ""),
    ({"sub": None, "client_id": None}, "neither a subject nor a client"),
    ({"sub": "", "client_id": 7}, "neither a subject nor a client"),
    ({"cnf": {"jkt": "x"}}, "bound to a key"),
]

AUDIENCES: list[tuple[Any, bool]] = [
    (AUDIENCE, True),
    ([AUDIENCE], True),
    (["other", AUDIENCE], True),
    ("other", False),
    (["other"], False),
    ([], False),
    (None, False),
    (AUDIENCE + "/", False),
    ({AUDIENCE: 1}, False),
]

CALLERS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"scope": "a  b a"}, {"scopes": ("a", "b")}),
    ({"scope": ["a", "b c"]}, {"scopes": ("a", "b", "c")}),
    ({"scope": None, "scp": ["a"]}, {"scopes": ("a",)}),
    ({"scope": None, "scp": "a b"}, {"scopes": ("a", "b")}),
    ({"scope": {"a": 1}}, {"scopes": ()}),
    ({"scope": None}, {"scopes": ()}),
    ({"client_id": None, "azp": "x"}, {"client": "x"}),
    ({"client_id": None, "cid": "x"}, {"client": "x"}),
    ({"tenant": "north"}, {"tenant": "north"}),
    ({"tenant": ["north"]}, {"tenant": None}),
    ({"patient": "p1"}, {"patient": "p1"}),
    ({"patient": "Patient/p1"}, {"patient": "p1"}),
    ({"patient": "Group/p1"}, {"patient": None}),
    ({"patient": "p1,p2"}, {"patient": None}),
    ({"fhirUser": "https://x.org/fhir/Patient/p1"}, {"user": "Patient/p1", "patient": "p1"}),
    ({"fhirUser": "https://x.org/fhir/Patient/p1/_history/3"}, {"user": "Patient/p1", "patient": "p1"}),
    ({"fhirUser": "https://x.org/fhir/Patient/p1/"}, {"user": "Patient/p1", "patient": "p1"}),
    ({"fhirUser": "https://x.org/fhir/RelatedPerson/r"}, {"user": "RelatedPerson/r", "patient": None}),
    ({"fhirUser": "Practitioner/d"}, {"user": "Practitioner/d", "patient": None}),
    ({"fhirUser": "Patient/p1", "patient": "p2"}, {"user": "Patient/p1", "patient": "p2"}),
]


def refusal(given: str, keys: KeySet = KEYS, rules: Rules = RULES) -> str:
    """The reason of a refusal; "" for an accepted token."""
    try:
        verify(given, keys, rules, NOW)
    except TokenRefused as refused:
        return str(refused)
    return ""


def pem(name: str) -> bytes:
    """The public key as PEM text, which attackers use as an HMAC secret."""
    found: bytes = private(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def hmac_token(secret: bytes, **header: Any) -> str:
    """A token signed by HMAC with public text."""
    signed = f"{encoded({'alg': 'HS256', 'kid': 'rsa', **header})}.{encoded(claims())}"
    return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"


def unsigned(alg: str, signature: str = "") -> str:
    """A token without a signature."""
    return f"{encoded({'alg': alg, 'kid': 'rsa'})}.{encoded(claims())}.{signature}"


def changed(good: str, part: int, make: Any) -> str:
    """A valid token with one part replaced."""
    parts = good.split(".")
    parts[part] = make(parts[part])
    return ".".join(parts)


def attacks() -> dict[str, str]:
    """Tokens that must be refused, by attack."""
    good = token()
    foreign = token("rsa-other", {"kid": "rsa"})
    own = jwk("rsa-other")
    twice = b'{"alg":"RS256","alg":"none","kid":"rsa"}'
    return {
        "nothing": "",
        "no dots": "abc",
        "two parts": good.rpartition(".")[0],
        "four parts": good + ".AAAA",
        "five parts, as an encrypted token": "a.b.c.d.e",
        "JSON form": json.dumps({"payload": good.split(".")[1], "signatures": []}),
        "no signature": good.rpartition(".")[0] + ".",
        "alg none": unsigned("none"),
        "alg None": unsigned("None", "AAAA"),
        "alg nOnE": unsigned("nOnE", good.split(".")[2]),
        "alg empty": unsigned("", good.split(".")[2]),
        "alg missing": token(header={"alg": None}),
        "alg a list": token(header={"alg": ["RS256"]}),
        "alg ES256K": token("secp256k1"),
        "HMAC with the public key as PEM": hmac_token(pem("rsa")),
        "HMAC with the modulus": hmac_token(jwk("rsa")["n"].encode()),
        "HMAC with nothing": hmac_token(b""),
        "HMAC with the key set's kid": hmac_token(b"rsa"),
        "RSA token said to be PSS": token(header={"alg": "PS256"}),
        "RSA token said to be RS384": token(header={"alg": "RS384"}),
        "RSA key claimed to be a curve": token(header={"alg": "ES256"}),
        "RSA key claimed to be Ed": token(header={"alg": "EdDSA"}),
        "ES256 signature on the key of P-384": token("P-256", {"kid": "P-384"}),
        "another key under a known kid": foreign,
        "a kid that is not known": token("rsa-other"),
        "a kid that walks": token("rsa-other", {"kid": "../../dev/null"}),
        "a kid for SQL": token("rsa-other", {"kid": "x' UNION SELECT 'k"}),
        "a kid that is a number": token(header={"kid": 1}),
        "a kid that is an object": token(header={"kid": {}}),
        "embedded jwk": token("rsa-other", {"jwk": own}),
        "embedded jwk with a known kid": token("rsa-other", {"jwk": own, "kid": "rsa"}),
        "jku": token("rsa-other", {"jku": "https://evil.example.org/keys"}),
        "x5u": token("rsa-other", {"x5u": "https://evil.example.org/chain"}),
        "x5c": token("rsa-other", {"x5c": ["AAAA"], "kid": "rsa"}),
        "crit": token(header={"crit": ["exp"]}),
        "crit of nothing": token(header={"crit": []}),
        "crit with b64": token(header={"crit": ["b64"], "b64": False}),
        "b64 without crit": token(header={"b64": False}),
        "typ of an id for DPoP": token(header={"typ": "dpop+jwt"}),
        "typ of a logout token": token(header={"typ": "logout+jwt"}),
        "typ of a set event": token(header={"typ": "secevent+jwt"}),
        "typ a number": token(header={"typ": 1}),
        "payload changed": changed(good, 1, lambda _: encoded(claims(scope="system/*.cruds"))),
        "header changed": changed(good, 0, lambda _: encoded({"alg": "RS256", "kid": "rsa", "x": 1})),
        "signature of another token": changed(good, 2, lambda _: token(sub="bob").split(".")[2]),
        "signature cut short": good[:-4],
        "signature with padding": good + "==",
        "signature of zeros": changed(good, 2, lambda one: encoded(bytes(256))),
        "ES256 signature of zeros": changed(token("P-256"), 2, lambda one: encoded(bytes(64))),
        "ES256 signature in DER": changed(token("P-256"), 2, lambda one: encoded(b"\x30" + bytes(70))),
        "a line end after it": good + "\n",
        "blanks in it": good.replace(".", " . "),
        "the other alphabet": changed(good, 2, lambda one: "+/" + one[2:]),
        "bits behind the last byte": changed(good, 2, lambda one: one[:-1] + ("B" if one[-1] != "B" else "C")),
        "header no JSON": f"{encoded(b'{')}.{encoded(claims())}.AAAA",
        "header a list": f"{encoded(b'[]')}.{encoded(claims())}.AAAA",
        "header twice": f"{encoded(twice)}.{encoded(claims())}.{good.split('.')[2]}",
        "header in UTF-16": f"{encoded(json.dumps({'alg': 'RS256'}).encode('utf-16'))}.{encoded(claims())}.AAAA",
        "payload a list": token(payload=b"[]"),
        "payload no JSON": token(payload=b"nothing"),
        "payload empty": token(payload=b""),
        "payload with a claim twice": token(payload=json.dumps(claims())[:-1].encode() + b',"exp":9999999999}'),
        "payload with NaN": token(payload=b'{"iss":"' + ISSUER.encode() + b'","exp":NaN,"sub":"a"}'),
        "payload with Infinity": token(payload=b'{"iss":"' + ISSUER.encode() + b'","exp":Infinity,"sub":"a"}'),
        "payload with 1e999": token(payload=b'{"iss":"' + ISSUER.encode() + b'","exp":1e999,"sub":"a"}'),
        "payload that nests": token(payload=b"[" * 5000),
        "much too long": token(payload=claims(x="x" * 20_000)),
        "not ASCII": good[:-1] + "\u0660",
    }


class TokenTests(TestCase):
    def test_algorithms_need_their_kind_of_key(self) -> None:
        for key in ("rsa", "P-256", "P-384", "P-521", "Ed25519", "Ed448"):
            for algorithm in ALGORITHMS:
                if (key, algorithm) in PAIRS:
                    self.assertEqual(refusal(token(key, alg=algorithm)), "", (key, algorithm))
                else:
                    self.assertNotEqual(refusal(token(key, {"alg": algorithm})), "", (key, algorithm))

    def test_claims(self) -> None:
        for changes, expected in CLAIMS:
            said = refusal(token("P-256", **changes))
            self.assertTrue(said == expected == "" or (expected and expected in said), (changes, said))

    def test_audience(self) -> None:
        required = replace(RULES, audience=AUDIENCE)
        for audience, accepted in AUDIENCES:
            self.assertEqual(refusal(token("P-256", aud=audience), rules=required) == "", accepted, audience)

    def test_types(self) -> None:
        for kind in ("JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", None):
            self.assertEqual(refusal(token("P-256", {"typ": kind})), "", kind)

    def test_attacks(self) -> None:
        self.assertEqual(refusal(token()), "")
        for what, given in attacks().items():
            said = refusal(given)
            self.assertNotEqual(said, "", what)
            self.assertNotIn(given[:20] or "\0", said, what)

    def test_unknown_key_is_reported_for_possible_new_keys_only(self) -> None:
        for given, unknown in ((token("rsa-other"), True), (token("rsa-other", {"kid": "rsa"}), False),
                               (token(header={"alg": "ES256"}), False), (unsigned("none", "AAAA"), False)):  # fmt: skip
            with self.assertRaises(TokenRefused) as caught:
                verify(given, KEYS, RULES, NOW)
            self.assertEqual(isinstance(caught.exception, UnknownKey), unknown, given[:40])

    def test_without_kid_the_key_must_be_unique(self) -> None:
        given = token("P-256", {"kid": None})
        self.assertEqual(refusal(given), "")
        self.assertNotEqual(refusal(given, key_set("P-256", "P-256/2")), "")
        self.assertNotEqual(refusal(given, key_set("rsa")), "")

    def test_caller_of_claims(self) -> None:
        for changes, expected in CALLERS:
            found: Caller = verify(token("P-256", **changes), KEYS, RULES, NOW)
            for name, value in expected.items():
                self.assertEqual(getattr(found, name), value, changes)
        found = verify(token("P-256", org="north"), KEYS, replace(RULES, tenant_claim="org"), NOW)
        self.assertEqual((found.subject, found.client, found.tenant, found.issuer, found.expires_at),
                         ("ada", "app", "north", ISSUER, NOW + 900))  # fmt: skip
        self.assertFalse(found.is_unlimited)


class KeyTests(TestCase):
    def test_refused_keys(self) -> None:
        small = urlsafe_b64encode(b"\x01").rstrip(b"=").decode()
        for given, reason in (
            (jwk("rsa-1024"), "bits"),
            (jwk("rsa", e=small), ""),
            (jwk("rsa", n="!"), ""),
            (jwk("rsa", n=None), "cannot be parsed"),
            (jwk("rsa", use="enc"), "not for signatures"),
            (jwk("rsa", key_ops=["encrypt"]), "not for signatures"),
            (jwk("rsa", key_ops="verify"), "not for signatures"),
            (jwk("rsa", alg="RSA-OAEP"), "algorithm"),
            (jwk("rsa", alg="HS256"), "algorithm"),
            (jwk("rsa", alg="ES256"), "does not fit its alg"),
            (jwk("rsa", alg=["RS256"]), "algorithm"),
            (jwk("rsa", kid=7), "kid"),
            (jwk("P-256", x="AAAA"), ""),
            (jwk("P-256", crv="P-384"), ""),
            (jwk("secp256k1"), "curve"),
            (jwk("Ed25519", crv="X25519"), "cannot be parsed"),
            ({"kty": "oct", "k": "c2VjcmV0", "kid": "rsa"}, "type oct"),
            ({"kty": ["RSA"]}, "type"),
            ({}, "type"),
            ("rsa", "object"),
        ):
            with self.assertRaisesRegex(KeyRefused, reason):
                read_key(given)

    def test_private_members_of_published_keys_are_ignored(self) -> None:
        secret = {**jwk("P-256"), "d": "AAAA"}
        self.assertEqual(read_key(secret).kind, "P-256")

    def test_key_sets(self) -> None:
        for given in (None, [], {}, {"keys": {}}, {"keys": None}):
            with self.assertRaises(KeyRefused):
                KeySet.parse(given)
        found = KeySet.parse({"keys": [jwk("rsa"), jwk("rsa-other", kid="rsa"), jwk("P-256"), {"kty": "oct"}]})
        self.assertEqual([key.kid for key in found.keys], ["P-256"])
        self.assertEqual(len(found.refused), 2)

    def test_of_many_keys_the_last_are_used(self) -> None:
        others = [jwk("P-256", kid=str(number)) for number in range(150)]
        found = KeySet.parse({"keys": [jwk("rsa"), *others]})
        self.assertEqual([key.kid for key in found.keys], [str(number) for number in range(50, 150)])
        self.assertEqual(found.refused, ("of 151 keys only the last 100, the newest, are used",))

    def test_a_key_under_the_same_kid_is_another(self) -> None:
        self.assertNotEqual(KeySet.parse({"keys": [jwk("rsa")]}), KeySet.parse({"keys": [jwk("rsa-other", kid="rsa")]}))

    def test_alg_restricts_a_key(self) -> None:
        bound = KeySet.parse({"keys": [jwk("rsa", alg="PS256")]})
        self.assertEqual(refusal(token("rsa", alg="PS256"), bound), "")
        self.assertNotEqual(refusal(token("rsa", alg="RS256"), bound), "")

    def test_names_of_algorithms(self) -> None:
        self.assertEqual(algorithm_of("P-521"), "ES512")
        self.assertFalse({name for name in ALGORITHMS if name.startswith("HS") or name.lower() == "none"})
