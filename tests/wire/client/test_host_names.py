"""Host names: each lookup in a thread of its own, within limits, and none that delays another."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from ipf.wire.client.host_names import HostNames, Speed, use_host_names


class Loop(Clock):
    """A reactor; what threads call runs at once."""

    nameResolver: Any = None

    def callFromThread(self, work: Callable[..., None], *arguments: Any) -> None:
        work(*arguments)

    def installNameResolver(self, resolver: Any) -> None:
        self.nameResolver = resolver


class Receiver:
    """Collects addresses; `complete` counts the ends."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.complete = 0

    def resolutionBegan(self, resolution: Any) -> None:
        self.resolution = resolution

    def addressResolved(self, address: Any) -> None:
        self.found.append(address)

    def resolutionComplete(self) -> None:
        self.complete += 1


class HostNamesTests(TestCase):
    def setUp(self) -> None:
        self.loop = Loop()
        self.threads: list[Callable[[], None]] = []
        self.asked: list[str] = []
        self.names = HostNames(self.loop, self.getaddrinfo, self.threads.append)

    def getaddrinfo(self, host: str, port: int, family: int, kind: int) -> list[Any]:
        self.asked.append(host)
        if host.startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        if host.startswith("invalid"):
            raise UnicodeError("label too long")
        tcp = socket.SOCK_STREAM, 6, ""
        return [(socket.AF_INET6, *tcp, ("2001:db8::1", 0, 0, 3)), (socket.AF_INET, *tcp, ("192.0.2.1", 0))]

    def resolve(self, host: str, *more: Any) -> Receiver:
        receiver = Receiver()
        self.names.resolveHostName(receiver, host, 443, *more)
        return receiver

    def run_threads(self, count: int = 10**6) -> None:
        for _ in range(min(count, len(self.threads))):
            self.threads.pop(0)()

    def test_addresses(self) -> None:
        one = self.resolve("a.example.org")
        self.assertEqual(one.complete, 0)
        self.run_threads()
        v6, v4 = IPv6Address("TCP", "2001:db8::1", 443, 0, 3), IPv4Address("TCP", "192.0.2.1", 443)
        self.assertEqual((one.found, one.complete), ([v6, v4], 1))
        only, datagrams = self.resolve("a.example.org", [IPv4Address]), self.resolve("a.example.org", None, "DATAGRAM")
        self.run_threads()
        self.assertEqual(only.found, [v4])
        self.assertEqual(datagrams.found[1], IPv4Address("UDP", "192.0.2.1", 443))

    def test_names_that_do_not_resolve(self) -> None:
        for host in ("none.example.org", "invalid" * 20):
            one = self.resolve(host)
            self.run_threads()
            self.assertEqual((one.found, one.complete, self.names.is_failing(host)), ([], 1, True))
            self.loop.advance(61)
            self.assertFalse(self.names.is_failing(host), "it is not known any more")

    def test_addresses_need_no_thread(self) -> None:
        for host, wanted in (("10.1.2.3", IPv4Address("TCP", "10.1.2.3", 443)),
                             ("::1", IPv6Address("TCP", "::1", 443, 0, 0))):  # fmt: skip
            self.assertEqual(self.resolve(host).found, [wanted])
        self.assertEqual(self.threads, [])

    def test_a_name_is_looked_up_once_for_all_who_wait_and_again_for_the_next(self) -> None:
        waiting = [self.resolve("a.example.org") for _ in range(100)]
        waiting[0].resolution.cancel()
        self.run_threads()
        self.assertEqual((self.asked, [one.complete for one in waiting]), (["a.example.org"], [0] + [1] * 99))
        self.resolve("a.example.org")
        self.run_threads()
        self.assertEqual(len(self.asked), 2)

    def test_slow_names_delay_no_other(self) -> None:
        """What was quick before is looked up at once, what is new after those that are slow now."""
        self.resolve("good.example.org")
        self.run_threads()
        slow = [f"slow{number}.example.org" for number in range(1000)]
        for host in slow:
            self.resolve(host)
        self.assertEqual(len(self.threads), Speed.NEW.value)
        self.resolve("good.example.org")
        self.assertEqual(len(self.threads), Speed.NEW.value + 1, "it has its thread at once")
        self.asked.clear()
        self.threads.pop()()
        self.assertEqual(self.asked, ["good.example.org"])
        new = self.resolve("new.example.org")
        self.loop.advance(30.0)
        self.run_threads(Speed.NEW.value)  # the slow ones end; those that waited for 30 s are not begun
        self.assertEqual((new.complete, len(self.threads)), (1, 0))
        for host in slow[: Speed.NEW.value]:
            self.resolve(host)
        self.assertEqual(len(self.threads), Speed.SLOW.value, "the second time they have few threads")
        self.resolve("another.example.org")
        self.assertEqual(len(self.threads), Speed.SLOW.value + 1)

    def test_what_waits_is_bounded(self) -> None:
        waiting = [self.resolve(f"n{number}.example.org") for number in range(5000)]
        most = 1000 + Speed.NEW.value
        self.assertEqual([one.complete for one in waiting], [0] * most + [1] * (5000 - most))
        while self.threads:
            self.run_threads()
        self.assertEqual({one.complete for one in waiting}, {1})

    def test_without_threads_nothing_resolves_and_nothing_stays(self) -> None:
        def fails(work: Callable[[], None]) -> None:
            raise RuntimeError("can't start new thread")

        self.names = HostNames(self.loop, self.getaddrinfo, fails)
        found = [self.resolve(f"n{number}.example.org") for number in range(100)]
        self.assertEqual({(one.complete, len(one.found)) for one in found}, {(1, 0)})
        self.names._run = self.threads.append
        later = self.resolve("n1.example.org")
        self.run_threads()
        self.assertEqual(len(later.found), 2)

    def test_registration_waits_two_seconds_for_all_names_together(self) -> None:
        hosts = ["good.example.org", *[f"slow{number}.example.org" for number in range(500)]]
        looked_up = Deferred.fromCoroutine(self.names.look_up(hosts))
        self.threads.pop(0)()
        self.loop.advance(1.9)
        self.assertNoResult(looked_up)
        self.loop.advance(0.2)
        found = self.successResultOf(looked_up)
        self.assertEqual((len(found), found["good.example.org"]), (501, ["2001:db8::1", "192.0.2.1"]))
        self.assertEqual({tuple(found[host]) for host in hosts[1:]}, {()})
        self.assertTrue(self.names.is_failing("slow7.example.org"))
        self.run_threads()  # answers that nobody waits for
        self.assertFalse(self.names.is_failing("slow0.example.org"), "it has resolved since")

    def test_what_it_remembers_is_bounded(self) -> None:
        for number in range(10_050):
            self.resolve(f"n{number}.example.org")
            self.resolve(f"none{number}.example.org")
            self.run_threads()
        self.assertEqual((len(self.names._known), len(self.names._failed_at)), (10_000, 10_000))

    def test_the_resolver_of_a_reactor(self) -> None:
        names = use_host_names(self.loop)
        self.assertIs(use_host_names(self.loop), names)
        self.assertIs(self.loop.nameResolver, names)
