"""`ipfctl terminology`: a release into PostgreSQL, by the module that the command runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from ipf.app.terminology import _arguments, _work
from ipf.cli.terminology import KINDS
from ipf.errors import Problem
from ipf.fhir.releases import READERS
from ipf.store.terminology.systems import PostgresCodeSystems
from tests import postgres

URL = "http://x.test/cs"


def asked(*words: str) -> argparse.Namespace:
    """The arguments of the module."""
    return _arguments().parse_args(words)


class ImportTest(TestCase):
    """On an empty database."""

    def test_the_command_line_has_every_format(self) -> None:
        self.assertEqual(KINDS, tuple(READERS))

    async def test_import_list_remove(self) -> None:
        """A file that cannot be read leaves the earlier import."""
        database = await postgres.database(self, "fhir")
        systems = PostgresCodeSystems(database)
        path = Path(self.mktemp()).with_suffix(".ndjson")
        rows = [{"resourceType": "CodeSystem", "url": URL, "name": "X"}, {"code": "a"}, {"code": "b"}]
        path.write_text("\n".join(map(json.dumps, rows)))
        importing = asked("import", "ndjson", str(path), "--version=7")
        self.assertTrue(await deferToThread(_work, database.url, importing))
        path.write_text(path.read_text() + "\n{")
        with self.assertRaises(Problem) as refused:
            await deferToThread(_work, database.url, importing)
        self.assertIn(f"{path.name}:4: ", refused.exception.text)
        (system,) = await systems.imported()
        self.assertEqual((system.url, system.version, system.concepts), (URL, "7", 2))
        self.assertTrue(await deferToThread(_work, database.url, asked("list")))
        self.assertFalse(await deferToThread(_work, database.url, asked("remove", URL)))
        self.assertTrue(await deferToThread(_work, database.url, asked("remove", URL, "7")))
        self.assertEqual(list(await systems.imported()), [])
