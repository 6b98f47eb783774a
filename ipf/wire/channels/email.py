"""The `email` channel: one notification in, one mail out through the operator's SMTP server.

The text is for people and respects the content level: the number of events, the resources with `id-only` and
`full-resource`, never their content.  The content is an attachment, when the subscription has a payload.  Of the
registered headers only `Subject` is used: the others are HTTP credentials.

Without an SMTP server nothing is sent: such subscriptions are active, and nothing is attempted (`Deliver.never_sent`).

`IPF_SMTP_URL`: `smtp://[user:password@]host[:25][?from=address]` (TLS when the server offers it; always with a
password), `smtps://...` (TLS from the start, port 465).  Certificates are verified.

Source: https://hl7.org/fhir/R4/subscription.html ("email"); Backport guide, "Channels"; RFC 5321, RFC 6068.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, make_msgid
from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IReactorTime
from twisted.internet.ssl import optionsForClientTLS
from twisted.mail.smtp import ESMTPSenderFactory, SMTPClientError

from ipf.ports import Channel, Clock, Delivered, Notification
from ipf.ports.delivery import NO_MAIL
from ipf.wire.client.failures import TimeLimitExceeded, describe, was_cancelled
from ipf.wire.client.http_client import within

_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")
_KIND_TEXTS = {"handshake": "is being set up", "heartbeat": "is active; there was no event since the last notification"}


@dataclass(frozen=True, slots=True)
class MailServer:
    """The SMTP server that relays mail.  `user` and `password` are given together or not at all."""

    host: str
    port: int
    is_tls: bool
    sender: str
    user: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, url: str) -> MailServer:
        """From `IPF_SMTP_URL`.  The text of a ValueError holds no secret."""
        parts = urlsplit(url)
        if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
            raise ValueError("expected smtp://host or smtps://host")
        sender = parse_qs(parts.query).get("from", [f"ipf@{socket.getfqdn()}"])[0]
        if not _ADDRESS.fullmatch(sender):
            raise ValueError("the address in from= is not a mail address")
        if (parts.username is None) != (parts.password is None):
            raise ValueError("expected user:password, or neither")
        is_tls = parts.scheme == "smtps"
        port = parts.port or (465 if is_tls else 25)
        user, password = (unquote(part) if part is not None else None for part in (parts.username, parts.password))
        return cls(parts.hostname, port, is_tls, sender, user, password)


class Email:
    """`Channel` over SMTP; `server` None: the channel is unavailable."""

    def __init__(
        self,
        reactor: Any,
        server: MailServer | None,
        timeout_seconds: float,
        *,
        clock: IReactorTime | None = None,
        now: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self._reactor = reactor
        self._clock: IReactorTime = clock or reactor
        self._server = server
        self._timeout_seconds = timeout_seconds
        self._now = now

    @property
    def unavailable(self) -> str | None:
        """The reason why no mail is sent."""
        return NO_MAIL if self._server is None else None

    def destination(self, endpoint: str) -> str:
        """All mail goes through one relay."""
        return "smtp"

    async def send(self, notification: Notification) -> Delivered:
        """Send a mail; it is acknowledged when the server has accepted every recipient."""
        recipients = recipients_of(notification.url)
        if self._server is None:
            return Delivered(None, 0, NO_MAIL)
        if not recipients:
            return Delivered(None, 0, "the endpoint is not a mailto: address")
        started = self._clock.seconds()
        mail = mail_of(notification, self._server.sender, recipients, self._now())
        seconds = min(notification.timeout_seconds or self._timeout_seconds, self._timeout_seconds)
        try:
            error = await within(seconds, self._clock, self._relay(self._server, recipients, mail))
        except TimeLimitExceeded:
            error = f"the mail server did not answer within {seconds:g} s"
        except Exception as failure:
            if was_cancelled(failure):
                raise CancelledError() from failure
            error = _describe(failure)
        return Delivered(None, round((self._clock.seconds() - started) * 1000), error, is_done=error is None)

    async def _relay(self, server: MailServer, recipients: list[str], mail: bytes) -> str | None:
        sent: Deferred[Any] = Deferred()
        tls = optionsForClientTLS(server.host)
        factory: Any = ESMTPSenderFactory(
            server.user.encode() if server.user else None,
            server.password.encode() if server.password else None,
            server.sender,
            recipients,
            BytesIO(mail),
            sent,
            retries=0,
            contextFactory=None if server.is_tls else tls,
            requireAuthentication=server.user is not None,
            requireTransportSecurity=server.user is not None and not server.is_tls,
            heloFallback=server.user is None,
        )
        endpoint: Any = HostnameEndpoint(self._reactor, server.host, server.port)
        connection: Any = await (wrapClientTLS(tls, endpoint) if server.is_tls else endpoint).connect(factory)
        try:
            count, replies = await sent
        finally:
            connection.transport.abortConnection()
        return f"refused for a recipient: {_refusal(replies)}" if count < len(recipients) else None


_: type[Channel] = Email


def recipients_of(endpoint: str) -> list[str]:
    """The addresses of a `mailto:` URL; none when one of them is invalid."""
    scheme, _, rest = endpoint.partition(":")
    if scheme.lower() != "mailto":
        return []
    found = [unquote(part).strip() for part in rest.partition("?")[0].split(",")]
    return found if all(_ADDRESS.fullmatch(address) for address in found) else []


def mail_of(notification: Notification, sender: str, recipients: list[str], now: datetime) -> bytes:
    """The mail, with line feeds that Twisted converts for SMTP."""
    mail = EmailMessage(policy=SMTP.clone(linesep="\n"))
    mail["From"], mail["To"] = sender, ", ".join(recipients)
    mail["Date"], mail["Message-ID"] = format_datetime(now), make_msgid(domain=sender.partition("@")[2])
    mail["Subject"] = _subject(notification)
    mail["X-Correlation-Id"] = notification.correlation_id
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(_body(notification))
    attachment = _attachment_type(notification)
    if notification.body and attachment:
        main, _, sub = attachment.partition("/")
        name = "notification.xml" if "xml" in sub else "notification.json"
        mail.add_attachment(notification.body, maintype=main, subtype=sub, filename=name)
    return mail.as_bytes()


def _subject(notification: Notification) -> str:
    for name, value in notification.headers:
        if name.lower() == "subject":
            return re.sub(r"[\x00-\x1f\x7f]+", " ", value)
    count = len(notification.events)
    event_count = f"{count} event{'s' if count != 1 else ''}" if count else notification.kind
    return f"Subscription/{notification.subscription_id}: {event_count}"


def _body(notification: Notification) -> str:
    subscription = f"Subscription/{notification.subscription_id}"
    if notification.kind in _KIND_TEXTS:
        return f"{subscription} {_KIND_TEXTS[notification.kind]}.\n"
    lines = [f"{subscription} has events:", ""]
    for event in notification.events:
        resource = (
            "" if notification.content == "empty" else f": {event.resource_type}/{event.id}, version {event.version_id}"
        )
        lines.append(f"- number {event.number}, {event.occurred_at.isoformat(timespec='seconds')}{resource}")
    return "\n".join([*lines, ""])


def _attachment_type(notification: Notification) -> str | None:
    """The media type of the attachment: `attach=` of the payload type, else a payload type that is not text."""
    kind = notification.content_type or "application/fhir+json"
    base, _, parameters = kind.partition(";")
    for parameter in parameters.split(";"):
        name, _, value = parameter.strip().partition("=")
        if name.lower() == "attach" and "/" in value:
            return value.strip().lower()
    base = base.strip().lower()
    return None if base.startswith("text/") or notification.content == "empty" else base


def _text(reply: object) -> str:
    text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
    return re.sub(r"[^\x20-\x7e]+", " ", text)[:200]


def _refusal(replies: Any) -> str:
    """The first refusal among the replies (recipient, code, text) of the server."""
    return next((f"{code} {_text(text)}" for _, code, text in replies or () if not 200 <= code < 300), "")


def _describe(failure: Exception) -> str:
    if isinstance(failure, SMTPClientError):
        reply = _refusal(failure.addresses) or f"{failure.code} {_text(failure.resp)}"
        return f"the mail server refused: {reply}"
    return describe(failure)
