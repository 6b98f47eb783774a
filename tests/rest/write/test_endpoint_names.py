"""Endpoints whose host is a name, from the request to the stored Subscription: looked up when they are registered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.fhir.model.json import loads
from ipf.ports import Answer, Json
from ipf.subscriptions.endpoint_names import EndpointNames, named_host
from ipf.subscriptions.endpoints import EndpointRules
from ipf.subscriptions.policy import STRICT, ChannelPolicy
from tests.rest.interactions.test_transaction import bundle, entry
from tests.rest.world import World, issues, patient
from tests.rest.write.test_subscription import subscription

ALLOW, DENY = "SUBSCRIPTION_SERVICE_ENDPOINT_ALLOW", "SUBSCRIPTION_SERVICE_ENDPOINT_DENY"
JSON_PATCH = "application/json-patch+json"


class NameServer:
    """Answers from a table; a name that is not in it does not resolve."""

    def __init__(self, **addresses: Sequence[str]) -> None:
        self.addresses = {f"{name}.example.org": found for name, found in addresses.items()}
        self.asked: list[list[str]] = []
        self.failing: set[str] = set()
        self.open_transactions: list[int] = []
        self.waits: Deferred[None] | None = None

    async def look_up(self, hosts: Collection[str]) -> dict[str, Sequence[str]]:
        self.asked.append(sorted(hosts))
        if self.waits is not None:
            await self.waits
        found = {host: self.addresses.get(host, ()) for host in hosts}
        self.failing |= {host for host, addresses in found.items() if not addresses}
        return found


def world(server: NameServer, rules: EndpointRules | None = None) -> World:
    """A server whose endpoints' names this name server resolves."""
    rules = rules or EndpointRules()
    policy = ChannelPolicy(STRICT, rules, is_unresolved=server.failing.__contains__)
    return World(policy=policy, names=EndpointNames(rules, server.look_up))


def to(host: str, id: str = "s", **members: object) -> Json:
    """A Subscription with this host."""
    return subscription(id=id, channel={**subscription()["channel"], "endpoint": f"https://{host}/hook"}, **members)


