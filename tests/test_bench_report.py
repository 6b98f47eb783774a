"""The JSON file of a bench run has every printed row, under its bench, with what is needed to compare runs."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import TestCase

from bench import report


class ReportTests(TestCase):
    def test_rows_by_bench(self) -> None:
        run = report.Report()
        self.patch(report, "_run", run)
        report.line("before any heading", "1/s")
        report.heading("read", "Reads.\n\nMore.")
        report.line("read by id", "4,513/s", "bare 11,539/s")
        report.heading("write", "Writes.")
        report.line("create", "1,667/s")
        found = json.loads(run.write(Path(self.mktemp())).read_text())
        self.assertEqual(found["benches"]["read"], [
            {"what": "read by id", "figure": "4,513/s", "reference": "bare 11,539/s"},
        ])  # fmt: skip
        self.assertEqual([row["what"] for row in found["benches"]["write"]], ["create"])
        self.assertEqual(set(found), {
            "host", "cores", "python", "version", "commit", "began_at", "load", "benches",
        })  # fmt: skip
        self.assertGreaterEqual(found["cores"], 1)
