"""`IPF_BROKERS` and endpoints of Subscriptions, as tables."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.config.brokers import Broker, brokers, endpoint_of, kind_of


class BrokerTests(TestCase):
    def test_brokers(self) -> None:
        for text, expected in (
            ("", ()),
            ("kafka://one", (Broker("kafka", (("one", 9092),)),)),
            ("nats://One.example.org", (Broker("nats", (("one.example.org", 4222),)),)),
            (
                "kafka+tls://us%40er:p%2Fw@one:9093,two:9094/fhir.*,other?sasl=scram-sha-512&ca=/ca.pem",
                (
                    Broker(
                        "kafka", (("one", 9093), ("two", 9094)), True, ("fhir.*", "other"), "us@er", "p/w",
                        "SCRAM-SHA-512", "/ca.pem",
                    ),
                ),
            ),
            (
                "amqp+tls://ipf:pw@one:5671/fhir.*?vhost=/north&exchange=fhir",
                (
                    Broker("amqp", (("one", 5671),), True, ("fhir.*",), "ipf", "pw", vhost="/north", exchange="fhir"),
                ),
            ),
            (
                "nats+tls://[::1]:4223?certificate=/c.pem&key=/k.pem nats://token@b",
                (
                    Broker("nats", (("[::1]", 4223),), True, certificate="/c.pem", key="/k.pem"),
                    Broker("nats", (("b", 4222),), user="token"),
                ),
            ),
        ):  # fmt: skip
            self.assertEqual(brokers(text), expected, text)

    def test_wrong_brokers(self) -> None:
        form = "expected URLs such as"
        for text, rule in (
            ("http://one", form),
            ("kafka:one", form),
            ("kafka+ssl://one", form),
            ("kafka://one:0", form),
            ("kafka://one:70000", form),
            ("kafka://one,,two", form),
            ("kafka://[::1", form),
            ("kafka://one#x", form),
            ("kafka://user@one", "expected user:password, or neither"),
            ("nats://:hidden@one", "expected user:password, or neither"),
            ("kafka://one?credentials=/x", "the options of kafka are ca, certificate, key, sasl"),
            ("nats://one?sasl=plain", "the options of nats are ca, certificate, key"),
            ("nats://one?ca=", "the options of nats"),
            ("amqp://token@one", "expected user:password, or neither"),
            ("amqp://one?queue=x", "the options of amqp are ca, certificate, exchange, key, vhost"),
            ("kafka://u:hidden@one?sasl=gssapi", "sasl must be one of plain, scram-sha-256, scram-sha-512"),
            ("kafka://one?ca=/x", "ca, certificate and key need kafka+tls"),
            ("kafka+tls://one?key=/x", "certificate and key are given together or not at all"),
            ("kafka://one kafka://two,one:9092", "a host is in two brokers"),
        ):
            refused = self.assertRaises(ValueError, brokers, text)
            self.assertIn(rule, str(refused), text)
            self.assertNotIn("hidden", str(refused))

    def test_no_secret_is_shown(self) -> None:
        (broker,) = brokers("kafka://user:hidden@one:1,two:2")
        self.assertNotIn("hidden", repr(broker))
        self.assertEqual(broker.name, "kafka://one:1,two:2")

    def test_patterns(self) -> None:
        for url, target, is_allowed in (
            ("nats://one", "anything", True),
            ("nats://one/fhir.*,lab", "fhir.a.b", True),
            ("nats://one/fhir.*,lab", "lab", True),
            ("nats://one/fhir.*,lab", "other", False),
            ("nats://one/fhir.*,lab", "Fhir.a", False),
        ):
            self.assertEqual(brokers(url)[0].allows(target), is_allowed, (url, target))


class EndpointTests(TestCase):
    def test_endpoints(self) -> None:
        known = brokers("kafka://one:9092,two:9093 nats://one:4222")
        for text, name, target in (
            ("kafka://one/fhir.patients", "kafka://one:9092,two:9093", "fhir.patients"),
            ("kafka://TWO:9093,one/a_b-c", "kafka://one:9092,two:9093", "a_b-c"),
            ("nats://one/fhir.patients", "nats://one:4222", "fhir.patients"),
            ("kafka://one,three/a", None, "a"),
            ("nats://two:9093/a", None, "a"),
        ):
            endpoint = endpoint_of(text)
            found = endpoint.broker(known)
            self.assertEqual((found and found.name, endpoint.target), (name, target), text)

    def test_wrong_endpoints(self) -> None:
        for text, rule in (
            ("kafka://user:pw@one/a", "without credentials, query or fragment"),
            ("kafka://one/a?x=1", "without credentials, query or fragment"),
            ("kafka+tls://one/a", "must be kafka://host:port/topic"),
            ("nats:subject", "must be nats://host:port/subject"),
            ("kafka://one", "a topic has 1 to 249"),
            ("kafka://one/a/b", "a topic has 1 to 249"),
            ("kafka://one/..", "a topic has 1 to 249"),
            ("kafka://one/%61", "a topic has 1 to 249"),
            ("kafka://one/" + "a" * 250, "a topic has 1 to 249"),
            ("kafka://one/__consumer_offsets", "belong to Kafka itself"),
            ("nats://one/a..b", "a subject has words"),
            ("nats://one/a.*", "a subject has words"),
            ("nats://one/$JS.API.STREAM.DELETE.FHIR", "a subject has words"),
            ("nats://one/a>", "a subject has words"),
            ("amqp://one/a b", "a routing key has words"),
            ("amqp://one/" + "a" * 256, "a routing key has words"),
            ("amqp://one/vhost/queue", "a routing key has words"),
        ):
            self.assertIn(rule, str(self.assertRaises(ValueError, endpoint_of, text)), text)

    def test_kinds(self) -> None:
        for text, kind in (
            ("kafka://x/y", "kafka"), ("NATS://x/y", "nats"), ("nats+tls://x/y", "nats"), ("amqp://x/y", "amqp"),
            ("https://kafka/y", None), ("kafka", None), (None, None), (5, None),
        ):  # fmt: skip
            self.assertEqual(kind_of(text), kind, text)
