"""S23 and S24: time of resources that is blocked, and opened again."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.errors import Problem
from tests.corpus import samples
from tests.mapping_maps.events import entries, resources

MESSAGE = """MSH|^~\\&|SCHED|HILL|||20260310||SIU^{event}^SIU_S12|1|P|2.5.1
SCH|{placer}|{filler}||||X|MAINT^Maintenance^L||{duration}||^^^{start}
RGS|1|A
AIL|1|A|CLINIC^4|||{place_start}
AIP|1|A|77^Okafor"""


def message(event: str = "S23", **fields: str) -> str:
    """A block of a room and a person."""
    known = {"placer": "", "filler": "B1", "duration": "", "start": "20260320080000+0100", "place_start": ""}
    return MESSAGE.format(event=event, **(known | fields))


class BlockedTimeTests(TestCase):
    """A slot for each resource."""

    def test_every_event_of_schedules_has_a_map(self) -> None:
        """S12 to S24 and S26; S25 is a query."""
        for number in (*range(12, 25), 26):
            self.assertTrue(samples.library().has_map(f"SIU_S{number}"), number)

    def test_blocked_and_opened(self) -> None:
        """The same slots, by number of the block and resource; no appointment."""
        blocked, opened = (entries(message(event), "Slot") for event in ("S23", "S24"))
        self.assertEqual([one["request"] for one in blocked], [one["request"] for one in opened])
        self.assertEqual({one["resource"]["status"] for one in blocked}, {"busy-unavailable"})
        self.assertEqual({one["resource"]["status"] for one in opened}, {"free"})
        self.assertEqual(len({one["request"]["url"] for one in blocked}), 2)
        self.assertEqual(resources(message(), "Appointment"), [])

    def test_schedules_are_of_their_resources(self) -> None:
        """Each slot is of the schedule of its resource, which exists once."""
        made = {one["fullUrl"]: one for one in entries(message(), "Schedule")}
        actors = {one["fullUrl"]: one["resource"]["resourceType"] for one in entries(message(), "Practitioner")}
        actors |= {one["fullUrl"]: one["resource"]["resourceType"] for one in entries(message(), "Location")}
        kinds = []
        for slot in resources(message(), "Slot"):
            schedule = made[slot["schedule"]["reference"]]
            self.assertIn("ifNoneExist", schedule["request"])
            kinds.append(actors[schedule["resource"]["actor"][0]["reference"]])
        self.assertEqual(sorted(kinds), ["Location", "Practitioner"])

    def test_times(self) -> None:
        """Start of the block, else of a resource; the end by duration; without a start no slot and no success."""
        at = "2026-03-20T{}:00:00+01:00"
        for fields, times in (
            ({}, [(at.format("08"), at.format("08"))] * 2),
            ({"duration": "60"}, [(at.format("08"), at.format("09"))] * 2),
            ({"start": "", "place_start": "20260320100000+0100"}, [(at.format("10"), at.format("10"))] * 2),
        ):
            with self.subTest(fields=fields):
                found = [(one["start"], one["end"]) for one in resources(message(**fields), "Slot")]
                self.assertEqual(found, times)
        problem = self.assertRaises(Problem, resources, message(start=""), "Slot")
        self.assertIn("stores nothing", problem.text)
