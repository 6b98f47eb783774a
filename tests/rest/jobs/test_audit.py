"""What jobs write has audit records, in the transaction of what they write and with the caller who asked."""

from __future__ import annotations

from ipf.ports import Caller
from ipf.ports.audit.records import Audit
from ipf.rest.audit.recorder import observer
from ipf.rest.background import job_runner
from ipf.security.audit.draft import drafter
from ipf.security.audit.rules import AuditRules, id_suffixes
from tests.rest.imports.test_import import NDJSON, lines
from tests.rest.jobs.test_async import bundle
from tests.rest.world import OnMemory, patient

ADA = Caller("ada", "app", ("system/*.cruds",), issuer="https://idp")


class JobAuditTests(OnMemory):
    """Records by interaction."""

    async def perform(self) -> tuple[list[Audit], list[Audit]]:
        """Run all jobs; the records that were committed with what they wrote, and the others."""
        rules, new_id_suffix, noted = AuditRules(), id_suffixes(), list[Audit]()
        observe = observer(rules, noted.append, lambda: 1, new_id_suffix)
        while await job_runner(self.world.repository, observe, drafter(rules, new_id_suffix)).step():
            pass
        committed = list(self.world.store.audits)
        self.world.store.audits.clear()
        return committed, noted

    async def test_a_transaction_and_an_import(self) -> None:
        self.world.caller = ADA
        transaction = bundle("transaction", ("PUT", "Patient/a", patient("1", id="a")))
        upload = lines(patient("2", id="b"), b"{", patient("3", id="c"))
        for url, body, kind, interaction, expected in (
            ("", transaction, "application/fhir+json", "transaction", {"Patient/a"}),
            ("$import", upload, NDJSON, "operation", {"Patient/b", "Patient/c"}),
        ):
            await self.world.send("POST", url, body, prefer="respond-async", content_type=kind)
            committed, others = await self.perform()
            entities = {one.partition("/_history")[0] for record in committed for one in record.entities}
            self.assertEqual(entities, expected, url)
            self.assertEqual({record.context.interaction for record in committed}, {interaction}, url)
            self.assertEqual({record.context.agent for record in committed}, {"ada"}, url)
            self.assertEqual(others, [], url)

    async def test_a_search_that_fails(self) -> None:
        self.world.caller = ADA
        await self.world.send("GET", "Patient?birthdate=yesterday", prefer="respond-async")
        committed, others = await self.perform()
        self.assertEqual((committed, [record.context.interaction for record in others]), ([], ["search"]))
