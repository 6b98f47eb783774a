"""`bin/test`: what it selects, what it reports of tests that fail, block, die or start processes, and its last line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
from twisted.internet import threads
from twisted.trial.unittest import SynchronousTestCase, TestCase

from tests.runner import command, groups, leftovers, plan, pool, report, shared
from tests.runner.plan import ROOT, Module, Unit
from tests.runner.pool import Ended

SAMPLE = """
import os, subprocess, sys
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

class Sample(TestCase):
    def test_a_passes(self):
        print("printed")

    def test_b_fails(self):
        self.assertEqual(1, 2, "one is not two")

    def test_c_is_skipped(self):
        pass
    test_c_is_skipped.skip = "for a reason"

    def test_d_starts_two_processes(self):
        for _ in range(2):
            subprocess.run([sys.executable, "-c", ""])

    def test_e_waits_for_ever(self):
        return Deferred()
    test_e_waits_for_ever.timeout = 0.1

    def test_f_logs_an_error(self):
        from twisted.logger import Logger
        try:
            raise ValueError("logged")
        except ValueError:
            Logger().failure("bad")

    def test_g_leaves_a_deferred_that_failed(self):
        lost = Deferred()
        lost.itself = lost  # only a collection finds it
        lost.errback(KeyError("lost"))
"""
DIES = """
import os
from twisted.trial.unittest import TestCase

class Dies(TestCase):
    def test_it_ends_the_process(self):
        print("last words", flush=True)
        if os.fork() == 0:
            while True:  # a child that keeps the pipe of the worker open
                signal.pause()
        os._exit(3)

    def test_never_reached(self):
        pass
"""
MODULES = [
    Module("tests.a.test_one", "", ""),
    Module("tests.a.test_two", "kills", "x"),
    Module("tests.b.test_z", "", "x"),
]


class PoolTests(TestCase):
    async def run_modules(self, *names: str, **sources: str) -> dict[str, Ended]:
        """Run modules with these sources in one worker; the results by the last part of their ids."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        for name, source in sources.items():
            (folder / f"{name}.py").write_text(source)
        before = os.environ.get("PYTHONPATH", str(ROOT))
        os.environ["PYTHONPATH"] = f"{folder}:{before}"
        self.addCleanup(os.environ.__setitem__, "PYTHONPATH", before)
        ended: list[Ended] = []
        scratch = folder / "scratch"
        scratch.mkdir()
        await threads.deferToThread(pool.run, [Unit(names, 1.0)], 1, scratch, ended.append)
        return {one.id.rpartition(".")[2]: one for one in ended}

    async def test_each_outcome_is_reported(self) -> None:
        ended = await self.run_modules("sample", sample=SAMPLE)
        outcomes = [one.outcome for _, one in sorted(ended.items())]
        self.assertEqual(outcomes, ["passed", "failed", "skipped", "passed", "failed", "failed", "failed"])
        self.assertIn("one is not two", ended["test_b_fails"].detail)
        self.assertEqual(ended["test_c_is_skipped"].detail, "for a reason")
        self.assertEqual((ended["test_a_passes"].starts, ended["test_d_starts_two_processes"].starts), (0, 2))
        self.assertIn("still running at 0.1 secs", ended["test_e_waits_for_ever"].detail)
        self.assertIn("Thread ", ended["test_e_waits_for_ever"].detail)
        self.assertIn("ValueError: logged", ended["test_f_logs_an_error"].detail)
        self.assertIn("KeyError: 'lost'", ended["test_g_leaves_a_deferred_that_failed"].detail)

    async def test_a_worker_that_dies_fails_its_test_and_the_next_module_runs(self) -> None:
        ended = await self.run_modules("dies", "sample", dies=DIES, sample=SAMPLE)
        died = ended["test_it_ends_the_process"]
        self.assertEqual(died.outcome, "failed")
        self.assertIn("last words", died.detail)
        self.assertIn("ended with 3", died.detail)
        self.assertEqual(ended["test_a_passes"].outcome, "passed")

    async def test_a_module_that_cannot_be_imported_fails(self) -> None:
        ended = await self.run_modules("broken", "nowhere", broken="import no_such_module")
        self.assertEqual([one.outcome for one in ended.values()], ["failed", "failed"])
        self.assertIn("no_such_module", ended["broken"].detail)


class LeftoverTests(SynchronousTestCase):
    def test_what_a_run_left_behind_is_ended(self) -> None:
        command = [sys.executable, "-c", "import signal; print('here', flush=True); signal.pause()"]
        for folder, is_ended in (("a-run", True), ("another-run", False)):
            environment = os.environ | {shared.VARIABLE: folder}
            child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
            with child:
                assert child.stdout is not None
                child.stdout.readline()
                self.assertEqual(len(leftovers.end("a-run")), int(is_ended))
                child.kill()

    def test_the_folder_of_a_run_that_was_killed_is_swept_away_and_one_in_use_stays(self) -> None:
        parent = Path(self.mktemp())
        parent.mkdir()
        (parent / "ipf-tests-killed").mkdir()
        (parent / "ipf-tests-killed/run.lock").touch()
        with leftovers.folder_of_a_run(parent) as first:
            with leftovers.folder_of_a_run(parent) as second:
                self.assertEqual(sorted(parent.iterdir()), sorted([first, second]))
            self.assertEqual(list(parent.iterdir()), [first])


