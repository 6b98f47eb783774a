"""The units of etc/systemd: what limits and protects the service, in each of them."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

UNITS = Path(__file__).resolve().parents[2] / "etc/systemd"
SERVICES = ("ipf.service", "ipf@.service", "ipf-ui.service")
OF_ALL = {
    "MemoryMax", "TasksMax", "MemoryDenyWriteExecute", "IPAddressDeny", "NoNewPrivileges", "ProtectSystem",
    "SystemCallFilter", "CapabilityBoundingSet", "RestrictAddressFamilies", "LimitNOFILE",
}  # fmt: skip
DIFFERENT = {"EnvironmentFile", "Environment", "WorkingDirectory", "StateDirectory"}
"""What names the process, where there are several."""


def lines_of(name: str) -> list[tuple[str, str]]:
    """Directives of the section `[Service]`, in order."""
    text = (UNITS / name).read_text().partition("[Service]\n")[2].partition("\n[")[0]
    rows = (line.partition("=") for line in text.splitlines() if line and not line.startswith("#"))
    return [(key, value) for key, _, value in rows]


class UnitTests(TestCase):
    def test_each_service_is_limited(self) -> None:
        for name in SERVICES:
            found = dict(lines_of(name))
            self.assertEqual(OF_ALL - set(found), set(), name)
            self.assertEqual((found["MemoryDenyWriteExecute"], found["IPAddressDeny"]), ("yes", "link-local multicast"))

    def test_several_processes_are_limited_as_one(self) -> None:
        """`ipf@.service` is `ipf.service` but for the names of its files."""
        one, several = (
            [row for row in lines_of(name) if row[0] not in DIFFERENT] for name in ("ipf.service", "ipf@.service")
        )
        self.assertEqual(several, one)

    def test_converters_are_supervised_by_the_service(self) -> None:
        """The kernel ends the largest process: one converter must not stop the receivers."""
        self.assertEqual([dict(lines_of(name)).get("OOMPolicy") for name in SERVICES], ["continue", "continue", None])
