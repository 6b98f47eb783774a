"""Encryption of secrets at rest: the values of `Subscription.channel.header`.

With a key (`IPF_SECRET_KEY`) a value is encrypted with AES-SIV under a key derived from it by HKDF.  Without a key it
is only encoded, so that responses still redact it.  The encryption is deterministic: equal values give equal texts, so
writing a Subscription again changes nothing, and a reader of the database can see which values are equal.  Several keys
are separated by whitespace: the first encrypts, all decrypt.  So a key can be rotated while the service runs.

Headers without secrets stay as they are: `Accept`, `Accept-Language`, `Content-Type`, `Prefer`, `Subject`,
`User-Agent`, `X-Correlation-Id`.

Source: RFC 5297 (AES-SIV); RFC 5869 (HKDF)
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

from ipf.fhir.model.json import dumps
from ipf.fhir.model.redaction import MASK, STORED_SECRET, split_header
from ipf.ports import Json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

_PLAIN_NAMES = frozenset(
    {"accept", "accept-language", "content-type", "prefer", "subject", "user-agent", "x-correlation-id"}
)
_ENCRYPTED, _ENCODED = f"{STORED_SECRET}1:", f"{STORED_SECRET}0:"
_SHORTEST = 17  # bytes of a tag and one of text


class SecretUnreadable(Exception):
    """A stored secret is damaged, or none of the keys decrypts it."""


class Vault:
    """Encrypts and decrypts with the keys of one deployment; `keys` None: values are only encoded."""

    def __init__(self, keys: str | None = None) -> None:
        self._ciphers = [_cipher(key) for key in (keys or "").split()]

    @property
    def has_key(self) -> bool:
        """Whether values are encrypted."""
        return bool(self._ciphers)

    def encrypt(self, value: str) -> str:
        """The stored text of a value; the mask and stored texts are unchanged."""
        if value == MASK or value.startswith((_ENCRYPTED, _ENCODED)):
            return value
        plain = value.encode()
        if not self._ciphers or not plain:
            return _ENCODED + urlsafe_b64encode(plain).decode()
        return _ENCRYPTED + urlsafe_b64encode(self._ciphers[0].encrypt(plain, None)).decode()

    def decrypt(self, text: str) -> str:
        """The value of a stored text; a text without the prefix is the value itself.  Raises SecretUnreadable."""
        try:
            if text.startswith(_ENCODED):
                return urlsafe_b64decode(text[len(_ENCODED) :]).decode()
            if not text.startswith(_ENCRYPTED):
                return text
            data = urlsafe_b64decode(text[len(_ENCRYPTED) :])
        except ValueError:
            raise SecretUnreadable("a stored secret is damaged") from None
        for cipher in self._ciphers if len(data) >= _SHORTEST else ():
            plain_text = _decrypted(cipher, data)
            if plain_text is not None:
                return plain_text
        raise SecretUnreadable("a stored secret cannot be decrypted with the key of this server")

    def encrypt_headers(self, subscription: Json) -> Json:
        """The Subscription with the values of its headers encrypted."""
        channel = subscription.get("channel")
        headers = channel.get("header") if isinstance(channel, dict) else None
        if not headers:
            return subscription
        found = [self._encrypted_header(one) for one in headers]
        return {**subscription, "channel": {**subscription["channel"], "header": found}}

    def _encrypted_header(self, header: str) -> str:
        name, value = split_header(header)
        return header if not name or name.lower() in _PLAIN_NAMES else f"{name}: {self.encrypt(value)}"

    def can_decrypt(self, subscription: Json) -> bool:
        """Whether every header of a stored Subscription can be decrypted."""
        channel = subscription.get("channel")
        try:
            for header in channel.get("header", ()) if isinstance(channel, dict) else ():
                self.decrypt(split_header(header)[1])
        except SecretUnreadable:
            return False
        return True

    def with_sent_values(self, body: bytes, sent: Json) -> bytes:
        """The body of the response to a write, with the values that the client sent instead of the stored texts."""
        channel = sent.get("channel")
        for header in channel.get("header", ()) if isinstance(channel, dict) else ():
            value = split_header(header)[1]
            if value != MASK and not value.startswith(STORED_SECRET):
                body = body.replace(self.encrypt(value).encode(), dumps(value)[1:-1])
        return body


# The library takes 6 MiB of memory and is needed only with a key, so it is imported on first use.


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
