"""Decrypts the stored secrets of a notification and signs it, before another channel sends it.

The header `X-Ipf-Signing-Secret` of a Subscription is never sent: it is the key of that subscription's signature.
Without it the server's key is used (`SUBSCRIPTION_SERVICE_SIGNING_SECRET`); without either nothing is signed.  A
registered `X-Ipf-Signature` is sent instead of this server's.

`X-Ipf-Signature: t=<seconds since 1970>,v1=<hex>`; hex is HMAC-SHA256 of `<t>.<body>`.  A receiver computes the
signature again, compares in constant time, and refuses an old `t`.

Source: RFC 2104; docs/reference/access-control.md "Signatures".
"""

from __future__ import annotations

import hmac
from dataclasses import replace
from hashlib import sha256

from ipf.fhir.model.redaction import redact_body
from ipf.ports import Channel, Clock, Delivered, Notification
from ipf.security.vault import SecretUnreadable, Vault

SIGNATURE = "X-Ipf-Signature"
SIGNING_SECRET = "X-Ipf-Signing-Secret"
_SIGNING_SECRET = SIGNING_SECRET.lower()


class SignedChannel:
    """`Channel` on another that sends."""

    def __init__(self, inner: Channel, vault: Vault, signing_secret: str | None, now: Clock) -> None:
        self._inner = inner
        self._vault = vault
        self._signing_secret = signing_secret
        self._now = now

    @property
    def unavailable(self) -> str | None:
        """As the channel that sends."""
        return self._inner.unavailable

    def destination(self, endpoint: str) -> str:
        """As the channel that sends."""
        return self._inner.destination(endpoint)

    async def send(self, notification: Notification) -> Delivered:
        """Decrypt, sign, send."""
        try:
            opened = [(name, self._vault.decrypt(value)) for name, value in notification.headers]
        except SecretUnreadable as lost:
            return Delivered(None, 0, str(lost))
        return await self._inner.send(self._signed(notification, opened))

    def _signed(self, notification: Notification, headers: list[tuple[str, str]]) -> Notification:
        key, body = self._signing_secret, notification.body
        if body is not None:
            body = redact_body(body)  # a notification may be about a Subscription
        sent = []
        for header in headers:
            if header[0].lower() == _SIGNING_SECRET:
                key = header[1]
            else:
                sent.append(header)
        if key and all(name.lower() != SIGNATURE.lower() for name, _ in sent):
            sent.append((SIGNATURE, signature(key, body or b"", int(self._now().timestamp()))))
        if sent == notification.headers and body is notification.body:
            return notification
        return replace(notification, headers=sent, body=body)


def signature(key: str, body: bytes, seconds: int) -> str:
    """The value of the header."""
    digest = hmac.new(key.encode(), b"%d." % seconds + body, sha256).hexdigest()
    return f"t={seconds},v1={digest}"


_: type[Channel] = SignedChannel
