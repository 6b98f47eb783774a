"""Filters of the templates."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from ipf.console.html.rendering import breakable, indented_text, place, shortened, sparkline
from ipf.fhir.model.json import loads


class PlaceTests(TestCase):
    def test_pages_of_references(self) -> None:
        for reference, url in [
            ("Patient/7", "/browse/Patient/7"), ("Patient/7/_history/2", "/browse/Patient/7"),
            ("messages/7", "/messages/7"), ("identity-conflicts/3", "/conflicts/3"), ("mapping/reload", ""),
            ("subscriptions/a-b", "/subscriptions/a-b"), ("messages/replay", ""),
            ("javascript:alert(1)", ""), ("//x/y", ""), ("Patient/../../x", ""), ("", ""),
        ]:  # fmt: skip
            self.assertEqual(place(reference), url, reference)

    def test_short_references(self) -> None:
        for reference, shown in [
            ("Patient/7", "Patient/7"), ("Patient/01a208d2-c8bb-7ba6/_history/1", "Patient/01a208d2…"), ("x", "x/"),
        ]:  # fmt: skip
            self.assertEqual(shortened(reference), shown)


class PathTests(TestCase):
    def test_a_path_breaks_behind_its_dots_alone(self) -> None:
        for path, parts in [
            ("Patient.identifier[0].assigner.display", ["Patient.", "identifier[0].", "assigner.", "display"]),
            ("PID-5.1", ["PID-5.", "1"]), ("MedicationAdministration", ["MedicationAdministration"]), ("", []),
            ("http://x/y|1", ["http://", "x/", "y|", "1"]), ("<b>.x", ["&lt;b&gt;.", "x"]),
        ]:  # fmt: skip
            self.assertEqual(str(breakable(path)), "<wbr>".join(parts))


class SparklineTests(TestCase):
    def test_it_stays_in_its_box(self) -> None:
        for counts in ([], [0], [5], [0, 1, 2], [10**9] * 60, [0] * 60):
            drawn = str(sparkline(counts, 100, 20))
            points = [
                tuple(map(float, one.split(","))) for one in drawn.partition('points="')[2].partition('"')[0].split()
            ]
            self.assertEqual(len(points), len(counts))
            self.assertTrue(all(0 <= x <= 100 and 0 <= y <= 20 for x, y in points), counts)


class IndentedTests(TestCase):
    def test_decimals_stay_as_they_were_sent(self) -> None:
        self.assertEqual(indented_text(loads(b'{"value":1.10}')).split(), ["{", '"value":', "1.10", "}"])
