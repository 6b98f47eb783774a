"""What a message says is in a resource, in the ledger, or among the unmapped codes: each component of each field."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from tests.corpus import samples
from tests.mapping_maps import markers
from tests.mapping_maps.markers import Case, cases, lost

KNOWN = samples.HERE.parent / "mapping_maps" / "lost.txt"


def known() -> set[str]:
    """The open losses."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def chosen(*, every: bool) -> list[Case]:
    """The cases of each segment in each kind of message once; else in the first sample that has it."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for name in samples.names():
        message = samples.message(name)
        for case in cases(name) if samples.library().has_map(message.message_type) else ():
            key = (case.segment, str(case.component), message.message_type[:3] if every else "")
            if key not in seen:
                seen.add(key)
                found.append(case)
    return found


class MarkerTests(TestCase):
    def test_each_segment(self) -> None:
        """In the first sample that has it; test_markers_campaign has every kind of message."""
        found = {path for case in chosen(every=False) for path in lost(case)}
        self.assertEqual(sorted(found - known()), [])

    def test_alternate_codings(self) -> None:
        """Of every coded field: the second and third code, with text, system and version."""
        alternate = {f".{number}" for number in (4, 5, 6, 8, 10, 11, 12, 13)}
        fields = [path for path in known() if path[path.find(".") :] in alternate]
        self.assertEqual([one for one in fields if markers.is_coded(one)], [])
