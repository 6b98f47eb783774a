"""`bin/bench`: each bench starts its own service, puts load on it from this process, and prints a table.

Each figure has a reference, a limit of the machine or a peer, measured in the same run on the same server.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import (
    admin,
    attacks,
    audit,
    catch_up,
    console,
    denials,
    fhir,
    fhir_growth,
    fhirpath,
    flow,
    heavy,
    large,
    large_messages,
    large_transactions,
    lastn,
    mapping,
    matching,
    notify,
    observe,
    receive,
    replica,
    search,
    security,
    size,
    stalls,
    terminology,
    upgrade,
    validation,
    websocket,
)
from bench.report import ROOT, current, heading

BENCHES: dict[str, Callable[[Path], None]] = {
    "receive": receive.closed,
    "open": receive.scheduled,
    "stall": receive.stall,
    "webhook": flow.webhook,
    "notify": notify.notify,
    "catch-up": catch_up.catch_up,
    "websocket": websocket.websocket,
    "upgrade": upgrade.upgrade,
    "flow": flow.throughput,
    "offered": flow.offered,
    "growth": flow.growth,
    "memory": flow.memory,
    "mapping": mapping.transform,
    "matching": matching.bench,
    "validation": validation.bench,
    "fhir": fhir.bench,
    "fhir-growth": fhir_growth.growth,
    "fhirpath": fhirpath.bench,
    "large": large.large,
    "large-messages": large_messages.large_messages,
    "large-transactions": large_transactions.large_transactions,
    "search": search.search,
    "lastn": lastn.bench,
    "heavy": heavy.heavy,
    "replica": replica.bench,
    "denials": denials.bench,
    "stalls": stalls.stalls,
    "attacks": attacks.attacks,
    "size": size.size,
    "admin": admin.admin,
    "console": console.console,
    "observe": observe.observe,
    "auth": security.bench,
    "audit": audit.bench,
    "terminology": terminology.bench,
}


def main(names: list[str]) -> int:
    """Run the named benches, or all."""
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        print(f"no such bench: {', '.join(unknown)}; there are {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    for name in names or BENCHES:
        with tempfile.TemporaryDirectory(prefix="ipf-bench-") as folder:
            os.chmod(folder, 0o755)
            heading(name, BENCHES[name].__doc__ or "")
            BENCHES[name](Path(folder))
    print(f"\nall figures: {current().write().relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
