"""`IPF_PLACEMENTS_FILE`: what is read, and each mistake with its place."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.config.environment import read
from ipf.config.placements import FROZEN, OPEN, PlacementSettings, pair_settings, placements
from ipf.errors import Problem
from ipf.store.postgres.hosts import parts_of

EXAMPLE = Path(__file__).resolve().parents[2] / "etc/placement/placements.toml"
NAMED = '[[placement]]\nname = "north"\n'
HEAD = NAMED + 'tenants = ["a"]\n'
URLS = 'db_url = "postgresql://ipf@n/ipf"\nfhir_db_url = "postgresql://ipf@n/fhir"\n'
SECOND = '[[placement]]\nname = "south"\ntenants = ["b"]\n'
TENANTS = {
    "SUBSCRIPTION_SERVICE_AUTH_ENABLED": "true",
    "SUBSCRIPTION_SERVICE_AUTH_ISSUER": "https://idp.example.org",
    "SUBSCRIPTION_SERVICE_MULTITENANCY": "enabled",
    "IPF_DB_URL": "postgresql://ipf:secret@home/ipf",
    "IPF_FHIR_DB_URL": "postgresql://ipf:secret@home/fhir",
}


class PlacementTests(TestCase):
    def read(self, text: str, **more: str) -> tuple[PlacementSettings, ...]:
        path = Path(self.mktemp())
        path.write_text(text, encoding="utf-8")
        environ = TENANTS | more | {"IPF_PLACEMENTS_FILE": str(path)}
        settings, _ = read(environ)
        return placements(settings, environ, parts_of)

    def test_none_without_a_file(self) -> None:
        self.assertEqual(placements(read({})[0], {}, parts_of), ())

    def test_the_example(self) -> None:
        folder = Path(self.mktemp())
        folder.mkdir()
        for name in ("north-inbox-url", "north-fhir-url"):
            (folder / name).write_text(f"postgresql://ipf:s3cret@10.0.1.5/{name}\n")
        text = EXAMPLE.read_text().replace("/etc/ipf", str(folder))
        south = {"SOUTH_DB_URL": "postgresql://10.0.2.5/ipf", "SOUTH_FHIR_DB_URL": "host=10.0.2.5 dbname=fhir"}
        default, first, second = self.read(text, **south)
        self.assertEqual((default.name, default.db_url), ("default", TENANTS["IPF_DB_URL"]))
        self.assertEqual((first.name, first.tenants, first.state), ("north", ("hospital-a", "hospital-b"), OPEN))
        self.assertEqual(first.db_url, "postgresql://ipf:s3cret@10.0.1.5/north-inbox-url")
        self.assertEqual(second.fhir_db_url, "host=10.0.2.5 dbname=fhir")
        self.assertNotIn("s3cret", repr(first))

    def test_a_frozen_placement(self) -> None:
        default, made = self.read(HEAD + URLS + 'state = "frozen"\n')
        self.assertEqual((default.state, made.state, made.fhir_db_url), (OPEN, FROZEN, "postgresql://ipf@n/fhir"))

    def test_the_default_alone(self) -> None:
        (default,) = self.read('[default]\nstate = "frozen"\n')
        self.assertEqual((default.state, default.fhir_db_url), (FROZEN, TENANTS["IPF_FHIR_DB_URL"]))

    def test_the_settings_of_a_pair(self) -> None:
        settings, _ = read(TENANTS | {"IPF_DATA_DIR": "/data", "IPF_WORKER_PROCESSES": "3"})
        made = pair_settings(settings, PlacementSettings("north", ("a",), "postgresql://n/a", "postgresql://n/b"))
        self.assertEqual((made.placement, made.placed_tenants, made.db_url), ("north", ("a",), "postgresql://n/a"))
        self.assertEqual((made.data_dir, made.worker_processes), ("/data/placements/north", 3))
        self.assertEqual((settings.placement, settings.placed_tenants), ("", ()))

    def test_mistakes(self) -> None:
        for text, reason in (
            ("x = 1", r"\[\[placement\]\]"),
            ("[", "is no TOML"),
            ('placement = ["x"]', "must be a table"),
            ("placement = 1", r"must be tables"),
            ("[default]\ncolour = 1", "default: has the one key state"),
            ('[default]\nstate = "shut"', "default: state must be one of"),
            ("[[placement]]", "name must be"),
            ('[[placement]]\nname = "default"', "name must be"),
            ('[[placement]]\nname = "North"', "name must be"),
            (NAMED + URLS, r"\(north\): tenants must be"),
            (NAMED + "tenants = []\n" + URLS, "tenants must be"),
            (NAMED + 'tenants = ["a b"]\n' + URLS, "'a b' is no name"),
            (NAMED + 'tenants = ["default"]\n' + URLS, "default stays in"),
            (HEAD + URLS + 'state = "shut"', "state must be one of open, frozen, closed"),
            (HEAD + URLS + "colour = 1", "unknown key colour"),
            (HEAD + 'db_url = "postgresql://h/a"', "needs one of fhir_db_url, fhir_db_url_env, fhir_db_url_file"),
            (HEAD + URLS + 'db_url_env = "X"', "needs one of db_url, "),
            (HEAD + 'db_url = "mysql://h/a"\nfhir_db_url = "postgresql://h/b"', "db_url: expected postgresql"),
            (HEAD + 'db_url_env = "NOT_SET"\nfhir_db_url = "postgresql://h/b"', "variable NOT_SET is not set"),
            (HEAD + 'db_url_file = "/no/file"\nfhir_db_url = "postgresql://h/b"', "/no/file: No such file"),
            (HEAD + URLS + HEAD + URLS, "two placements of the name north"),
            (HEAD + URLS + SECOND.replace('"b"', '"b", "a"') + URLS, "the tenant a is in two placements"),
            (HEAD + URLS + SECOND + URLS, r"north \(db_url\) and south \(db_url\) are the same database"),
            (HEAD + 'db_url = "postgresql://HOME:5432/ipf"\nfhir_db_url = "postgresql://h/b"', "IPF_DB_URL and north"),
        ):
            with self.assertRaisesRegex(Problem, reason, msg=text):
                self.read(text)

    def test_a_password_in_the_file(self) -> None:
        with self.assertRaisesRegex(Problem, r"db_url has a password: .*db_url_file") as raised:
            self.read(HEAD + URLS.replace("ipf@n/ipf", "ipf:s3cret@n/ipf"))
        self.assertNotIn("s3cret", str(raised.exception))

    def test_conflicts_with_the_settings(self) -> None:
        with self.assertRaisesRegex(Problem, "north: the tenant a is not among IPF_TENANTS"):
            self.read(HEAD + URLS, IPF_TENANTS="b c")
        with self.assertRaisesRegex(Problem, "MULTITENANCY=enabled"):
            self.read(HEAD + URLS, SUBSCRIPTION_SERVICE_MULTITENANCY="disabled")
        with self.assertRaisesRegex(Problem, "need IPF_DB_URL and IPF_FHIR_DB_URL"):
            self.read(HEAD + URLS, IPF_DB_URL="", IPF_FHIR_DB_URL="")
        with self.assertRaisesRegex(Problem, "IPF_FHIR_URL"):
            self.read(HEAD + URLS, IPF_FHIR_URL="https://fhir.example.org")

    def test_no_file(self) -> None:
        environ = TENANTS | {"IPF_PLACEMENTS_FILE": "/no/such/file.toml"}
        with self.assertRaisesRegex(Problem, "/no/such/file.toml: cannot be read: No such file"):
            placements(read(environ)[0], environ, parts_of)
