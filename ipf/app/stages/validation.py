"""The validation of converted messages that the settings ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ipf.app.maps.packages import load_packages
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.errors import Problem
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.maps import MappingResult
from ipf.ports import Claimed, Mapped
from ipf.telemetry.conversion_metrics import ConversionMetrics

_AS_WRITES = {"off": "off", "warn": "warn", "enforce": "refuse"}

Validate = Callable[[Claimed, Mapped], Awaitable[Problem | None]]


def message_validation(settings: Settings, stores: OpenedStores, installation: Installation) -> Validate | None:
    """The validation of mapped messages; None when it is off.  Only then is the validator not loaded."""
    mode = settings.conversion_validation or _AS_WRITES[settings.validation_mode]
    if mode == "off":
        return None
    from ipf.pipeline.convert.validation import REFUSE, Check, MessageValidation
    from ipf.rest.write.conformance import DEFINITIONS, Conformance

    conformance = Conformance(partial(load_packages, settings, DEFINITIONS), stores.fhir, now)

    async def checks(tenant: str) -> Check:
        return (await conformance.definitions_of(tenant)).validator.validate

    async def explain(message: Claimed) -> MappingResult:
        result: MappingResult = await run_in_thread(lambda: installation.explain(message))
        return result

    here = settings.mapping_url is None
    return MessageValidation(checks, explain if here else None, ConversionMetrics(), refuse=mode == REFUSE)
