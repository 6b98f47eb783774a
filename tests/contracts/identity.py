"""The contract of `ports.identity.IdentityAnswers`, and of reading them in a write transaction."""

from __future__ import annotations

from dataclasses import replace

from ipf.errors import Category, Problem
from ipf.ports import FhirStore, Lookup
from ipf.ports.identity import AnswerKind, IdentityAnswer, IdentityAnswers, IdentityKey
from ipf.ports.messages.inbox import EVERY_TENANT
from tests.contracts.resources import Writing

KEY = IdentityKey("urn:ipf:authority:H", "MR", "100").text
FIRST = IdentityAnswer("Patient", KEY, "p1", AnswerKind.TAKE, "ada", "same person")


class IdentityAnswersContract(Writing):
    """Tests for a subclass that sets `self.store` and `self.identity_answers` in `setUp`."""

    store: FhirStore
    identity_answers: IdentityAnswers

    async def test_one_answer_a_key(self) -> None:
        """The last answer counts; it is a new one; other types, keys and tenants have their own."""
        first = await self.identity_answers.record(FIRST)
        again = await self.identity_answers.record(replace(FIRST, resource_id="p2", kind=AnswerKind.APART))
        self.assertGreater(again.id, first.id)
        self.assertIsNotNone(again.answered_at)
        others = [replace(FIRST, resource_type="Encounter"), replace(FIRST, key=KEY + "1"), replace(FIRST, tenant="b")]
        stored = [again, *[await self.identity_answers.record(one) for one in others]]
        found = await self.read(*((one.tenant, one.resource_type, one.key) for one in stored))
        self.assertEqual(found, stored)
        self.assertEqual(await self.read(("default", "Patient", "x"), ("c", "Patient", KEY)), [None, None])

    async def test_pages(self) -> None:
        """Newest first, by tenant or of all, with the number of all."""
        stored = [await self.identity_answers.record(replace(FIRST, key=str(number))) for number in range(3)]
        stored.append(await self.identity_answers.record(replace(FIRST, tenant="b")))
        newest = stored[::-1]
        for tenant, limit, offset, expected in (
            ("default", 2, 0, (3, newest[1:3])),
            ("default", 2, 2, (3, newest[3:])),
            ("default", 2, 4, (3, [])),
            (EVERY_TENANT, 10, 0, (4, newest)),
            ("b", 10, 0, (1, newest[:1])),
            ("c", 10, 0, (0, [])),
        ):
            count, found = await self.identity_answers.answers(tenant, limit, offset)
            self.assertEqual((count, list(found)), expected, (tenant, limit, offset))

    async def test_revoke(self) -> None:
        """It is gone; an unknown one, or one of another tenant, is reported."""
        stored = await self.identity_answers.record(FIRST)
        for tenant, number in (("b", stored.id), ("default", stored.id + 1)):
            with self.assertRaises(Problem) as refused:
                await self.identity_answers.revoke(tenant, number)
            self.assertIs(refused.exception.category, Category.NOT_FOUND)
        await self.identity_answers.revoke("default", stored.id)
        self.assertEqual(await self.read(("default", "Patient", KEY)), [None])

    async def read(self, *wanted: tuple[str, str, str]) -> list[IdentityAnswer | None]:
        """The answers as a write transaction sees them."""
        async with self.store.transaction() as transaction:
            await transaction.look_up(Lookup())
            return list(await transaction.identity_answers(wanted))
