"""What the roles of a process do in the background on one pair of databases."""

from __future__ import annotations

from ipf.app.roles.convert import start_converting
from ipf.app.roles.deliver import start_delivering
from ipf.app.roles.pair import Pair
from ipf.app.roles.process import Process
from ipf.app.roles.upkeep import start_upkeep
from ipf.app.stages.processes import ConverterProcesses
from ipf.config.roles import CONVERT, DELIVER, POLL


async def start_background(process: Process, pair: Pair) -> ConverterProcesses | None:
    """Start it.  Returns the converter processes; None when there are none."""
    runs, converters = pair.settings.runs, None
    await start_upkeep(process, pair)
    if runs(DELIVER):
        start_delivering(process, pair)
    if runs(CONVERT):
        converters = start_converting(process, pair)
    if runs(POLL):
        pair.polling.start(process.reactor, process.stack)
    return converters
