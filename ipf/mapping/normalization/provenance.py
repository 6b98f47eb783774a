"""The Provenance of resources that were fetched: from which system, and as which version.

Source: https://hl7.org/fhir/R4/provenance.html
"""

from __future__ import annotations

from datetime import datetime

from ipf.ports import Json
from ipf.ports.messages.sources import PolledSource

_PARTICIPANTS = "http://terminology.hl7.org/CodeSystem/provenance-participant-type"


def provenance(source: PolledSource, source_id: str, fetched_at: datetime) -> Json:
    """The Provenance, without its targets.  `source_id`: type, id and version in the source."""
    return {
        "resourceType": "Provenance",
        "target": [],
        "recorded": fetched_at.isoformat(timespec="milliseconds"),
        "agent": [
            {
                "type": {"coding": [{"system": _PARTICIPANTS, "code": "assembler", "display": "Assembler"}]},
                "who": {
                    "type": "Device",
                    "identifier": {"system": source.identifier_base, "value": source.source_system},
                    "display": source.source_system,
                },
            }
        ],
        "entity": [
            {
                "role": "source",
                "what": {"identifier": {"system": source.identifier_base, "value": source_id}},
            }
        ],
    }
