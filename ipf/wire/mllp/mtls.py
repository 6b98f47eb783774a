"""Mutual TLS as a Twisted endpoint: `mtls:6661:privateKey=key.pem:certKey=cert.pem:clientCa=ca.pem`.

A client must present a certificate signed by one of the authorities in `clientCa`; otherwise the handshake fails.
TLS 1.2 or later.  `extraCertChain`: a file with intermediate certificates; `interface`, `backlog`: as for `tcp:`.
Twisted's `ssl:` endpoint is TLS without client certificates.

Source: RFC 8446 section 4.4.2; IHE ITI "Audit Trail and Node Authentication" (node authentication by certificates).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL.SSL import Error as TlsError
from twisted.internet.endpoints import SSL4ServerEndpoint
from twisted.internet.interfaces import IStreamServerEndpointStringParser
from twisted.internet.ssl import Certificate, CertificateOptions, KeyPair, TLSVersion, trustRootFromCertificates
from twisted.plugin import IPlugin
from zope.interface import implementer

_BEGIN = b"-----BEGIN CERTIFICATE-----"


@implementer(IPlugin, IStreamServerEndpointStringParser)
class MutualTlsParser:
    """Adds `mtls:` to `serverFromString`."""

    prefix = "mtls"

    def parseStreamServer(  # type: ignore[override]  # Twisted passes the fields of the string as keywords
        self,
        reactor: Any,
        port: str = "",
        privateKey: str = "",
        certKey: str = "",
        clientCa: str = "",
        extraCertChain: str = "",
        interface: str = "",
        backlog: str = "50",
    ) -> SSL4ServerEndpoint:
        """Twisted: the endpoint.  ValueError names a missing field or an unreadable file."""
        if not (port.isdigit() and privateKey and certKey and clientCa):
            raise ValueError("mtls needs a port, privateKey, certKey and clientCa")
        options = server_options(privateKey, certKey, clientCa, extraCertChain)
        return SSL4ServerEndpoint(reactor, int(port), options, int(backlog), interface)


def server_options(private_key: str, cert_key: str, client_ca: str, chain: str = "") -> CertificateOptions:
    """TLS options that require client certificates, from PEM files.  ValueError names the file."""
    try:
        key = KeyPair.load(_read(private_key), 1).original
        own = certificates(cert_key)
        rest = certificates(chain) if chain else own[1:]
        roots = trustRootFromCertificates([Certificate(one) for one in certificates(client_ca)])
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
    )
    try:
        options.getContext().check_privatekey()
    except TlsError:
        raise ValueError(f"the certificate in {cert_key} is not that of the key in {private_key}") from None
    return options


def certificates(path: str) -> list[Any]:
    """All certificates of a PEM file.  ValueError when it has none."""
    parts = [_BEGIN + part for part in _read(path).split(_BEGIN)[1:]]
    if not parts:
        raise ValueError(f"{path} holds no certificate")
    return [Certificate.loadPEM(part).original for part in parts]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as failed:
        raise ValueError(f"{path}: {failed.strerror}") from None


def names_of(certificate: Any) -> list[str]:
    """The names of a client certificate: its DNS names, else its common names; in lower case."""
    if certificate is None:
        return []
    known: x509.Certificate = certificate.to_cryptography()
    try:
        extension = known.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        names = extension.value.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        names = []
    if not names:
        names = [str(one.value) for one in known.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return [name.lower() for name in names]


def first_match(names: list[str], patterns: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    """The first (pattern, tenant) that one of the names matches."""
    return next(
        (pair for pair in patterns if any(fnmatchcase(name, pair[0].lower()) for name in names)),
        None,
    )
