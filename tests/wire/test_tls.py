"""TLS listeners: protocol versions and ciphers, client certificates and revocation, files that change."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet import reactor as installed_reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.wire.tls import CHECK_SECONDS, TlsFiles, reload_all, server_endpoint, unusable
from tests.waiting import PATIENCE
from tests.wire.certificates import Authority

reactor: Any = installed_reactor


class Greeting(Protocol):
    """Says hello once it has received something."""

    def dataReceived(self, data: bytes) -> None:
        self.transport.write(b"hello")  # type: ignore[union-attr]


class TlsTests(TestCase):
    timeout = PATIENCE

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ipf-tls-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.authority = Authority(self.folder)
        self.key, self.certificate = self.authority.sign("server")

    async def listen(self, scheme: str = "ssl", more: str = "") -> int:
        """The port of a listener."""
        text = f"{scheme}:0:privateKey={self.key}:certKey={self.certificate}:interface=127.0.0.1{more}"
        port = await server_endpoint(reactor, text).listen(Factory.forProtocol(Greeting))
        self.addCleanup(port.stopListening)
        number: int = port.getHost().port
        return number

    async def greeted(self, port: int, prepare: Callable[[ssl.SSLContext], object] = lambda context: None) -> str:
        """The serial number of the server's certificate, and the cipher; "refused" without an answer."""

        def talk() -> str:
            context = ssl.create_default_context(cafile=str(self.authority.path))
            prepare(context)
            try:
                plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
                with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                    secure.sendall(b"x")
                    if secure.recv(5) != b"hello":
                        return "refused"
                    found = secure.getpeercert() or {}
                    return f"{found['serialNumber']} {secure.cipher()[0]}"  # type: ignore[index]
            except (ssl.SSLError, ConnectionError):
                return "refused"

        return str(await deferToThread(talk))

    async def test_versions_and_ciphers(self) -> None:
        """TLS 1.2 with forward-secret AEAD ciphers, and TLS 1.3; nothing else."""
        port = await self.listen()
        for version, ciphers, accepted in [
            (ssl.TLSVersion.TLSv1_3, "DEFAULT", True),
            (ssl.TLSVersion.TLSv1_2, "ECDHE+AESGCM", True),
            (ssl.TLSVersion.TLSv1_2, "ECDHE+CHACHA20", True),
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA384:ECDHE-ECDSA-AES128-SHA256", False),  # CBC
            (ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA", False),
            (ssl.TLSVersion.TLSv1_2, "AES128-GCM-SHA256:AES256-GCM-SHA384", False),  # no forward secrecy
            (ssl.TLSVersion.TLSv1_1, "ALL:@SECLEVEL=0", False),
            (ssl.TLSVersion.TLSv1, "ALL:@SECLEVEL=0", False),
        ]:

            def prepare(context: ssl.SSLContext, version: Any = version, ciphers: str = ciphers) -> None:
                context.minimum_version = context.maximum_version = version
                context.set_ciphers(ciphers)

            found = await self.greeted(port, prepare)
            self.assertEqual(found != "refused", accepted, (version, ciphers, found))

    async def test_revoked_clients(self) -> None:
        good, bad = self.authority.sign("good"), self.authority.sign("bad")
        crl = self.folder / "revoked.pem"
        crl.write_bytes(self.revoked(bad[1]))
        port = await self.listen("mtls", f":clientCa={self.authority.path}:crl={crl}")
        for pair, accepted in ((good, True), (bad, False), (None, False)):

            def prepare(context: ssl.SSLContext, pair: Any = pair) -> None:
                if pair is not None:
                    context.load_cert_chain(pair[1], pair[0])

            self.assertEqual(await self.greeted(port, prepare) != "refused", accepted, pair)

    def revoked(self, path: str) -> bytes:
        """A revocation list with one certificate."""
        now = datetime.now(UTC)
        serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
        one = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.authority._name)
            .last_update(now - timedelta(hours=1))
            .next_update(now + timedelta(days=1))
        )
        return (
            builder.add_revoked_certificate(one).sign(self.authority._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        )

    async def test_a_certificate_that_is_replaced(self) -> None:
        """The next connection gets it, here at once by what SIGHUP calls; one that is open goes on."""
        port = await self.listen()
        before = await self.greeted(port)
        self.authority.sign("server")  # writes both files anew
        reload_all()
        after = await self.greeted(port)
        self.assertNotEqual(before.split()[0], after.split()[0])
        Path(self.certificate).write_text("junk")
        reload_all()
        self.assertEqual((await self.greeted(port)).split()[0], after.split()[0])
        self.assertIn("server.pem holds no certificate", " ".join(unusable()))
        self.authority.sign("server")
        reload_all()
        self.assertEqual(unusable(), [])

    def test_files_are_looked_at_once_a_second(self) -> None:
        clock = Clock()
        files = TlsFiles(self.key, self.certificate, "", "", "", clock)
        first = files.getContext()
        self.authority.sign("server")
        os.utime(self.certificate, ns=(1, 1))  # a time that no clock resolution hides
        self.assertIs(files.getContext(), first)
        clock.advance(CHECK_SECONDS)
        second = files.getContext()
        self.assertIsNot(second, first)
        clock.advance(CHECK_SECONDS)
        self.assertIs(files.getContext(), second)

    def test_fields(self) -> None:
        files = f"privateKey={self.key}:certKey={self.certificate}"
        for text, reason in [
            ("ssl:0", "ssl needs a port, privateKey and certKey"),
            (f"ssl:0:{files}:clientCa={self.authority.path}", "clientCa and crl are fields of mtls"),
            (f"mtls:0:{files}", "mtls needs a port"),
            (f"mtls:0:{files}:clientCa={self.authority.path}:crl={self.certificate}", "no certificate revocation list"),
            (f"ssl:0:privateKey={self.key}:certKey=/nowhere", "/nowhere: No such file"),
        ]:
            with self.assertRaisesRegex(ValueError, reason):
                server_endpoint(reactor, text)
