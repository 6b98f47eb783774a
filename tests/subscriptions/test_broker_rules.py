"""Subscriptions that name a message broker: what is refused at registration, as a table."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.config.brokers import brokers, missing_library
from ipf.errors import Category
from ipf.subscriptions.endpoints import EndpointRules
from ipf.subscriptions.policy import PERMISSIVE, RELAXED, STRICT, ChannelPolicy
from ipf.subscriptions.terms import terms_of

PLAIN = "kafka://one:9092/fhir.*"
TLS = "kafka+tls://one:9092/fhir.*"
SECURE = "kafka+tls://ipf:password@one:9092/fhir.*"


def violations(configured: str, mode: str = STRICT, **changes: Any) -> list[str]:
    """Texts of the violations of a channel to the topic `fhir.patients` with some members changed."""
    channel = {"type": "message", "endpoint": "kafka://one:9092/fhir.patients", **changes}
    policy = ChannelPolicy(mode, EndpointRules(("hooks.example.org",), ("*",)), brokers(configured))
    return [issue.text for issue in policy.violations({"resourceType": "Subscription", "channel": channel})]


class BrokerRuleTests(TestCase):
    def test_modes(self) -> None:
        """strict: TLS and credentials; relaxed: TLS; permissive: any broker that the operator names."""
        tls, credentials = "the connection to the broker must be TLS", "this server has no credentials for the broker"
        unknown = "this server knows no broker with these hosts: the operator names brokers in IPF_BROKERS"
        for configured, *expected in (
            ("", [unknown], [unknown], [unknown]),
            ("nats://one:9092", [unknown], [unknown], [unknown]),
            (PLAIN, [tls, credentials], [tls], []),
            (TLS, [credentials], [], []),
            (SECURE, [], [], []),
        ):
            for mode, texts in zip((STRICT, RELAXED, PERMISSIVE), expected, strict=True):
                self.assertEqual(violations(configured, mode), texts, (configured, mode))

    def test_topics(self) -> None:
        for topic, texts in (
            ("fhir.x", []),
            ("other", ["this server does not allow the topic other"]),
            ("a b", ["a topic has 1 to 249 letters, digits, dots, hyphens and underscores"]),
        ):
            self.assertEqual(violations(SECURE, endpoint=f"kafka://one:9092/{topic}"), texts)

    def test_headers(self) -> None:
        """No credentials, for whoever reads the topic would read them, and nothing that steers the broker."""
        for header, refused in (
            ("X-Route: north", False),
            ("X-Ipf-Signing-Secret: 0123456789abcdef", False),
            ("Authorization: Bearer x", True),
            ("cookie: x", True),
            ("Nats-Rollup: all", True),
            ("nats-msg-id: 1", True),
            ("X-Ipf-Event-Number: 1", True),
            ("traceparent: 00-1-1-00", True),
            ("Content-Type: text/plain", False),
            ("no colon", True),
        ):
            self.assertEqual(bool(violations(SECURE, header=[header])), refused, header)

    def test_other_channels_have_no_brokers(self) -> None:
        (text,) = violations(SECURE, type="rest-hook", header=["Authorization: x"])
        self.assertEqual(text, "the endpoint must be an absolute http or https URL")

    def test_a_missing_library_is_named(self) -> None:
        policy = ChannelPolicy(
            PERMISSIVE, EndpointRules(), brokers(PLAIN), missing_library=lambda kind: f"install ipf[{kind}]"
        )
        channel = {"type": "message", "endpoint": "kafka://one:9092/fhir.patients"}
        (issue,) = policy.violations({"channel": channel})
        self.assertEqual((issue.text, issue.category), ("install ipf[kafka]", Category.BUSINESS_RULE))
        self.assertIsNone(missing_library("kafka"), "the test lock has it")
        self.assertIsNone(missing_library("nats"), "the test lock has it")

    def test_terms(self) -> None:
        """The channel that sends is the kind of the broker; a topic Subscription of the guide gets a handshake."""
        for endpoint, kind in (("kafka://one/a", "kafka"), ("NATS://one/a", "nats"), ("https://one/a", "message")):
            self.assertEqual(terms_of({"channel": {"type": "message", "endpoint": endpoint}}).channel_type, kind)
        self.assertEqual(
            terms_of({"channel": {"type": "rest-hook", "endpoint": "kafka://x/y"}}).channel_type, "rest-hook"
        )
