"""Secrets at rest: the values of `Subscription.channel.header`, sealed before they are stored, opened to be sent.

With a key (`IPF_SECRET_KEY`) a value is encrypted with AES-SIV (RFC 5297) under a key derived from it; without one it
is only encoded, so that it is masked all the same.  The encryption is deterministic: the same value gives the same
text, so that writing a Subscription again changes nothing; a thief of the database learns which values are equal.
Several keys, separated by blanks: the first seals, all open; so a key is replaced without stopping anything.

Names that are no secrets are left as they are: `Accept`, `Accept-Language`, `Prefer`, `Subject`, `User-Agent`.

Source: RFC 5297; RFC 5869; issue of security, "Channel security".
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

from ipf.fhir.model.json import dumps
from ipf.fhir.model.redaction import MARK, MASK, parts
from ipf.ports import Json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

_OPEN_NAMES = frozenset({"accept", "accept-language", "prefer", "subject", "user-agent"})
_ENCRYPTED, _ENCODED = f"{MARK}1:", f"{MARK}0:"
_SHORTEST = 17  # bytes of a tag and one of text


class Sealed(Exception):
    """A secret that no key opens."""


class Vault:
    """Seals and opens with the keys of one deployment; `keys` None: without any."""

    def __init__(self, keys: str | None = None) -> None:
        self._ciphers = [_cipher(key) for key in (keys or "").split()]

    @property
    def encrypts(self) -> bool:
        """Whether there is a key."""
        return bool(self._ciphers)

    def seal(self, value: str) -> str:
        """The text that stands for a value at rest; a mask, and what is sealed already, stay as they are."""
        if value == MASK or value.startswith((_ENCRYPTED, _ENCODED)):
            return value
        plain = value.encode()
        if not self._ciphers or not plain:
            return _ENCODED + urlsafe_b64encode(plain).decode()
        return _ENCRYPTED + urlsafe_b64encode(self._ciphers[0].encrypt(plain, None)).decode()

    def open(self, text: str) -> str:
        """The value again; text that is not sealed is itself the value.  Raises Sealed."""
        try:
            if text.startswith(_ENCODED):
                return urlsafe_b64decode(text[len(_ENCODED) :]).decode()
            if not text.startswith(_ENCRYPTED):
                return text
            data = urlsafe_b64decode(text[len(_ENCRYPTED) :])
        except ValueError:
            raise Sealed("a stored secret is damaged") from None
        for cipher in self._ciphers if len(data) >= _SHORTEST else ():
            text_again = _decrypted(cipher, data)
            if text_again is not None:
                return text_again
        raise Sealed("a stored secret cannot be decrypted with the key of this server")

    def sealed(self, subscription: Json) -> Json:
        """A Subscription with the values of its headers sealed."""
        channel = subscription.get("channel")
        headers = channel.get("header") if isinstance(channel, dict) else None
        if not headers:
            return subscription
        found = [self._sealed_header(one) for one in headers]
        return {**subscription, "channel": {**subscription["channel"], "header": found}}

    def _sealed_header(self, header: str) -> str:
        name, value = parts(header)
        return header if not name or name.lower() in _OPEN_NAMES else f"{name}: {self.seal(value)}"

    def opens(self, subscription: Json) -> bool:
        """Whether every sealed header of a stored Subscription can be opened."""
        channel = subscription.get("channel")
        try:
            for header in channel.get("header", ()) if isinstance(channel, dict) else ():
                self.open(parts(header)[1])
        except Sealed:
            return False
        return True

    def shown(self, body: bytes, sent: Json) -> bytes:
        """The answer to who has just sent this Subscription: what he sent in clear is in clear."""
        channel = sent.get("channel")
        for header in channel.get("header", ()) if isinstance(channel, dict) else ():
            value = parts(header)[1]
            if value != MASK and not value.startswith(MARK):
                body = body.replace(self.seal(value).encode(), dumps(value)[1:-1])
        return body


# What encrypts is 6 MiB of a process, and without a key nothing is encrypted: so it is imported here.


def _cipher(key: str) -> AESSIV:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESSIV(HKDF(SHA256(), 64, None, b"ipf channel.header").derive(key.encode()))


def _decrypted(cipher: AESSIV, data: bytes) -> str | None:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(data, None).decode()
    except InvalidTag:
        return None
