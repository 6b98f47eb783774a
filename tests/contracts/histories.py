"""The contract of `ports.Histories`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ipf.ports.fhir.history import Histories, HistoryCursor
from ipf.ports.queries.history_filter import HistoryFilter
from tests.contracts.resources import T0, Writing, change, patient


class HistoriesContract(Writing):
    """Tests for a subclass that sets `self.store` and `self.histories` in `setUp`."""

    histories: Histories

    async def _versions(self) -> None:
        """Patients p (three versions, the last a deletion) and q, a Group between, and another tenant's patient."""
        p, q, g, other = [await self.store.new_rid() for _ in range(4)]
        await self.write(change(p, patient("p"), at=T0))
        await self.write(change(g, {"resourceType": "Group", "id": "g"}, at=T0 + timedelta(seconds=1)))
        at = T0 + timedelta(seconds=2)
        await self.write(change(q, patient("q"), at=at), change(p, patient("p", active=True), 2, patient("p"), at=at))
        await self.write(
            change(p, patient("p"), 3, patient("p", active=True), deleted=True, at=T0 + timedelta(seconds=3))
        )
        await self.write(change(other, patient("o"), tenant="north", at=T0 + timedelta(seconds=4)))

    async def seen(self, resource_type: str | None, **wanted: Any) -> list[tuple[str, int]]:
        """Ids and version numbers of a page."""
        found = await self.histories.page("default", resource_type, 50, HistoryFilter(**wanted))
        return [(version.id, version.version_id) for version in found]

    async def test_order_and_bounds(self) -> None:
        """Newest first; equal times by resource; an inclusive lower bound."""
        await self._versions()
        self.assertEqual(await self.seen(None), [("p", 3), ("q", 1), ("p", 2), ("g", 1), ("p", 1)])
        self.assertEqual(await self.seen("Patient"), [("p", 3), ("q", 1), ("p", 2), ("p", 1)])
        self.assertEqual(await self.seen("Group"), [("g", 1)])
        self.assertEqual(await self.seen("Location"), [])
        self.assertEqual(await self.seen(None, since=T0 + timedelta(seconds=2)), [("p", 3), ("q", 1), ("p", 2)])
        self.assertEqual(await self.histories.page("nobody", None, 9), [])

    async def test_pages(self) -> None:
        """Each page continues after the one before, also during concurrent writes."""
        await self._versions()
        found, before = [], None
        for number in range(5):
            (version,) = await self.histories.page("default", None, 1, start=before)
            found.append((version.id, version.version_id))
            before = HistoryCursor.of(version)
            at = T0 + timedelta(seconds=10 + number)
            await self.write(change(await self.store.new_rid(), patient(f"new{number}"), at=at))
        self.assertEqual(found, [("p", 3), ("q", 1), ("p", 2), ("g", 1), ("p", 1)])
        self.assertEqual(await self.histories.page("default", None, 1, start=before), [])
        back = await self.histories.page("default", None, 2, HistoryFilter(oldest_first=True), before)
        self.assertEqual([(version.id, version.version_id) for version in back], [("g", 1), ("p", 2)])

    async def test_order_and_time(self) -> None:
        """Oldest first; the versions that were the newest of their resource at a time."""
        await self._versions()
        upwards = [("p", 1), ("g", 1), ("p", 2), ("q", 1), ("p", 3)]
        self.assertEqual(await self.seen(None, oldest_first=True), upwards)
        self.assertEqual(await self.seen("Patient", oldest_first=True), [one for one in upwards if one[0] != "g"])
        for first, last, expected in (
            (-2, -1, []), (0, 1, [("p", 1)]), (1, 2, [("g", 1), ("p", 1)]), (2, 3, [("q", 1), ("p", 2), ("g", 1)]),
            (1, 3, [("q", 1), ("p", 2), ("g", 1), ("p", 1)]), (9, 10, [("p", 3), ("q", 1), ("g", 1)]),
        ):  # fmt: skip
            at = T0 + timedelta(seconds=first), T0 + timedelta(seconds=last)
            self.assertEqual(await self.seen(None, at=at), expected, (first, last))
            self.assertEqual(await self.seen(None, at=at, oldest_first=True), expected[::-1])
            of_p = [number for id_, number in expected if id_ == "p"]
            for oldest_first in (False, True):
                wanted = HistoryFilter(at=at, oldest_first=oldest_first)
                found = await self.store.history("default", "Patient", "p", 9, None, wanted)
                self.assertEqual([one.version_id for one in found], sorted(of_p, reverse=not oldest_first))
        for start, oldest_first, versions in ((1, True, [2, 3]), (3, True, []), (3, False, [2, 1]), (1, False, [])):
            wanted = HistoryFilter(oldest_first=oldest_first)
            found = await self.store.history("default", "Patient", "p", 9, start, wanted)
            self.assertEqual([one.version_id for one in found], versions)
