"""TLS of outbound connections with the operator's files: who is trusted, and who this client is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.ssl import Certificate, PrivateCertificate, optionsForClientTLS, trustRootFromCertificates

_END = b"-----END CERTIFICATE-----"


def client_tls(host: str, ca: Path | None, certificate: Path | None, key: Path | None) -> Any:
    """How Twisted connects to a host.  OSError or ValueError: a file cannot be read.

    `ca`: certificates that may sign the server's; None: those of the system.  `certificate`, `key`: of this client,
    both or neither.  All are PEM files.
    """
    trusted = None
    if ca is not None:
        parts = [one + _END for one in ca.read_bytes().split(_END)[:-1]]
        trusted = trustRootFromCertificates([Certificate.loadPEM(one) for one in parts])
    own = None
    if certificate is not None and key is not None:
        own = PrivateCertificate.loadPEM(key.read_bytes() + b"\n" + certificate.read_bytes())
    return optionsForClientTLS(host, trusted, own)
