"""The fields of a message with their HL7 names, and what a message did."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.console.content.effects import groups, timeline
from ipf.console.content.fields import MOST, fields_view, name_of

MESSAGE = (
    "MSH|^~\\&|EHR|WARD|IPF||20260101||ADT^A01^ADT_A01|7|P|2.5.1\r"
    "PID|1||4711^^^HOSP&1.2.3&ISO^MR~99^^^OTHER||M\\T\\S^Anna||19800101\r"
    "OBX|1|CE|1^x||A^Apple\rOBX|2|NM|2^y||5\rZZZ|own^part\r"
)


def parts(path: str, number: int = 0) -> list[tuple[str, str, str]]:
    """(path, name, text) of the parts of a field."""
    segments, _ = fields_view(MESSAGE)
    of = [one for one in segments if one.name == path.partition("-")[0] and one.number in (0, number)]
    field = next(field for one in of for field in one.fields if field.path == path)
    return [(one.path, one.name, one.text) for repetition in field.repetitions for one in repetition if one.text]


class FieldsTests(TestCase):
    def test_names(self) -> None:
        for group, number, expected in (
            ("PID", 5, "Patient Name"), ("PID", 3, "Patient Identifier List"), ("OBX", 5, "Observation Value"),
            ("CX", 4, "Assigning Authority"), ("PID", 7, "Date/Time of Birth"), ("PID", 6, "Mother's Maiden Name"),
            ("PID", 0, ""), ("PID", 500, ""), ("ZZZ", 1, ""),
        ):  # fmt: skip
            self.assertEqual(name_of(group, number).text, expected, (group, number))

    def test_components(self) -> None:
        self.assertEqual(parts("PID-3"), [
            ("PID-3.1", "ID Number", "4711"), ("PID-3.4.1", "Assigning Authority / Namespace ID", "HOSP"),
            ("PID-3.4.2", "Assigning Authority / Universal ID", "1.2.3"),
            ("PID-3.4.3", "Assigning Authority / Universal ID Type", "ISO"),
            ("PID-3.5", "Identifier Type Code", "MR"), ("PID-3.1", "ID Number", "99"),
            ("PID-3.4", "Assigning Authority", "OTHER"),
        ])  # fmt: skip
        self.assertEqual(parts("PID-5"), [("PID-5.1", "Family Name", "M&S"), ("PID-5.2", "Given Name", "Anna")])
        self.assertEqual(parts("MSH-2"), [("MSH-2", "", "^~\\&")])
        self.assertEqual(parts("OBX-5", 1), [("OBX-5.1", "Identifier", "A"), ("OBX-5.2", "Text", "Apple")])
        self.assertEqual(parts("OBX-5", 2), [("OBX-5", "", "5")])
        self.assertEqual(parts("ZZZ-1"), [("ZZZ-1.1", "", "own"), ("ZZZ-1.2", "", "part")])

    def test_nothing_is_left_out(self) -> None:
        """The parts with their separators are the field as it was sent."""
        segments, _ = fields_view(MESSAGE)
        lines = MESSAGE.strip().split("\r")
        for segment, line in zip(segments, lines, strict=True):
            for field in segment.fields:
                text = "~".join(
                    "".join(one.before + (one.raw or one.text) for one in parts) for parts in field.repetitions
                )
                self.assertIn(text, [*line.split("|"), "|"])

    def test_long_messages_have_pages(self) -> None:
        long = MESSAGE + "NTE|1||x\r" * 2 * MOST
        segments, total = fields_view(long, MOST)
        self.assertEqual((len(segments), total, segments[0].number), (MOST, 5 + 2 * MOST, MOST - 4))
        self.assertEqual(fields_view(long, 10_000)[0], ())

    def test_texts_that_are_no_message(self) -> None:
        for text in ("", "x", "MSH", "MSH|", "PID|1", "\r\n\r", "<script>alert(1)</script>"):
            fields_view(text)


def effects(**changed: Any) -> dict[str, Any]:
    """The answer of the engine about a message that wrote two resources and set off one event."""
    version = {"version_id": "1", "action": "created", "written_at": "2026-01-01T00:00:02Z"}
    return {
        "effects_status": "delivered",
        "fhir_resources_created": [{"resource_type": "Patient", "id": "a", **version},
                                   {"resource_type": "Encounter", "id": "b", **version}],
        "subscriptions_matched": [
            {"id": "Subscription/s", "endpoint": "https://x", "criteria": "Patient?", "event_number": 4,
             "matched_resource": "Patient/a", "delivered": False},
            {"id": "Subscription/t", "endpoint": None, "criteria": "Group?", "event_number": 1,
             "matched_resource": "Group/g", "delivered": True},
        ],
        "notifications_fired": [
            {"subscription_id": "Subscription/s", "event_number": 4, "attempted_at": "2026-01-01T00:00:05Z",
             "outcome": "failure", "http_status": 500, "duration_ms": 3, "error": "HTTP 500"},
        ],
        **changed,
    }  # fmt: skip


class EffectsTests(TestCase):
    message = {
        "received_at": "2026-01-01T00:00:00Z", "source_system": "EHR", "status": "FAILED", "attempt_count": 2,
        "last_attempt_at": "2026-01-01T00:00:01Z", "last_error": "no map", "delivered_at": None,
        "next_attempt_at": "2026-01-01T00:01:00Z",
    }  # fmt: skip

    def test_what_is_to_come(self) -> None:
        """A message that cannot succeed is not shown as one that waits for its turn."""
        waits = {**self.message, "status": "FAILED", "next_attempt_at": "2026-01-01T00:00:09Z"}
        for is_permanent, kind, tone in ((False, "next", "warn"), (True, "next_in_vain", "bad")):
            last = timeline({**waits, "permanent": is_permanent}, effects())[-1]
            self.assertEqual((last.kind, last.tone), (kind, tone))

    def test_a_message_that_was_passed_through_says_so(self) -> None:
        passed = {**self.message, "delivered_at": "2026-01-01T00:00:09Z", "passed_through": "IPF_PASSTHROUGH_TYPES"}
        (moment,) = [one for one in timeline(passed, effects()) if one.at == passed["delivered_at"]]
        self.assertEqual((moment.kind, moment.detail), ("passed_through", "IPF_PASSTHROUGH_TYPES"))

    def test_the_timeline_is_in_order(self) -> None:
        found = timeline(self.message, effects())
        self.assertEqual([(one.kind, one.count, one.tone) for one in found], [
            ("received", 1, "info"), ("failed", 2, "bad"), ("written", 2, "good"), ("not_notified", 1, "bad"),
            ("next", 1, "warn"),
        ])  # fmt: skip

    def test_the_tree(self) -> None:
        tree, others = groups(effects())
        self.assertEqual([(one.type, one.is_open) for one in tree], [("Patient", True), ("Encounter", True)])
        (event,) = tree[0].resources[0].events
        self.assertEqual((event.subscription, event.state, len(event.attempts)), ("Subscription/s", "failing", 1))
        self.assertEqual([(one.subscription, one.state) for one in others], [("Subscription/t", "delivered")])

    def test_many_resources_are_folded(self) -> None:
        one = effects()["fhir_resources_created"][1]
        many = [{**one, "id": str(number)} for number in range(50)]
        tree, _ = groups(effects(fhir_resources_created=many))
        self.assertEqual([(one.type, len(one.resources), one.is_open) for one in tree], [("Encounter", 50, False)])


class JsonTests(TestCase):
    """What was fetched from a polled source."""

    def test_elements_are_fields(self) -> None:
        (segment,), total = fields_view('{"resourceType":"Patient","id":"p1","name":[{"family":"A|B^C"}]}')
        self.assertEqual((segment.name, segment.number, total), ("Patient", 0, 1))
        shown = [(one.path, one.repetitions[0][0].text) for one in segment.fields]
        self.assertEqual(shown, [("id", "p1"), ("name[0].family", "A|B^C")])

    def test_what_is_cut_off(self) -> None:
        self.assertEqual(fields_view('{"id":'), ((), 0))
