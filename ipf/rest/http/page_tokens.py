"""Page tokens as clients see them: encrypted and authenticated (AES-SIV, RFC 5297).

A token of the store contains an internal number, which counts what all clients write.  In clear it would tell each of
them how much the others write, and a forged one would ask for what lies behind a hidden resource.  The key is in the
database, so a token is good in every process and after a restart; a token is bound to its tenant.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

from ipf.errors import Category, Problem
from ipf.ports import FhirStore

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV


class PageTokens:
    """Encrypts and decrypts the page tokens of one store."""

    def __init__(self) -> None:
        self._cipher: AESSIV | None = None

    async def sealed(self, store: FhirStore, tenant: str, token: str | None) -> str | None:
        """The token for a link; None stays None."""
        if token is None:
            return None
        cipher = self._cipher or await self._load(store)
        return urlsafe_b64encode(cipher.encrypt(token.encode(), [tenant.encode()])).decode().rstrip("=")

    async def opened(self, store: FhirStore, tenant: str, text: str | None) -> str | None:
        """The token of the store that a client sent back; Problem VALUE for a text that this server did not write."""
        if text is None:
            return None
        from cryptography.exceptions import InvalidTag

        cipher = self._cipher or await self._load(store)
        try:
            data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
            return cipher.decrypt(data, [tenant.encode()]).decode()
        except (ValueError, InvalidTag) as refused:
            raise Problem(Category.VALUE, "the page token cannot be read", "_cursor") from refused

    async def _load(self, store: FhirStore) -> AESSIV:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # 6 MiB of memory, for servers that have pages

        self._cipher = cipher = AESSIV(await store.page_token_key())
        return cipher
