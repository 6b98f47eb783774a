"""The validation of converted messages that the settings ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from ipf.app.maps.packages import load_packages
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.maps import MappingResult
from ipf.mapping.library.origins import Check, Checks
from ipf.ports import Claimed, Mapped
from ipf.telemetry.conversion_metrics import ConversionMetrics

if TYPE_CHECKING:
    from ipf.rest.write.conformance import Conformance

_AS_WRITES = {"off": "off", "warn": "warn", "enforce": "refuse"}

Validate = Callable[[Claimed, Mapped], Awaitable[Problem | None]]


def resource_checks(settings: Settings, stores: OpenedStores) -> Checks:
    """Validation by the definitions of each tenant; the validator is loaded with the first resource."""
    loaded: list[Conformance] = []

    async def checks(tenant: str) -> Check:
        if not loaded:
            from ipf.rest.write.conformance import DEFINITIONS, Conformance

            loaded.append(Conformance(partial(load_packages, settings, DEFINITIONS), stores.fhir, now))
        return (await loaded[0].definitions_of(tenant)).validator.validate

    return checks


def message_validation(settings: Settings, stores: OpenedStores, installation: Installation) -> Validate | None:
    """The validation of mapped messages; None when it is off.  Only then is the validator not loaded."""
    mode = settings.conversion_validation or _AS_WRITES[settings.validation_mode]
    if mode == "off":
        return None
    from ipf.pipeline.convert.validation import REFUSE, MessageValidation

    async def explain(message: Claimed) -> MappingResult:
        result: MappingResult = await run_in_thread(lambda: installation.explain(message))
        return result

    here = settings.mapping_url is None
    return MessageValidation(
        resource_checks(settings, stores), explain if here else None, ConversionMetrics(), refuse=mode == REFUSE
    )
