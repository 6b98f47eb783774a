"""TLS listeners: `ssl:8443:privateKey=key.pem:certKey=cert.pem`, and `mtls:6661:...:clientCa=ca.pem` for client names.

TLS 1.2 with ciphers that are forward secret and authenticate what they encrypt (AEAD), and TLS 1.3.  With `mtls` a
client must present a certificate of one of the authorities in `clientCa` that none of the revocation lists in `crl`
names; otherwise the handshake fails.  `extraCertChain`: a file with intermediate certificates; `interface`, `backlog`:
as for `tcp:`.

The files are read again when one of them has changed, at the next connection, and at `reload_all` (SIGHUP).  Open
connections go on.  Files that cannot be used leave the former ones in use, with a warning; `unusable` names them.

Sources: RFC 9325 (BCP 195) section 4.2, RFC 8446 section 4.4.2, RFC 5280 section 5; IHE ITI "Audit Trail and Node
Authentication".
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from cryptography import x509
from OpenSSL.crypto import X509StoreFlags
from OpenSSL.SSL import Error as TlsError
from twisted.internet import interfaces
from twisted.internet.endpoints import SSL4ServerEndpoint, serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint, IStreamServerEndpointStringParser
from twisted.internet.ssl import (
    AcceptableCiphers,
    Certificate,
    CertificateOptions,
    KeyPair,
    TLSVersion,
    trustRootFromCertificates,
)
from twisted.logger import Logger
from twisted.plugin import IPlugin
from zope.interface import Interface, implementer

log = Logger()

CIPHERS = AcceptableCiphers.fromOpenSSLCipherString("ECDHE+AESGCM:ECDHE+CHACHA20")
CHECK_SECONDS = 1.0
OWN = "ipftls"
"""The prefix of our endpoint for `ssl:`; Twisted has `ssl` and `tls`."""
_CONTEXT_FACTORY: Any = getattr(interfaces, "IOpenSSLContextFactory", Interface)  # since Twisted 25
_BEGIN = b"-----BEGIN CERTIFICATE-----"
_BEGIN_CRL = b"-----BEGIN X509 CRL-----"


def server_endpoint(reactor: Any, text: str) -> IStreamServerEndpoint:
    """The endpoint of an endpoint string; `ssl:` is ours, not Twisted's, which takes older ciphers."""
    found: IStreamServerEndpoint = serverFromString(reactor, f"{OWN}:{text[4:]}" if text.startswith("ssl:") else text)
    return found


