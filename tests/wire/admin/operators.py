"""The admin API on a listener over PostgreSQL stores.  Checks every response against the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from jsonschema import Draft202012Validator
from treq.client import HTTPClient
from twisted.internet import defer, reactor
from twisted.trial.unittest import TestCase
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.resource import Resource
from twisted.web.server import Site

from ipf.config.settings import Settings
from ipf.errors import Category, Problem
from ipf.mapping.library.service import as_claimed
from ipf.ports import Attempt, Claimed, Mapped, Received, Settlement, Status, UnmappedCode
from ipf.rest.interactions.transaction import entries_of
from ipf.rest.operations.replay_preview import ReplayPreviewer
from ipf.rest.operations.subscription_status import set_status
from ipf.rest.write.commit import commit
from ipf.rest.write.unit import Unit
from ipf.store.deliveries.deliveries import PostgresDeliveryQueue
from ipf.store.inbox.conflicts import PostgresIdentityConflicts
from ipf.store.inbox.inbox import PostgresInbox
from ipf.store.inbox.message_admin import PostgresMessageAdmin
from ipf.store.inbox.unmapped_codes import PostgresUnmappedCodes
from ipf.store.inbox.unread_fields import PostgresUnreadFields
from ipf.store.postgres.database import Database
from ipf.store.resources.effects import PostgresEffects
from ipf.store.resources.identity import PostgresIdentityAnswers
from ipf.store.resources.resources import PostgresFhirStore
from ipf.subscriptions.matching import MatchingIndex
from ipf.wire.admin import app as admin
from ipf.wire.admin import messages
from ipf.wire.admin.access import AdminAccess
from ipf.wire.admin.inbox import effects as admin_effects
from ipf.wire.admin.inbox import jobs, rejects, unmapped
from ipf.wire.admin.inbox import unread as admin_unread
from ipf.wire.admin.patients import identity
from ipf.wire.admin.patients.identity import IdentityAdmin
from ipf.wire.admin.route import AnyMounted, Mounted
from ipf.wire.admin.systems import subscriptions
from ipf.wire.admin.systems.subscriptions import SubscriptionAdmin
from ipf.wire.reference.table import DOCUMENT_ROUTES, admin_document
from tests import postgres
from tests.pipeline.test_worker import MemoryNotifier

DOCUMENT = admin_document("1")


def now() -> datetime:
    """The clock of these tests."""
    return datetime.now(UTC)


class PatientMapper:
    """PID-5.1 becomes the family name of a Patient by PID-3."""

    def has_map(self, message_type: str) -> bool:
        """True for every type."""
        return True

    async def transform(self, message: Claimed) -> Mapped:
        """A transaction Bundle of one Patient."""
        fields = message.raw.decode().split("PID|")[1].strip().split("|")
        patient = {
            "resourceType": "Patient",
            "identifier": [{"system": "urn:mrn", "value": fields[2]}],
            "name": [{"family": fields[4]}],
        }
        request = {"method": "PUT", "url": f"Patient?identifier=urn:mrn|{fields[2]}"}
        entry = {"fullUrl": f"urn:uuid:{uuid4()}", "resource": patient, "request": request}
        return Mapped({"resourceType": "Bundle", "type": "transaction", "entry": [entry]}, "urn:map:patient|2")


def adt(number: int, name: str = "Hansen", patient: str = "P1", **changes: Any) -> Received:
    """A message."""
    raw = f"MSH|^~\\&|LAB|||||||C{number}\rPID|1||{patient}||{name}\r".encode()
    given: dict[str, Any] = {"source_system": "LAB", "message_type": "ADT_A01", "ordering_key": 7, **changes}
    system, kind, key = given["source_system"], given["message_type"], given["ordering_key"]
    tenant = given.get("tenant", "default")
    return Received(str(uuid4()), now(), system, f"C{number}", kind, raw, ordering_key=key, tenant=tenant)


class OperatorsTest(TestCase):
    """Sets up stores and listener; `ask` returns (status, body)."""

    async def setUp(self) -> None:
        self.database: Database = await postgres.database(self, "ipf")
        self.fhir_database: Database = await postgres.database(self, "fhir")
        self.inbox, self.message_admin = PostgresInbox(self.database), PostgresMessageAdmin(self.database)
        self.codes = PostgresUnmappedCodes(self.database)
        self.unread = PostgresUnreadFields(self.database)
        self.fhir, self.matcher = PostgresFhirStore(self.fhir_database), MatchingIndex()
        self.notifier = MemoryNotifier()
        self.mapper = PatientMapper()
        self.answers, self.merged = PostgresIdentityAnswers(self.fhir_database), list[tuple[str, ...]]()
        await self._listen(None)

    async def _listen(self, token: str | None, read_token: str | None = None) -> None:
        preview = ReplayPreviewer(self.inbox, self.mapper, self.fhir, self.matcher, now, ("ADT_A04",), as_claimed)
        effects = PostgresEffects(self.fhir_database)
        settings = Settings(admin_token=token or "s3cret", max_attempts=7)
        queue = PostgresDeliveryQueue(self.fhir_database)
        admin_of_subscriptions = SubscriptionAdmin(queue, self.change_status, self.notifier, self.no_endpoint, "admin")
        tables = [
            Mounted(messages.ROUTES, messages.Messages(self.inbox, self.notifier)),
            Mounted(admin_effects.ROUTES, admin_effects.Effects(self.inbox, self.message_admin, effects, self.codes)),
            Mounted(jobs.ROUTES, jobs.Jobs(self.message_admin, preview)),
            Mounted(rejects.ROUTES, self.message_admin),
            Mounted(rejects.CONFIG_ROUTES, rejects.Configuration(settings, {"IPF_MAX_ATTEMPTS"})),
            Mounted(unmapped.ROUTES, unmapped.Codes(self.codes, self.notifier)),
            Mounted(subscriptions.ROUTES, admin_of_subscriptions),
            Mounted(identity.ROUTES, self._identity()),
            Mounted(DOCUMENT_ROUTES, json.dumps(DOCUMENT).encode()),
            admin_unread.routes(self.unread),
            *self.more_routes(),
        ]
        root = Resource()
        found = admin.resource(AdminAccess(token, read_token), tables)
        root.putChild(b"admin", found)
        port = reactor.listenTCP(0, Site(root), interface="127.0.0.1")
        self.client = HTTPClient(Agent(reactor, pool=HTTPConnectionPool(reactor, persistent=False)))
        self.base = f"http://127.0.0.1:{port.getHost().port}/admin"
        self.addCleanup(port.stopListening)

    def more_routes(self) -> list[AnyMounted]:
        """Further paths."""
        return []

    async def no_endpoint(self, tenant: str, id: str) -> Attempt:
        """No endpoint is reached from here."""
        raise Problem(Category.BUSINESS_RULE, f"Subscription/{id} of {tenant} is not sent to")

    async def change_status(
        self, tenant: str, id: str, status: str, error: str | None, correlation_id: str, who: str
    ) -> object:
        """Set a status as the service does."""
        given = (tenant, id, status, error, self.fhir, self.matcher, now)
        return await set_status(*given, correlation_id=correlation_id)

    def _identity(self) -> IdentityAdmin:
        conflicts = PostgresIdentityConflicts(self.database)
        return IdentityAdmin(conflicts, self.answers, self.fhir, self.merge, self.notifier, "admin token")

    async def merge(self, *merge: str) -> None:
        """Record a merge."""
        self.merged.append(merge)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The response, checked against the OpenAPI document."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        response = await self.client.request(method, self.base + path, headers=sent, data=data, reactor=reactor)
        content = await response.content()
        self.headers = response.headers
        shown = json.loads(content) if content else None
        check(method, "/admin" + urlsplit(path).path, response.code, shown)
        return response.code, shown

    async def convert(self, limit: int = 50, *, unmapped: Sequence[UnmappedCode] = (), **units: Any) -> list[Claimed]:
        """Convert all due messages."""
        claims = await self.inbox.claim("w", limit)
        for claim in claims:
            mapped = await self.mapper.transform(claim)
            unit = Unit(claim.tenant, entries_of(mapped.bundle), claim.correlation_id, **units)
            await commit([unit], self.fhir, self.matcher, now)
            end = Settlement(claim.id, claim.fence, Status.DELIVERED, map_url=mapped.map_url, transform_ms=1.5)
            await self.inbox.settle([replace(end, unmapped=tuple(unmapped))])
        return list(claims)

    async def end_as(self, status: Status, error: str = "matchbox: no map 17") -> int:
        """Settle one attempt of the oldest due message with this status."""
        (claim,) = await self.inbox.claim("w", 1)
        due = now() if status is Status.FAILED else None
        await self.inbox.settle([Settlement(claim.id, claim.fence, status, 5, error, due)])
        return claim.id

    async def work(self) -> None:
        """Run all jobs to their end."""
        while await self.message_admin.run_batch(2) is not None:
            pass

    async def families(self) -> list[str]:
        """Family names of the Patients."""
        rows = await self.fhir_database.many(
            "SELECT v.body FROM resources r JOIN resource_versions v ON v.rid = r.rid AND v.version_id = r.version_id"
            " WHERE r.resource_type = 'Patient' ORDER BY r.rid"
        )
        return [json.loads(row[0])["name"][0]["family"] for row in rows]


def as_deferred(coroutine: Any) -> defer.Deferred[Any]:
    """A Deferred for `assertFailure`."""
    return defer.Deferred.fromCoroutine(coroutine)


def check(method: str, path: str, status: int, body: Any) -> None:
    """AssertionError when the OpenAPI document does not describe this response."""
    described = _described(path)
    if described is None:
        assert status in (401, 404), f"{path} is not in the document"
        return
    if method.lower() not in described:
        assert status in (401, 405), f"{method} {path}: {status}"
        return
    responses = described[method.lower()]["responses"]
    assert str(status) in responses, f"{method} {path}: {status} is not in the document: {body}"
    response = responses[str(status)]
    if "content" not in response:
        assert body is None, f"{method} {path}: {body}"
        return
    schema = {**response["content"]["application/json"]["schema"], "components": DOCUMENT["components"]}
    problems = [f"{one.json_path}: {one.message}" for one in Draft202012Validator(schema).iter_errors(body)]
    assert not problems, f"{method} {path}: {problems} in {body}"


def _described(path: str) -> dict[str, Any] | None:
    if path in DOCUMENT["paths"]:
        return DOCUMENT["paths"][path]  # type: ignore[no-any-return]
    for known, described in DOCUMENT["paths"].items():
        parts, given = known.split("/"), path.split("/")
        if len(parts) == len(given) and all(one in ("{id}", two) for one, two in zip(parts, given, strict=True)):
            return described  # type: ignore[no-any-return]
    return None
