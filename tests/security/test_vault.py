"""Secrets of Subscriptions: encrypted at rest, redacted in responses, decrypted for delivery."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from ipf.fhir.index.extract import extract
from ipf.fhir.model.json import dumps, loads
from ipf.fhir.model.redaction import MASK, redact_body, redact_resource, restore_redacted
from ipf.fhir.search.parameters.custom import install
from ipf.fhir.topics.topic import read_topic
from ipf.fhir.topics.trigger import fires
from ipf.ports import DEFAULT_TENANT, OPEN, Answer, Caller, Change, Delivered, Json, Notification, Version
from ipf.ports.queries.index import EMPTY
from ipf.rest.operations.subscription_status import set_status
from ipf.security.vault import SecretUnreadable, Vault
from ipf.wire.channels.signed import SignedChannel, signature
from tests.rest.world import OnMemory, issues

KEY = "0123456789abcdef"
SECRET = 'Bearer s3cret "quoted"'
ENDPOINT = "https://hook.example.org/fhir"
ADA, EVE = (Caller(name, f"{name}-app", ("system/*.cruds",), issuer="https://idp") for name in ("ada", "eve"))


def subscription(*headers: str, **members: Any) -> Json:
    channel = {"type": "rest-hook", "endpoint": ENDPOINT, "header": list(headers)}
    criteria = {"reason": "r", "status": "requested", "criteria": "Patient?"}
    return {"resourceType": "Subscription", **criteria, "channel": channel, **members}


class VaultTests(TestCase):
    def test_round_trip(self) -> None:
        for vault in (Vault(KEY), Vault(), Vault(f"{KEY} another-key-of-ours")):
            for value in (SECRET, "a", "\xff\t~", "x" * 4000):
                encrypted = vault.encrypt(value)
                self.assertNotIn(value if len(value) > 1 else "\n", encrypted)
                self.assertEqual(
                    (vault.decrypt(encrypted), vault.encrypt(encrypted), vault.encrypt(value)),
                    (value, encrypted, encrypted),
                )
                self.assertEqual(redact_body(encrypted.encode()), MASK.encode())

    def test_key_rotation(self) -> None:
        old = Vault(KEY).encrypt(SECRET)
        both = Vault(f"a-newer-key-of-ours {KEY}")
        self.assertEqual(both.decrypt(old), SECRET)
        self.assertNotEqual(both.encrypt(SECRET), old)

    def test_undecryptable_texts(self) -> None:
        encrypted = Vault(KEY).encrypt(SECRET)
        for vault, text in (
            (Vault(), encrypted),
            (Vault("some-other-key-000"), encrypted),
            (Vault(KEY), encrypted[:-6] + "AAAA=="),
            (Vault(KEY), "ipf-sealed:1:"),
            (Vault(KEY), "ipf-sealed:1:AAAA"),
            (Vault(KEY), "ipf-sealed:0:_w=="),
        ):
            with self.assertRaises(SecretUnreadable) as caught:
                vault.decrypt(text)
            self.assertNotIn("s3cret", str(caught.exception))
            self.assertFalse(vault.can_decrypt(subscription("Accept: a/b", f"Authorization: {text}")))
        for vault in (Vault(KEY), Vault(f"a-newer-key-of-ours {KEY}")):
            self.assertTrue(vault.can_decrypt(subscription("Accept: a/b", f"Authorization: {encrypted}")))
        self.assertTrue(Vault().can_decrypt({"resourceType": "Subscription"}))

    def test_plain_headers_are_not_encrypted(self) -> None:
        encrypted = Vault(KEY).encrypt_headers(subscription("Accept: a/b", "X-Key: k"))
        self.assertEqual(encrypted["channel"]["header"][0], "Accept: a/b")
        self.assertIn("ipf-sealed:1:", encrypted["channel"]["header"][1])

    def test_masks_keep_stored_values(self) -> None:
        stored = subscription("A: 1", "B: 2", "A: 3")
        found = restore_redacted(subscription("a: ***", "B: new", "A: ***"), stored)
        self.assertEqual(found["channel"]["header"], ["A: 1", "B: new", "A: 3"])
        for headers in (("C: ***",), ("B: ***", "B: ***")):
            with self.assertRaises(Problem):
                restore_redacted(subscription(*headers), stored)
        with self.assertRaises(Problem):
            restore_redacted(subscription("A: ***"), None)


class AnswerTests(OnMemory):
    """Through the FHIR server."""

    async def setUp(self) -> None:
        await super().setUp()
        self.world.vault = Vault(KEY)
        sent = subscription(f"Authorization: {SECRET}", "X-Key: k3y-of-mine")
        self.created = await self.world.send("POST", "Subscription", sent, content_type="application/fhir+json")
        self.made = loads(self.created.body)["id"]
        self.here = f"Subscription/{self.made}"

    async def test_secret_is_visible_in_the_response_to_its_write_only(self) -> None:
        headers = loads(self.created.body)["channel"]["header"]
        self.assertEqual(headers, [f"Authorization: {SECRET}", "X-Key: k3y-of-mine"])
        stored = await self.world.body(self.here)
        self.assertNotIn("s3cret", str(stored))
        batch = {"resourceType": "Bundle", "type": "batch", "entry": [{"request": {"method": "GET", "url": self.here}}]}
        for method, url, body in (
            ("GET", self.here, None),
            ("GET", f"{self.here}?_format=xml", None),
            ("GET", f"{self.here}/_history/1", None),
            ("GET", f"{self.here}/_history", None),
            ("GET", "Subscription/_history", None),
            ("GET", "_history", None),
            ("GET", "Subscription?url=https://hook.example.org/fhir", None),
            ("GET", "Subscription?_elements=channel", None),
            ("POST", "", batch),
        ):
            answer = await self.world.send(method, url, body, content_type="application/fhir+json")
            self.assertIn(b"***", answer.body, url)
            for word in (b"s3cret", b"k3y", b"ipf-sealed"):
                self.assertNotIn(word, answer.body, url)

    async def test_a_masked_update_keeps_the_secret(self) -> None:
        shown = loads((await self.world.send("GET", self.here)).body)
        before = await self.world.body(self.here)
        again = await self.world.send("PUT", self.here, shown)
        self.assertEqual((again.status, (await self.world.body(self.here))["meta"]), (200, before["meta"]))
        changed = await self.world.send("PUT", self.here, {**shown, "reason": "another"})
        self.assertEqual(changed.status, 200)
        self.assertNotIn(b"s3cret", changed.body)
        self.assertEqual((await self.world.body(self.here))["channel"], before["channel"])

    async def test_equal_secret_is_no_change(self) -> None:
        sent = subscription(f"Authorization: {SECRET}", "X-Key: k3y-of-mine", id=self.made)
        answer = await self.world.send("PUT", self.here, sent)
        self.assertEqual(loads(answer.body)["meta"]["versionId"], "1")

    async def test_a_new_secret_and_a_kept_one(self) -> None:
        answer = await self.world.send("PUT", self.here, subscription("Authorization: n3w", "X-Key: ***", id=self.made))
        self.assertEqual(loads(answer.body)["channel"]["header"], ["Authorization: n3w", "X-Key: ***"])
        stored = await self.world.body(self.here)
        opened = [self.world.vault.decrypt(one.partition(": ")[2]) for one in stored["channel"]["header"]]
        self.assertEqual(opened, ["n3w", "k3y-of-mine"])

    async def test_mask_without_stored_value_is_refused(self) -> None:
        answer = await self.world.send("POST", "Subscription", subscription("Authorization: ***"))
        self.assertEqual(answer.status, 422)
        self.assertEqual(issues(answer)[0][2], "Subscription.channel.header[0]")

    async def test_a_patch(self) -> None:
        change = [{"op": "add", "path": "/channel/header/-", "value": "X-More: m0re"}]
        answer = await self.world.send("PATCH", self.here, dumps(change), content_type="application/json-patch+json")
        self.assertEqual(answer.status, 200)
        stored = await self.world.body(self.here)
        self.assertNotIn("m0re", str(stored))
        self.assertNotIn(b"s3cret", answer.body)

    async def test_a_secret_is_not_sent_to_another_server(self) -> None:
        """A client that may change a Subscription of another one cannot have its secrets sent to its own endpoint."""
        await self._register_as(ADA)
        self.world.caller = EVE
        before = await self.world.body(self.here)
        for endpoint, status in (
            ("https://evil.example.org/fhir", 422), ("https://hook.example.org:444/fhir", 422),
            ("https://hook.example.org/another", 422), (None, 422),
            ("https://hook.example.org/fhir", 200),
        ):  # fmt: skip
            for answer in await self._move(endpoint):
                self.assertEqual(answer.status, status, (endpoint, answer.body))
                if status == 422:
                    self.assertRegex(issues(answer)[0][2], r"Subscription\.channel\.(header\[0\]|endpoint)")
                    self.assertEqual((await self.world.body(self.here))["channel"], before["channel"])
        elsewhere = subscription(f"Authorization: {SECRET}", id=self.made)
        elsewhere["channel"]["endpoint"] = "https://other.example.org/fhir"
        self.assertEqual((await self.world.send("PUT", self.here, elsewhere)).status, 200, "in clear it may move")

    async def test_the_client_that_registered_moves_the_endpoint_with_the_mask(self) -> None:
        """PUT, PATCH and a transaction with `***` keep the secret; so do those of anybody without authentication."""
        for caller in (ADA, OPEN):
            for way in range(3):
                await self._register_as(caller)
                sealed = (await self.world.body(self.here))["channel"]["header"]
                answers = await self._move("https://moved.example.org/fhir")
                self.assertEqual(answers[way].status, 200, answers[way].body)
                stored = (await self.world.body(self.here))["channel"]
                self.assertEqual((stored["endpoint"], stored["header"]), ("https://moved.example.org/fhir", sealed))

    async def test_a_former_creator_moves_nothing(self) -> None:
        """Whoever replaced the channel has registered its secrets."""
        await self._register_as(ADA)
        self.world.caller = EVE
        await self.world.send("PUT", self.here, subscription("Authorization: evil", id=self.made))
        self.world.caller = ADA
        self.assertEqual([answer.status for answer in await self._move("https://moved.example.org/fhir")], [422] * 3)

    async def test_new_criteria_make_no_owner_of_the_secrets(self) -> None:
        """A client becomes the creator with the masks that it read, and still cannot have the secrets sent to it."""
        await self._register_as(ADA)
        self.world.caller = EVE
        shown = loads((await self.world.send("GET", self.here)).body)
        payload = {**shown["channel"], "payload": "application/fhir+json"}
        for more in ({"criteria": "Patient?gender=male"}, {"channel": payload}):
            self.assertEqual((await self.world.send("PUT", self.here, {**shown, **more})).status, 200)
            moved = await self._move("https://evil.example.org/fhir")
            self.assertEqual([answer.status for answer in moved], [422] * 3)
        clear = subscription("Authorization: own", id=self.made)
        self.assertEqual((await self.world.send("PUT", self.here, clear)).status, 200)
        moved = await self._move("https://eve.example.org/fhir")
        self.assertEqual([answer.status for answer in moved], [200] * 3)

    async def _register_as(self, caller: Caller) -> None:
        """A new Subscription of this client."""
        self.world.caller = caller
        sent = subscription(f"Authorization: {SECRET}", "X-Key: k3y-of-mine")
        self.made = loads((await self.world.send("POST", "Subscription", sent)).body)["id"]
        self.here = f"Subscription/{self.made}"

    async def _move(self, endpoint: str | None) -> list[Answer]:
        """What was read, with another endpoint (None: a websocket), by PUT, PATCH and in a transaction."""
        shown = loads((await self.world.send("GET", self.here)).body)
        moved = {**shown, "channel": {**shown["channel"], "endpoint": endpoint}}
        change = [{"op": "replace", "path": "/channel/endpoint", "value": endpoint}]
        if endpoint is None:
            moved["channel"] = {"type": "websocket", "header": shown["channel"]["header"]}
            change = [{"op": "remove", "path": "/channel/endpoint"}]
        request = {"method": "PUT", "url": self.here}
        whole = {"resourceType": "Bundle", "type": "transaction", "entry": [{"resource": moved, "request": request}]}
        return [
            await self.world.send("PUT", self.here, moved),
            await self.world.send("PATCH", self.here, dumps(change), content_type="application/json-patch+json"),
            await self.world.send("POST", "", whole),
        ]

    async def test_clients_cannot_send_encrypted_texts(self) -> None:
        """Neither in a request nor by a copy within the resource: it could be the secret of another endpoint."""
        encrypted = (await self.world.body(self.here))["channel"]["header"][0]
        for text in (encrypted, "Authorization: ipf-sealed:0:czNjcmV0", "Authorization: ipf-sealed:"):
            stolen = subscription(text)
            for method, url in (("POST", "Subscription"), ("PUT", "Subscription/stolen"), ("PUT", self.here)):
                id = url.partition("/")[2]
                answer = await self.world.send(method, url, {**stolen, "id": id} if id else stolen)
                self.assertEqual((answer.status, issues(answer)[0][2]), (422, "Subscription.channel.header[0]"), text)
        for operations, status in (
            ([{"op": "copy", "from": "/channel/header/0", "path": "/reason"}], 200),
            ([{"op": "replace", "path": "/channel/header", "value": ["Authorization: mine"]},
              {"op": "replace", "path": "/channel/endpoint", "value": "https://evil.example.org/"}], 200),
            ([{"op": "copy", "from": "/reason", "path": "/channel/header/-"}], 422),
        ):  # fmt: skip
            answer = await self.world.send(
                "PATCH", self.here, dumps(operations), content_type="application/json-patch+json"
            )
            self.assertEqual(answer.status, status, answer.body)
            self.assertNotIn(b"ipf-sealed:1", answer.body)

    async def test_queries_cannot_reveal_secrets(self) -> None:
        """Without a key the text is only encoded, so a query on its letters would reveal the secret."""
        self.world.vault = Vault()
        created = await self.world.send("POST", "Subscription", subscription(f"Authorization: {SECRET}"))
        made = loads(created.body)["id"]
        encrypted = (await self.world.body(f"Subscription/{made}"))["channel"]["header"][0]
        self.assertIn("ipf-sealed:0:", encrypted)
        patch = {"content_type": "application/json-patch+json"}
        before = await self.world.versions(f"Subscription/{made}")
        for operation in (
            {"op": "copy", "from": "/channel/header/0", "path": "/criteria"},
            {"op": "copy", "from": "/channel/header/0", "path": "/channel/payload"},
            {"op": "test", "path": "/channel/header/0", "value": encrypted},
        ):
            answer = await self.world.send("PATCH", f"Subscription/{made}", dumps([operation]), **patch)
            self.assertEqual((answer.status, b"ipf-sealed" in answer.body), (422, False), (operation, answer.body))
        answers = []
        for beginning in ("Authorization: ", encrypted[:30], "nonsense"):
            path = f"Subscription.where(channel.header.where(startsWith('{beginning}')).exists()).reason"
            parts = [{"name": "type", "valueCode": "replace"}, {"name": "path", "valueString": path},
                     {"name": "value", "valueString": "it is so"}]  # fmt: skip
            patch = {"resourceType": "Parameters", "parameter": [{"name": "operation", "part": parts}]}
            answer = await self.world.send("PATCH", f"Subscription/{made}", patch, content_type="application/fhir+json")
            answers.append(answer.status)
        self.assertEqual(answers, [200, 422, 422])
        self.assertEqual(len(await self.world.versions(f"Subscription/{made}")), len(before) + 1)

    def test_indexes_and_topics_see_the_mask(self) -> None:
        stored = Vault().encrypt_headers(subscription(f"Authorization: {SECRET}", "Accept: a/b", id="s"))
        self.assertEqual(redact_resource(stored)["channel"]["header"], ["Authorization: ***", "Accept: a/b"])
        self.assertIn("ipf-sealed:0:", stored["channel"]["header"][0])
        now = datetime(2026, 1, 1, tzinfo=UTC)
        version = Version(1, "Subscription", "s", 1, now, b"")
        change = Change(DEFAULT_TENANT, version, stored, EMPTY, EMPTY, "c", "create")
        found = []
        for beginning in ("Authorization: ***", "Authorization: ipf"):
            expression = f"(%current.channel.header | channel.header).where(startsWith('{beginning}')).exists()"
            trigger = {"resource": "Subscription", "fhirPathCriteria": expression}
            topic = read_topic({"resourceType": "SubscriptionTopic", "url": "urn:t", "status": "active",
                                "resourceTrigger": [trigger]})  # fmt: skip
            found.append(fires(topic.triggers[0], change))
        self.assertEqual(found, [True, False])
        own = {"resourceType": "SearchParameter", "url": "urn:p", "name": "n", "status": "active", "code": "secret",
               "base": ["Subscription"], "type": "string", "expression": "Subscription.channel.header"}  # fmt: skip
        self.addCleanup(install, [])
        install([own])
        written = [text for code, text, *_ in extract(stored).texts if code == "secret"]
        self.assertEqual((len(written) > 0, [text for text in written if "sealed" in text]), (True, []))

    async def test_status_changes_by_the_service_keep_secrets(self) -> None:
        before = await self.world.body(self.here)
        one = self.world.repository
        await set_status(DEFAULT_TENANT, self.made, "active", None, one.store, one.matcher, one.clock)
        after = await self.world.body(self.here)
        self.assertEqual((after["status"], after["channel"]), ("active", before["channel"]))

    async def test_masked_without_a_key(self) -> None:
        self.world.vault = Vault()
        made = loads((await self.world.send("POST", "Subscription", subscription("Authorization: pl4in"))).body)
        self.assertEqual(made["channel"]["header"], ["Authorization: pl4in"])
        shown = await self.world.send("GET", f"Subscription/{made['id']}")
        self.assertEqual(loads(shown.body)["channel"]["header"], ["Authorization: ***"])


class RecordingChannel:
    """A channel that records its notifications."""

    unavailable = None
    sent: Notification

    def destination(self, endpoint: str) -> str:
        return "here"

    async def send(self, notification: Notification) -> Delivered:
        self.sent = notification
        return Delivered(200, 1, None)


class SendingTests(TestCase):
    async def send(self, *headers: tuple[str, str], body: bytes | None = b"{}", secret: str | None = None) -> Any:
        self.far = RecordingChannel()
        channel = SignedChannel(self.far, Vault(KEY), secret, lambda: datetime(2026, 1, 1, tzinfo=UTC))
        return await channel.send(Notification("PUT", ENDPOINT, headers, body, "c"))

    async def test_secrets_are_decrypted(self) -> None:
        await self.send(("Authorization", Vault(KEY).encrypt(SECRET)), ("Accept", "a/b"))
        self.assertEqual(list(self.far.sent.headers), [("Authorization", SECRET), ("Accept", "a/b")])

    async def test_missing_key_fails_without_revealing_anything(self) -> None:
        delivered = await self.send(("Authorization", Vault("some-other-key-000").encrypt(SECRET)))
        self.assertFalse(delivered.succeeded)
        self.assertIn("cannot be decrypted", delivered.error)
        self.assertFalse(hasattr(self.far, "sent"))

    async def test_signatures(self) -> None:
        """The signature is HMAC-SHA256 of the time, a dot and the body."""
        for body in (b'{"resourceType":"Patient"}', None):
            await self.send(body=body, secret="key-of-the-server")
            ((name, value),) = self.far.sent.headers
            expected = hmac.new(b"key-of-the-server", b"1767225600." + (body or b""), sha256).hexdigest()
            self.assertEqual((name, value), ("X-Ipf-Signature", f"t=1767225600,v1={expected}"))

    async def test_signing_key_of_a_subscription_takes_precedence_and_is_not_sent(self) -> None:
        await self.send(("x-ipf-signing-SECRET", Vault(KEY).encrypt("own")), secret="key-of-the-server")
        self.assertEqual(list(self.far.sent.headers), [("X-Ipf-Signature", signature("own", b"{}", 1767225600))])