class PlanTests(SynchronousTestCase):
    def test_names_select_packages_modules_and_tests(self) -> None:
        for name, found in [
            ("tests.a", ["tests.a.test_one", "tests.a.test_two"]),
            ("tests.b.test_z", ["tests.b.test_z"]),
            ("tests.b.test_z.Case.test_x", ["tests.b.test_z.Case.test_x"]),
            ("tests.c", []),
        ]:
            self.assertEqual([one.name for one in plan.named(MODULES, name)], found)

    def test_groups_run_with_all_or_by_name(self) -> None:
        for names, everything, shard, count in [
            ([], False, None, 2), ([], True, None, 3), ([], False, (1, 2), 3), (["tests.a.test_two"], False, None, 1),
        ]:  # fmt: skip
            self.assertEqual(len(command.choose(MODULES, names, everything, shard)), count)
        self.assertRaises(click.UsageError, command.choose, MODULES, ["tests.nothing"], False, None)

    def test_a_family_is_one_unit_and_the_longest_unit_is_first(self) -> None:
        units = plan.units(MODULES, {"tests.a.test_one": 9.0, "tests.a.test_two": 3.0, "tests.b.test_z": 4.0})
        self.assertEqual(units, [Unit(("tests.a.test_one",), 9.0), Unit(("tests.a.test_two", "tests.b.test_z"), 7.0)])

    def test_shards_hold_every_unit_once_and_are_about_equal(self) -> None:
        units = [Unit((str(number),), 100.0 / (number + 1)) for number in range(50)]
        for count in (1, 2, 6, 7):
            parts = [plan.shard(units, number, count) for number in range(1, count + 1)]
            self.assertEqual(
                sorted(unit.names for part in parts for unit in part), sorted(unit.names for unit in units)
            )
            loads = [sum(unit.seconds for unit in part) for part in parts]
            self.assertLessEqual(max(loads) - min(loads), units[0].seconds)

    def test_marks_of_the_modules_are_read(self) -> None:
        folder = Path(self.mktemp())
        (folder / "tests/x").mkdir(parents=True)
        (folder / "tests/x/test_y.py").write_text('"""Doc."""\nGROUP = "kills"\nFAMILY = "some-engine"\n')
        self.assertEqual(plan.modules(folder), [Module("tests.x.test_y", "kills", "some-engine")])

    def test_times_that_are_kept_are_those_of_modules_that_are_there(self) -> None:
        path = Path(self.mktemp())
        path.write_text(json.dumps({"tests.gone": 4.0, "tests.test_docs": 7.0}))
        plan.keep({"tests.test_runner": 1.26}, path)
        self.assertEqual(plan.measured(path), {"tests.test_docs": 7.0, "tests.test_runner": 1.3})


class ReportTests(SynchronousTestCase):
    ENDED = (
        Ended("tests.a.test_one.X.test_p", "tests.a.test_one", "passed", 2.0, 1, ""),
        Ended("tests.b.test_z.X.test_q", "tests.b.test_z", "failed", 3.0, 0, 'Traceback\n  File "x"\nE: why\n  at'),
    )

    def test_the_end_says_where_the_time_went_and_what_failed(self) -> None:
        text = "\n".join(report.where_time_went(self.ENDED))
        self.assertTrue(re.search(r"3\.0 +1 +0  tests\.b\n +2\.0 +1 +1  tests\.a\n +5\.0 +2 +1  all", text), text)
        self.assertEqual(report.failures(self.ENDED), ["failed: tests.b.test_z.X.test_q: E: why"])
        self.assertEqual(report.totals(self.ENDED), "1 passed, 1 failed, 0 skipped")

    def test_a_run_over_its_budget_says_so(self) -> None:
        for minutes, names, everything, lines in [(9.5, [], False, 0), (9.7, [], False, 1), (47, [], True, 0),
                                                  (49, [], True, 1), (99, ["tests.hl7"], False, 0)]:  # fmt: skip
            self.assertEqual(len(command.over_budget(minutes, names, everything, None)), lines)

    def test_a_group_that_cannot_run_is_one_line_with_its_packages(self) -> None:
        nothing = groups.Need("zz-server", ("zz", "zz-data"), lambda: False)
        self.patch(groups, "GROUPS", {"zz": (nothing, groups.HAPROXY), "plain": ()})
        lines = groups.unavailable(["zz", "plain"])
        self.assertEqual(len(lines), 1)
        self.assertTrue(lines[0].startswith("zz: zz-server") and "apt-get install zz zz-data" in lines[0], lines)


class CommandTests(SynchronousTestCase):
    def test_the_last_line_and_the_exit_status(self) -> None:
        base = [sys.executable, "-m", "tests.runner"]
        done = subprocess.run([*base, "tests.hl7.test_queries"], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout.splitlines()[-1], r"^[1-9]\d* passed, 0 failed, 0 skipped$")
        unknown = subprocess.run([*base, "tests.none"], cwd=ROOT, capture_output=True, text=True, check=False)
        self.assertEqual((unknown.returncode, "there is no test tests.none" in unknown.stderr), (2, True))
