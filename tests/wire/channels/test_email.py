"""The email channel against a real SMTP server (aiosmtpd), in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.ports import Event, Notification
from ipf.ports.delivery import NO_MAIL
from ipf.wire.channels.email import Email, MailServer, mail_of, recipients_of
from tests.waiting import PATIENCE, free_port

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EVENTS = (
    Event(7, "Patient", "p1", 2, NOW, "c", b'{"resourceType":"Patient","id":"p1"}'),
    Event(8, "Patient", "p2", 1, NOW, "c", b""),
)
NOTIFICATION = Notification(
    "POST", "mailto:ward@example.org", (), EVENTS[0].body, "corr-1", "default", "s1",
    content_type="application/fhir+json", events=EVENTS,
)  # fmt: skip


class MailHandler:
    """aiosmtpd's handler: stores mails, refuses one recipient, or never replies."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, Sequence[str], bytes]] = []
        self.is_silent = False

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        if self.is_silent:
            await asyncio.Event().wait()
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"


class EmailTests(TestCase):
    async def server(self, **options: Any) -> tuple[MailHandler, int]:
        post = MailHandler()
        controller = Controller(post, hostname="127.0.0.1", port=free_port(), **options)
        await deferToThread(controller.start)
        self.addCleanup(deferToThread, controller.stop)
        return post, controller.port

    def email(self, port: int, timeout: float = PATIENCE, **changes: Any) -> Email:
        server = MailServer("127.0.0.1", port, False, "ipf@example.org")
        return Email(reactor, replace(server, **changes), timeout, now=lambda: NOW)

    async def test_a_mail_is_sent(self) -> None:
        post, port = await self.server()
        delivered = await self.email(port).send(NOTIFICATION)
        self.assertEqual((delivered.succeeded, delivered.error, delivered.http_status), (True, None, None))
        ((sender, recipients, content),) = post.mails
        self.assertEqual((sender, recipients), ("ipf@example.org", ["ward@example.org"]))
        mail = parsed(content)
        self.assertEqual(mail["Subject"], "Subscription/s1: 2 events")
        self.assertEqual(mail["X-Correlation-Id"], "corr-1")
        text = mail.get_body(("plain",))
        assert text is not None
        self.assertIn("- number 7, 2026-01-02T03:04:05+00:00: Patient/p1, version 2", text.get_content())
        (attached,) = mail.iter_attachments()
        self.assertEqual(attached.get_content_type(), "application/fhir+json")
        self.assertEqual(attached.get_payload(decode=True), EVENTS[0].body)

    async def test_a_refused_recipient_is_a_failure(self) -> None:
        _, port = await self.server()
        for url in ("mailto:nobody@example.org", "mailto:nobody@example.org,ward@example.org"):
            delivered = await self.email(port).send(replace(NOTIFICATION, url=url))
            self.assertFalse(delivered.succeeded)
            self.assertIn("550 no such user", delivered.error or "")

    async def test_time_limit(self) -> None:
        post, port = await self.server()
        post.is_silent = True
        delivered = await self.email(port, 0.2).send(NOTIFICATION)
        self.assertEqual(delivered.error, "the mail server did not answer within 0.2 s")
        self.assertEqual(post.mails, [])

    async def test_unreachable_server(self) -> None:
        delivered = await self.email(free_port()).send(NOTIFICATION)
        self.assertEqual(delivered.error, "connection refused")

    async def test_passwords_are_not_sent_without_tls(self) -> None:
        """A server without STARTTLS does not receive the password."""
        seen: list[object] = []

        def check(*asked: object) -> AuthResult:
            seen.append(asked)
            return AuthResult(success=True)

        post, port = await self.server(authenticator=check, auth_require_tls=False)
        delivered = await self.email(port, user="ipf", password="s3cret").send(NOTIFICATION)
        self.assertFalse(delivered.succeeded)
        self.assertEqual((seen, post.mails), ([], []))

    async def test_without_a_server_the_channel_is_unavailable(self) -> None:
        email = Email(reactor, None, 5.0)
        self.assertEqual(email.unavailable, NO_MAIL)
        self.assertEqual((await email.send(NOTIFICATION)).error, NO_MAIL)
        self.assertIsNone(self.email(1).unavailable)


class MailTests(TestCase):
    def mail(self, **changes: Any) -> EmailMessage:
        return parsed(mail_of(replace(NOTIFICATION, **changes), "ipf@example.org", ["a@b.c"], NOW))

    def text(self, mail: EmailMessage) -> str:
        body = mail.get_body(("plain",))
        assert body is not None
        return str(body.get_content())

    def test_content_levels(self) -> None:
        empty = self.mail(content="empty")
        self.assertNotIn("Patient", self.text(empty))
        self.assertEqual(list(empty.iter_attachments()), [])
        only_ids = self.mail(content="id-only", body=None)
        self.assertIn("Patient/p1", self.text(only_ids))
        self.assertEqual(list(only_ids.iter_attachments()), [])

    def test_attachments(self) -> None:
        for kind, attached in (
            ("text/plain", []),
            ("text/plain;attach=application/fhir+json", ["application/fhir+json"]),
            ("text/html; attach=application/fhir+xml", ["application/fhir+xml"]),
            ("application/fhir+xml", ["application/fhir+xml"]),
            (None, ["application/fhir+json"]),
        ):
            found = [part.get_content_type() for part in self.mail(content_type=kind).iter_attachments()]
            self.assertEqual(found, attached, kind)

    def test_headers_cannot_be_forged(self) -> None:
        mail = self.mail(headers=[("Subject", "Ward 7\r\nBcc: all@example.org"), ("Authorization", "Bearer s3cret")])
        self.assertEqual((mail["Subject"], mail["Bcc"]), ("Ward 7 Bcc: all@example.org", None))
        self.assertNotIn("s3cret", mail.as_string())

    def test_handshake_and_heartbeat(self) -> None:
        self.assertIn("is being set up", self.text(self.mail(kind="handshake", events=())))
        self.assertEqual(self.mail(kind="heartbeat", events=())["Subject"], "Subscription/s1: heartbeat")

    def test_recipients(self) -> None:
        for url, found in (
            ("mailto:a@b.org", ["a@b.org"]),
            ("MAILTO:a@b.org,c%2Bd@e.org?subject=x", ["a@b.org", "c+d@e.org"]),
            ("https://example.org", []),
            ("mailto:", []),
            ("mailto:a b@c.org", []),
            ("mailto:a@b.org%0d%0aBcc:x@y.z", []),
        ):
            self.assertEqual(recipients_of(url), found, url)

    def test_servers(self) -> None:
        self.assertEqual(MailServer.of("smtp://mail?from=a@b.c"), MailServer("mail", 25, False, "a@b.c"))
        full = MailServer.of("smtps://me:p%40ss@mail.example.org?from=a@b.c")
        self.assertEqual(full, MailServer("mail.example.org", 465, True, "a@b.c", "me", "p@ss"))
        self.assertEqual(MailServer.of("smtp://mail:2525").port, 2525)
        for wrong in ("http://mail", "smtp://", "smtp://me@mail", "smtp://mail?from=nobody"):
            with self.assertRaises(ValueError):
                MailServer.of(wrong)


def parsed(content: bytes) -> EmailMessage:
    mail = message_from_bytes(content, policy=policy.default)
    assert isinstance(mail, EmailMessage)
    return mail
