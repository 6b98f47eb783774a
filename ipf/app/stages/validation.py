"""The checks of converted messages: their structure, and the validation that the settings ask for."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ipf.app.maps.packages import load_packages
from ipf.app.runtime.process import now, run_in_thread
from ipf.app.runtime.stores import OpenedStores
from ipf.config.settings import Settings
from ipf.mapping.library.installation import Installation
from ipf.mapping.library.maps import MappingResult
from ipf.mapping.library.origins import Check, Checks
from ipf.pipeline.convert.structure import StructureCheck, Validate
from ipf.pipeline.convert.validation import OFF, REFUSE, Explain, MessageValidation
from ipf.ports import Claimed
from ipf.telemetry.conversion_metrics import ConversionMetrics

if TYPE_CHECKING:
    from ipf.rest.write.conformance import Conformance

_AS_WRITES = {"off": "off", "warn": "warn", "enforce": "refuse"}


def resource_checks(settings: Settings, stores: OpenedStores) -> Checks:
    """Validation by the definitions of each tenant; the validator is loaded with the first resource."""
    loaded: list[Conformance] = []

    async def checks(tenant: str) -> Check:
        if not loaded:
            from ipf.rest.write.conformance import DEFINITIONS, Conformance

            loaded.append(Conformance(partial(load_packages, settings, DEFINITIONS), stores.fhir, now))
        return (await loaded[0].definitions_of(tenant)).validator.validate

    return checks


def message_checks(settings: Settings, stores: OpenedStores, installation: Installation) -> Validate:
    """The checks of mapped messages: their structure, and the validation that the settings ask for."""

    async def explain(message: Claimed) -> MappingResult:
        result: MappingResult = await run_in_thread(lambda: installation.explain(message))
        return result

    here = explain if settings.mapping_url is None else None
    metrics = ConversionMetrics()
    return StructureCheck(here, metrics, _validation(settings, stores, here, metrics))


def _validation(
    settings: Settings, stores: OpenedStores, explain: Explain | None, metrics: ConversionMetrics
) -> Validate | None:
    """The validation of mapped messages; None when it is off.  The validator is loaded with the first resource."""
    mode = settings.conversion_validation or _AS_WRITES[settings.validation_mode]
    if mode == OFF:
        return None
    return MessageValidation(resource_checks(settings, stores), explain, metrics, refuse=mode == REFUSE)