@implementer(IPlugin, IStreamServerEndpointStringParser)
class TlsParser:
    """Adds an endpoint to `serverFromString`: `ipftls`, or `mtls`, which asks for client certificates."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def parseStreamServer(  # type: ignore[override]  # Twisted passes the fields of the string as keywords
        self,
        reactor: Any,
        port: str = "",
        privateKey: str = "",
        certKey: str = "",
        clientCa: str = "",
        crl: str = "",
        extraCertChain: str = "",
        interface: str = "",
        backlog: str = "50",
    ) -> SSL4ServerEndpoint:
        """Twisted: the endpoint.  ValueError names a missing field or an unreadable file."""
        is_mutual = self.prefix == "mtls"
        if not (port.isdigit() and privateKey and (certKey or not is_mutual) and (clientCa or not is_mutual)):
            needed = "mtls needs a port, privateKey, certKey and clientCa"
            raise ValueError(needed if is_mutual else "ssl needs a port, privateKey and certKey")
        if not is_mutual and (clientCa or crl):
            raise ValueError("clientCa and crl are fields of mtls")
        files = TlsFiles(privateKey, certKey or privateKey, clientCa, crl, extraCertChain, reactor)
        return SSL4ServerEndpoint(reactor, int(port), files, int(backlog), interface)


@implementer(_CONTEXT_FACTORY)
class TlsFiles:
    """The TLS context of a listener, out of PEM files; Twisted's context factory.  ValueError names an unusable file.

    `clock`: seconds, so that the files are looked at once a second at most.
    """

    _all: WeakSet[TlsFiles] = WeakSet()

    def __init__(self, private_key: str, cert_key: str, client_ca: str, crl: str, chain: str, clock: Any) -> None:
        self._paths = (private_key, cert_key, client_ca, crl, chain)
        self._clock = clock
        self._looked = clock.seconds()
        self._state = self._now()
        self._context = _options(*self._paths).getContext()
        self.problem = ""
        TlsFiles._all.add(self)

    def getContext(self) -> Any:
        """Twisted: the context of the next connection."""
        if self._clock.seconds() - self._looked >= CHECK_SECONDS:
            self._looked = self._clock.seconds()
            if self._now() != self._state:
                self.reload()
        return self._context

    def reload(self) -> None:
        """Read the files.  Those in use stay when the new ones cannot be used."""
        self._state = self._now()
        try:
            self._context = _options(*self._paths).getContext()
        except ValueError as wrong:
            self.problem = str(wrong)
            log.warn("event=tls_files_not_loaded {reason}; the former ones stay in use", reason=str(wrong))
            return
        self.problem = ""
        log.info("event=tls_files_loaded {path}", path=self._paths[1])

    def _now(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_state_of(path) for path in self._paths if path)


def reload_all() -> None:
    """Read the files of every TLS listener of this process again."""
    for files in list(TlsFiles._all):
        files.reload()


def unusable() -> list[str]:
    """Why files that were changed are not in use."""
    return sorted(files.problem for files in list(TlsFiles._all) if files.problem)


def _state_of(path: str) -> tuple[int, int, int]:
    """What changes when a file is replaced or written."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _options(private_key: str, cert_key: str, client_ca: str, crl: str, chain: str) -> CertificateOptions:
    """TLS options of these files.  ValueError names the file."""
    try:
        key = KeyPair.load(_read(private_key), 1).original
        own = certificates(cert_key)
        rest = certificates(chain) if chain else own[1:]
        roots = trustRootFromCertificates([Certificate(one) for one in certificates(client_ca)]) if client_ca else None
    except ValueError:
        raise
    except Exception as wrong:  # OpenSSL raises many types; none names the file
        raise ValueError(f"the files of the TLS endpoint cannot be used: {type(wrong).__name__}") from None
    options = CertificateOptions(
        privateKey=key,
        certificate=own[0],
        extraCertChain=rest,
        trustRoot=roots,
        raiseMinimumTo=TLSVersion.TLSv1_2,
        acceptableCiphers=CIPHERS,
    )
    try:
        options.getContext().check_privatekey()
    except TlsError:
        raise ValueError(f"the certificate in {cert_key} is not that of the key in {private_key}") from None
    _revoke(options, revocations(crl) if crl else [])
    return options


def _revoke(options: CertificateOptions, lists: Iterable[x509.CertificateRevocationList]) -> None:
    """Refuse the client certificates of these lists, and those of authorities without a list among them."""
    store: Any = options.getContext().get_cert_store()
    for number, one in enumerate(lists):
        if number == 0:
            store.set_flags(X509StoreFlags.CRL_CHECK)
        store.add_crl(one)


def certificates(path: str) -> list[Any]:
    """All certificates of a PEM file.  ValueError when it has none."""
    parts = [_BEGIN + part for part in _read(path).split(_BEGIN)[1:]]
    if not parts:
        raise ValueError(f"{path} holds no certificate")
    return [Certificate.loadPEM(part).original for part in parts]


def revocations(path: str) -> list[x509.CertificateRevocationList]:
    """All revocation lists of a PEM file.  ValueError when it has none."""
    parts = [_BEGIN_CRL + part for part in _read(path).split(_BEGIN_CRL)[1:]]
    try:
        found = [x509.load_pem_x509_crl(part) for part in parts]
    except ValueError:
        found = []
    if not found:
        raise ValueError(f"{path} holds no certificate revocation list")
    return found


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failed:
        raise ValueError(f"{path}: {failed.strerror}") from None
