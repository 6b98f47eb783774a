"""Conversion as the settings ask for it: in converter processes, or in the main process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from ipf.app.maps.installation import Maps
from ipf.app.runtime.databases import DatabaseUrls
from ipf.app.runtime.log_output import LogOutput
from ipf.app.runtime.process import CONVERTER_NAME, worker_name
from ipf.app.runtime.stores import OpenedStores
from ipf.app.stages.conversion import start_conversion_stage
from ipf.app.stages.processes import SHORTEST_HEARTBEAT_TIMEOUT, ConverterProcesses
from ipf.app.stages.recovery import recover_worker
from ipf.config.paths import python_path
from ipf.config.settings import Settings
from ipf.pipeline.convert.batches import SHARED_PROCESS
from ipf.telemetry.metrics_directory import PART


def start_conversion(
    settings: Settings,
    urls: DatabaseUrls,
    stores: OpenedStores,
    maps: Maps,
    output: LogOutput,
    reactor: Any,
    stack: AsyncExitStack,
) -> ConverterProcesses | None:
    """Start to convert.  Returns the converter processes; None when there are none."""
    if settings.worker_processes == 0:
        installation, name = maps.installation, worker_name()
        start_conversion_stage(settings, stores, installation, name, SHARED_PROCESS, reactor, stack)
        return None
    processes = ConverterProcesses(
        reactor,
        settings.worker_processes,
        partial(_environment, urls, maps, output),
        write_lines=output.write,
        lost=partial(recover_worker, settings, stores),
        worker_name=worker_name(),
        heartbeat_timeout=max(SHORTEST_HEARTBEAT_TIMEOUT, 2 * settings.worker_stale_seconds),
    )
    processes.start()
    stack.push_async_callback(processes.stop, settings.stop_seconds)
    return processes


def _environment(urls: DatabaseUrls, maps: Maps, output: LogOutput, name: str) -> Mapping[str, str]:
    """The environment of the converter process `name`: that of the service, and what it has accepted."""
    number = name.rpartition(":")[2]
    return os.environ | {
        CONVERTER_NAME: name,
        PART: f"converter{number}",
        "IPF_DB_URL": urls.inbox,
        "IPF_FHIR_DB_URL": urls.fhir,
        "IPF_MAPS_DIR": str(maps.folder),
        "IPF_PROFILE_DIR": str(maps.profiles.current),
        "IPF_LOG_FORMAT": "human" if output.human else "json",
        "PYTHONPATH": python_path(),
    }