class RegistrationTests(TestCase):
    async def ways(self, world: World, host: str) -> list[Answer]:
        """Every interaction that gives a Subscription another endpoint."""
        url, made = f"https://{host}/hook", to(host)
        for id in ("one", "two", "three"):
            first = await world.send("PUT", f"Subscription/{id}", to("10.1.2.3", id))
            self.assertIn(first.status, (200, 201))
        patch = [{"op": "replace", "path": "/channel/endpoint", "value": url}]
        moved = [{"op": "replace", "path": "/reason", "value": url},
                 {"op": "copy", "from": "/reason", "path": "/channel/endpoint"}]  # fmt: skip
        send = world.send
        return [
            await send("PUT", "Subscription/s", made),
            await send("POST", "Subscription", made),
            await send("PUT", "Subscription?_id=t", to(host, "t")),
            await send("POST", "", bundle("transaction", entry("POST", "Subscription", made))),
            await send("PUT", "Subscription/one", to(host, "one")),
            await send("PATCH", "Subscription/two", patch, content_type=JSON_PATCH),
            await send("PATCH", "Subscription/three", moved, content_type=JSON_PATCH),
            await send("PATCH", "Subscription?_id=two", patch, content_type=JSON_PATCH),
        ]

    async def test_every_way_of_registration(self) -> None:
        """The refusal names the setting; what does not resolve is accepted with a warning."""
        own = EndpointRules(own_ports=lambda: {443: "IPF_HTTP_LISTEN"})
        tenants = EndpointRules(has_tenants=True)
        table: list[tuple[EndpointRules, Sequence[str], str]] = [
            (EndpointRules(), ["8.8.8.8"], ""),
            (EndpointRules(), ["10.1.2.3"], ""),
            (EndpointRules(), ["127.0.0.1"], ""),
            (EndpointRules(), ["169.254.169.254"], ALLOW),
            (EndpointRules(), ["fe80::1%eth0", "::ffff:169.254.1.1"], ALLOW),
            (EndpointRules(), ["224.0.0.1"], ALLOW),
            (EndpointRules(), ["0.0.0.0"], ALLOW),
            (EndpointRules(), ["::"], ALLOW),
            (EndpointRules(), ["fe80::1", "10.1.2.3"], ""),
            (own, ["127.0.0.1"], "IPF_HTTP_LISTEN"),
            (own, ["::1", "127.0.0.1"], "IPF_HTTP_LISTEN"),
            (own, ["10.1.2.3"], ""),
            (tenants, ["10.1.2.3"], ALLOW),
            (tenants, ["8.8.8.8"], ""),
            (EndpointRules((), ("10.0.0.0/8",)), ["10.1.2.3"], DENY),
        ]
        for rules, addresses, setting in table:
            server = NameServer(hook=addresses)
            of_text = EndpointRules(("10.1.2.3",), has_tenants=True) if rules is tenants else EndpointRules()
            one = world(server, rules)
            one.policy = ChannelPolicy(STRICT, of_text)  # the first versions have an address as their host
            for number, answer in enumerate(await self.ways(one, "hook.example.org")):
                self.assertEqual(answer.status == 422, bool(setting), (addresses, number, answer.body))
                if setting:
                    self.assertIn("Subscription.channel.endpoint", issues(answer)[0][2], number)
                    self.assertIn(setting, issues(answer)[0][1], number)
            self.assertTrue(server.asked)

    async def test_a_name_that_does_not_resolve(self) -> None:
        server = NameServer()
        one = world(server)
        for number, answer in enumerate(await self.ways(one, "gone.example.org")):
            self.assertIn(answer.status, (200, 201), number)
        for prefer in ("return=OperationOutcome", "return=representation"):
            answer = await one.send("PUT", "Subscription/w", to("gone.example.org", "w", reason=prefer), prefer=prefer)
            said = answer.body + repr(answer.headers).encode()
            self.assertIn(b"gone.example.org of the endpoint does not resolve now", said)
        (text,) = one.policy.warnings(to("gone.example.org"))  # which health shows
        self.assertIn("does not resolve now", text)
        self.assertEqual(one.policy.warnings(to("good.example.org")), [])

    async def test_what_is_not_looked_up(self) -> None:
        """An address, a mail, a websocket; and an endpoint that stays, so that it can always be switched off."""
        server = NameServer(hook=["8.8.8.8"])
        one = world(server)
        channel = subscription()["channel"]
        for made in (
            to("10.1.2.3"), to("[fd00::1]"),
            subscription(channel={**channel, "type": "email", "endpoint": "mailto:a@example.org", "payload": None}),
            subscription(channel={**channel, "type": "websocket", "endpoint": None}),
        ):  # fmt: skip
            made["channel"] = {name: value for name, value in made["channel"].items() if value is not None}
            self.assertEqual((await one.send("POST", "Subscription", made)).status, 201, made)
        self.assertEqual(server.asked, [])
        await one.send("PUT", "Subscription/s", to("hook.example.org"))
        server.addresses["hook.example.org"] = ["169.254.169.254"]
        off = await one.send("PUT", "Subscription/s", to("hook.example.org", status="off"))
        self.assertEqual((off.status, len(server.asked)), (200, 1))

    async def test_many_names_of_one_request_are_one_look_up(self) -> None:
        """So that its time is that of one; one refused name fails the transaction, and its entry of a batch alone."""
        server = NameServer(**{f"h{number}": ["8.8.8.8"] for number in range(300)}, bad=["169.254.1.1"])
        one = world(server)
        hosts = [f"h{number}.example.org" for number in range(300)]
        entries = [entry("POST", "Subscription", to(host)) for host in hosts]
        answer = await one.send("POST", "", bundle("transaction", *entries))
        self.assertEqual((answer.status, len(server.asked), len(server.asked[0])), (200, 1, 300))
        bad = entry("POST", "Subscription", to("bad.example.org"))
        refused = await one.send("POST", "", bundle("transaction", *entries[:2], bad))
        self.assertEqual((refused.status, issues(refused)[0][2]),
                         (422, "Bundle.entry[2].resource (Subscription.channel.endpoint)"))  # fmt: skip
        batch = loads((await one.send("POST", "", bundle("batch", *entries[:2], bad))).body)
        self.assertEqual([each["response"]["status"][:3] for each in batch["entry"]], ["201", "201", "422"])

    async def test_others_write_meanwhile(self) -> None:
        """A name that takes its time holds neither a transaction nor the writes of others."""
        server = NameServer(slow=["8.8.8.8"])
        server.waits = Deferred()
        one = world(server)
        waiting = [
            Deferred.fromCoroutine(one.send("POST", "Subscription", to("slow.example.org"))) for _ in range(5)
        ]  # fmt: skip
        answer = self.successResultOf(Deferred.fromCoroutine(one.send("POST", "Patient", patient("1"))))
        self.assertEqual(answer.status, 201)
        for request in waiting:
            self.assertNoResult(request)
        server.waits.callback(None)
        self.assertEqual([(await request).status for request in waiting], [201] * 5)

    def test_the_host_of_an_endpoint(self) -> None:
        for endpoint, wanted in (
            ("https://a.example.org/x", ("a.example.org", 443)), ("http://A.example.org.:81", ("a.example.org", 81)),
            ("https://10.0.0.1", None), ("https://[::1]:8", None), ("mailto:a@b", None), ("https://", None),
            ("kafka://host:9092/t", None), (None, None),
        ):  # fmt: skip
            channel = {"type": "rest-hook", "endpoint": endpoint}
            self.assertEqual(named_host({"channel": channel}), wanted, endpoint)
