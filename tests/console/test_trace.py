"""The trace of a conversion side by side: what of the message is not in the result, where it stands."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import TestCase

from ipf.console.content.trace import TraceView, trace_view
from ipf.hl7.message import Message
from ipf.mapping.library.service import result_json
from tests.corpus import samples

MESSAGE = """MSH|^~\\&|LAB|X|||20240101||ORU^R01^ORU_R01|1|P|2.5.1
PID|1||1^^^N^MR||A^B||||||1 Main^^Town~2 Side^^Town
OBR|1||F1|GLU^Glucose^L
OBX|1|NM|718-7^Hb^LN||12|g/dL^gram^UCUM^x|||||F
OBX|2|NM|2345-7^Glucose^LN||7|||||||F
ZPI|1|own
"""


def traced(raw: str, unread: list[dict[str, Any]]) -> TraceView:
    """The view of a message of which this is not read."""
    return trace_view(raw, {"steps": [], "result": {}, "unread": unread})


def row(path: str, segment: str | None = None, kind: str = "unread") -> dict[str, Any]:
    """A row of `unread`."""
    return {"path": path, "segment": segment or path.partition("-")[0], "kind": kind, "reason": None}


class TraceTests(TestCase):
    def test_a_component_stands_below_its_field(self) -> None:
        """Of the segment that has it; the field itself is read."""
        view = traced(MESSAGE, [row("OBX-6.4", "OBX[1]"), row("PID-11[2]", kind="declared"), row("OBX-5", "OBX[2]")])
        fields = {one.place: one for segment in view.segments for one in segment.fields}
        self.assertEqual([(one.path, one.kind) for one in fields["OBX[1]-6"].parts], [("OBX-6.4", "unread")])
        self.assertEqual(
            (fields["OBX[1]-6"].kind, fields["OBX[2]-5"].kind, fields["OBX[1]-5"].kind), ("", "unread", "")
        )
        self.assertEqual([(one.path, one.kind) for one in fields["PID-11"].parts], [("PID-11[2]", "declared")])

    def test_a_whole_segment(self) -> None:
        """Each of its fields; only of the one that is meant."""
        view = traced(MESSAGE, [row("ZPI"), row("OBX", "OBX[2]")])
        kinds = {one.place: one.kind for segment in view.segments for one in segment.fields}
        self.assertEqual({place for place, kind in kinds.items() if kind}, {
            "ZPI-1", "ZPI-2", *(f"OBX[2]-{number}" for number in (1, 2, 3, 5, 12)),
        })  # fmt: skip

    def test_each_row_of_the_corpus_is_shown(self) -> None:
        """A row of a field, a component or a segment has a place; what is dropped is of the result."""
        for path in sorted(samples.HERE.glob("*.hl7"))[::16]:
            raw = path.read_text(encoding="utf-8").strip()
            result = result_json(samples.library().run(Message.parse(raw.encode()), trace=True, checked=False))
            shown = 0
            for segment in trace_view(raw, result).segments:
                shown += sum(bool(one.kind) + len(one.parts) for one in segment.fields)
            rows = [one for one in result["unread"] if one["segment"]]
            self.assertGreaterEqual(shown, len(rows), path.name)
