"""The registry of all metrics of this process, and the files of several processes.

With PROMETHEUS_MULTIPROC_DIR set (see `metrics_directory`) every process writes its values to memory-mapped files, and
a scrape adds up the values of all processes.  They outlast `kill -9`.
"""

from __future__ import annotations

import os

import prometheus_client.values
from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.values import MultiProcessValue

from ipf.telemetry.metrics_directory import VARIABLE, process_name, reserve_space

disable_created_metrics()
if VARIABLE in os.environ:
    reserve_space()
    _process_name = process_name()  # prometheus_client asks for it with every increment
    prometheus_client.values.ValueClass = MultiProcessValue(lambda: _process_name)

REGISTRY = CollectorRegistry()
"""Metrics are made when their module is imported."""
