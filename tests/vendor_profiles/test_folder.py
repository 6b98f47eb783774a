"""The folder of archives: loaded and skipped archives; a broken archive replaces nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from twisted.trial.unittest import TestCase

from ipf.app.maps.profiles import profiled_listener
from ipf.errors import Category, Problem
from ipf.hl7.header import scan_header
from ipf.mapping.language.grammar import parse
from ipf.mapping.library.map_files import Maps
from ipf.mapping.library.maps import Library
from ipf.pipeline.receive.receive import MllpListener
from ipf.ports import Claimed
from ipf.ports.messages.mapping import Origin
from ipf.vendor_profiles.folder import ProfileFolder, prepare_copies_folder
from ipf.vendor_profiles.registry import Deployment, ProfileRegistry, port_of
from tests.vendor_profiles.samples import MAP, bare, message, small, tar

SITE = Deployment({"lab": 2576, "main": 2575}, {"lab": "west"}, frozenset())


def claimed(raw: bytes, listener: str = "tcp:2599", message_type: str = "ADT_A04") -> Claimed:
    """A stored message."""
    return Claimed(1, 1, "c", datetime.now(UTC), "ACME", "C1", message_type, raw, "utf-8", 0, listener=listener)


class FolderCase(TestCase):
    def setUp(self) -> None:
        self.live = Path(self.mktemp())
        self.live.mkdir()
        self.folder = ProfileFolder(self.live, SITE, prepare_copies_folder(Path(self.mktemp()) / "profiles-1"))

    def write(self, name: str, files: dict[str, str] | bytes) -> None:
        """Put an archive into the folder."""
        (self.live / name).write_bytes(files if isinstance(files, bytes) else tar(files))

    def loaded(self, registry: ProfileRegistry | None) -> list[str]:
        """`file version` of what is in use."""
        return [f"{one.file} {one.manifest.version}" for one in registry.profiles] if registry is not None else []

    def skipped(self) -> list[str]:
        """What is not, and why."""
        return [str(one) for one in self.folder.skipped]


class FolderTests(FolderCase):
    def test_no_registry_without_profiles(self) -> None:
        self.assertIsNone(self.folder.build(bare(), fresh=True))
        self.folder.live = self.live / "absent"
        self.assertIsNone(self.folder.build(bare(), fresh=True))

    def test_a_broken_archive_is_skipped_and_the_others_load(self) -> None:
        """The error names archive, file and line."""
        broken = small("b", port=2601) | {"maps/a04.fml": MAP.replace("bundle.entry", "bundle.enty")}
        for name, files in (("a.tar.gz", small("a")), ("b.tgz", broken), ("c.tar", small("c", port=2602))):
            self.write(name, files)
        self.write("d.tar.gz", b"no archive")
        (self.live / "notes.txt").write_text("x")
        self.assertEqual(self.loaded(self.folder.build(bare(), fresh=True)), ["a.tar.gz 1.0", "c.tar 1.0"])
        first, second = self.skipped()
        self.assertTrue(first.startswith("b.tgz: maps/a04.fml:5:"), first)
        self.assertTrue(second.startswith("d.tar.gz: archive: this is no tar"), second)

    def test_a_broken_archive_replaces_nothing(self) -> None:
        self.write("a.tar.gz", small("a"))
        self.folder.build(bare(), fresh=True)
        self.write("a.tar.gz", small("a", "2.0") | {"tests/a04.json": '{"resourceType": "Basic"}'})
        self.folder.scan(bare())
        self.assertEqual(self.loaded(self.folder.build(bare(), fresh=False)), ["a.tar.gz 1.0"])
        self.assertEqual([one.kept for one in self.folder.skipped], ["1.0"])
        self.assertEqual(self.skipped(), ["a.tar.gz: tests/a04.hl7: this regression case fails"])
        self.assertIn("no Basic was made", self.folder.skipped[0].findings[0].message)
        self.write("a.tar.gz", small("a", "2.0"))
        self.folder.scan(bare())
        self.assertEqual(self.loaded(self.folder.build(bare(), fresh=False)), ["a.tar.gz 2.0"])
        self.assertEqual(self.skipped(), [])
        (self.live / "a.tar.gz").unlink()
        self.folder.scan(bare())
        self.assertIsNone(self.folder.build(bare(), fresh=False))

    def test_only_what_changed_is_compiled_again(self) -> None:
        """With the same general maps; with others everything is compiled."""
        self.write("a.tar.gz", small("a"))
        self.write("b.tar.gz", small("b", port=2601))
        first = self.folder.build(bare(), fresh=True)
        self.write("b.tar.gz", small("b", "2.0", port=2601))
        self.folder.scan(bare())
        second = self.folder.build(bare(), fresh=False)
        third = self.folder.build(Library(Maps(), {}, bare().environment), fresh=False)
        assert first is not None and second is not None and third is not None
        self.assertIs(first.profiles[0], second.profiles[0])
        self.assertEqual(self.loaded(second), ["a.tar.gz 1.0", "b.tar.gz 2.0"])
        self.assertIsNot(second.profiles[0], third.profiles[0])

    def test_converter_processes_have_what_was_accepted(self) -> None:
        """Not the content of the folder; an invalid profile is an error there."""
        self.write("a.tar.gz", small("a"))
        self.folder.build(bare(), fresh=True)
        child = ProfileFolder(self.folder.current, SITE)
        self.assertEqual(self.loaded(child.build(bare(), fresh=True)), ["a.tar.gz 1.0"])
        self.write("a.tar.gz", b"broken")
        self.write("b.tar.gz", small("b", port=2601))
        self.assertEqual(self.loaded(child.build(bare(), fresh=True)), ["a.tar.gz 1.0"])
        self.folder.scan(bare())
        self.assertEqual(self.loaded(child.build(bare(), fresh=True)), ["a.tar.gz 1.0", "b.tar.gz 1.0"])
        (self.folder.current / "b.tar.gz").write_bytes(b"broken")
        self.assertRaises(Problem, child.build, bare(), fresh=True)

    def test_general_maps_that_break_a_profile_in_use_are_refused(self) -> None:
        uses = MAP.replace("uses", 'imports "urn:test:general"\nuses', 1).replace(
            "pid.PID_7 as born -> patient.birthDate = born;", "pid then Born(pid, patient);"
        )
        shared = parse(
            '/// url = "urn:test:general"\ngroup Born(source pid : PID, target patient : Patient) {\n'
            "  pid.PID_7 as born -> patient.birthDate = born;\n}"
        )
        general = Library(Maps([shared]), {}, bare().environment)
        self.write("a.tar.gz", small("a") | {"maps/a04.fml": uses})
        self.assertEqual(self.loaded(self.folder.build(general, fresh=True)), ["a.tar.gz 1.0"])
        for fresh in (True, False):
            with self.assertRaises(Problem) as caught:
                self.folder.build(bare(), fresh=fresh)
            self.assertIs(caught.exception.category, Category.MAPPING)
            self.assertIn("a.tar.gz", str(caught.exception))
            self.assertIn("maps/a04.fml:3:1: no map is installed that 'urn:test:general'", str(caught.exception))
        self.assertEqual(self.loaded(self.folder.build(general, fresh=False)), ["a.tar.gz 1.0"])
        silent = parse(
            '/// url = "urn:test:general"\ngroup Born(source pid : PID, target patient : Patient) {\n'
            "  pid.PID_30 as dead -> patient.deceased = true;\n}"
        )
        other = Library(Maps([silent]), {}, bare().environment)
        self.assertEqual(self.loaded(self.folder.build(other, fresh=True)), ["a.tar.gz 1.0"], "its cases fail: told")
        self.assertIn("Patient.birthDate", self.folder.warnings["a.tar.gz"][0].message)

    def test_conflicting_archives(self) -> None:
        """Same id, or same messages: the archive in use wins, whatever its name."""
        self.write("b.tar.gz", small("b"))
        self.folder.build(bare(), fresh=True)
        self.write("a.tar.gz", small("a"))
        self.write("c.tar.gz", small("b", port=2601))
        self.folder.scan(bare())
        self.assertEqual(self.loaded(self.folder.build(bare(), fresh=False)), ["b.tar.gz 1.0"])
        first, second = self.skipped()
        self.assertIn("b.tar.gz matches the same messages", first)
        self.assertIn("b.tar.gz has the same id: b", second)

    def test_tenant_conflicts(self) -> None:
        def with_tenant(line: str) -> dict[str, str]:
            files = small("a", port=2576)
            return files | {"manifest.yaml": files["manifest.yaml"].replace("port: 2576", f"port: 2576, {line}")}

        self.write("a.tar.gz", with_tenant("tenant: east"))
        self.assertIsNone(self.folder.build(bare(), fresh=True))
        self.assertIn("/ingest/0/tenant: IPF_MLLP_TENANTS assigns listener lab to tenant west", self.skipped()[0])
        self.write("a.tar.gz", with_tenant("tenant: west"))
        self.assertEqual(self.loaded(self.folder.build(bare(), fresh=True)), ["a.tar.gz 1.0"])
        self.folder.deployment = replace(SITE, allowed=frozenset({"north"}))
        self.folder = ProfileFolder(
            self.live, self.folder.deployment, prepare_copies_folder(Path(self.mktemp()) / "profiles-1")
        )
        self.assertIsNone(self.folder.build(bare(), fresh=True))
        self.assertIn("is not among IPF_TENANTS", self.skipped()[0])


class RegistryTests(FolderCase):
    def registry(self, *ingest: str) -> ProfileRegistry:
        """Profiles `p0`, `p1` ... with one ingest item each."""
        for number, item in enumerate(ingest):
            files = small(f"p{number}")
            lines = files["manifest.yaml"].splitlines()
            place = next(index for index, line in enumerate(lines) if "hl7v2-mllp" in line)
            lines[place] = f"  - {{id: adt, type: hl7v2-mllp, {item}}}"
            self.write(f"p{number}.tar.gz", files | {"manifest.yaml": "\n".join(lines)})
        registry = self.folder.build(bare(), fresh=True)
        self.assertEqual(self.skipped(), [])
        assert registry is not None
        return registry

    def test_profile_of_a_message(self) -> None:
        """By port and facility, by port, by facility, by name of listener; the same on conversion."""
        registry = self.registry(
            "port: 2599", "port: 2599, facilityResolver: msh-4, facilities: [WEST]",
            "facilityResolver: MSH-4, facilities: [EAST, NORTH]", "facilityResolver: listener, facilities: [lab]",
        )  # fmt: skip
        for listener, facility, expected in (
            ("tcp:2599", "WEST", "p1"), ("tcp:2599", "SOUTH", "p0"), ("tcp:2599", "EAST", "p0"),
            ("main", "NORTH^1^X", "p2"), ("main", "WEST", None), ("lab", "WEST", "p3"), ("lab", "EAST", "p3"),
            ("main", "", None),
        ):  # fmt: skip
            raw = message("C1").replace(b"|WEST|", f"|{facility}|".encode())
            rule = registry.rule_for(listener, scan_header(raw))
            self.assertEqual(rule and rule.profile.manifest.id, expected, (listener, facility))
            self.assertEqual(registry.has_map(claimed(raw, listener)), expected is not None)
            self.assertFalse(registry.has_map(claimed(raw, listener, "ADT_A08")))

    def test_apply(self) -> None:
        """Its own map and audit details; another type only the quirks."""
        registry = self.registry("port: 2599")
        profiled = registry.apply(claimed(message("C1")))
        assert profiled is not None and profiled.library is not None
        self.assertEqual(profiled.origin, Origin("urn:test:acme", "ACME", (("facility", "WEST"),)))
        bundle = profiled.library.transform(profiled.message).bundle
        self.assertEqual(bundle["entry"][0]["resource"]["birthDate"], "1970-03-15")
        other = registry.apply(claimed(message("C1"), message_type="ADT_A08"))
        assert other is not None
        self.assertIsNone(other.library)
        self.assertIn(b"||19700315|", other.message.raw)
        self.assertIsNone(registry.apply(claimed(message("C1"), "main")))

    def test_listener_settings_for_the_receiver(self) -> None:
        """Tenant, charset and types; a configured tenant stays; a control id where there is none."""
        place = profiled_listener(
            self.registry("port: 2599, tenant: east", "facilityResolver: msh-4, facilities: [WEST]")
        )
        header = scan_header(message(""))
        east = place(message(""), header, MllpListener("tcp:2599"))  # its facility does not take it out of its tenant
        self.assertEqual((east.tenant, header.source_id[:4]), ("east", "sha-"))
        raw = message("C1").replace(b"|WEST|", b"|SOUTH|")
        for tenant, expected in (("default", "east"), ("north", "north")):
            found = place(raw, scan_header(raw), MllpListener("tcp:2599", "cp1252", tenant))
            self.assertEqual((found.tenant, found.mapped_types), (expected, frozenset({"ADT_A04"})))
        main = MllpListener("main")
        self.assertIs(place(raw, scan_header(raw), main), main)

    def test_ports_of_endpoints(self) -> None:
        for endpoint, port in (
            ("tcp:2575", 2575), ("tcp:2576:interface=0.0.0.0", 2576), ("ssl:2577:privateKey=x", 2577),
            ("tcp:port=9", 9), ("mtls:2578:x", 2578), ("systemd:domain=INET:index=0", None), ("unix:/run/x", None),
        ):  # fmt: skip
            self.assertEqual(port_of(endpoint), port, endpoint)
