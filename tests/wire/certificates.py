"""Certificates for tests: an authority, and what it signs, as PEM files in a folder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"{name} of tests")
        certificate = self._built(self._name, self._key.public_key(), is_authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(Encoding.PEM))

    def sign(self, name: str, *, san: bool = True) -> tuple[str, str]:
        """(key file, certificate file) for a name, in the alternative names or as the common name only."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._built(_named(name), key.public_key(), name if san else None)
        stem = f"{self.path.stem}-{name.replace('*', '_')}"
        key_path, path = self._folder / f"{stem}.key", self._folder / f"{stem}.pem"
        key_path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        path.write_bytes(certificate.public_bytes(Encoding.PEM))
        return str(key_path), str(path)

    def _built(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, san: str | None = None, *, is_authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + timedelta(days=1),
        ).add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        if san is not None:
            names: list[x509.GeneralName] = [x509.DNSName(san), x509.IPAddress(ip_address("127.0.0.1"))]
            if san.replace(".", "").isdigit():
                names.append(x509.IPAddress(ip_address(san)))
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
