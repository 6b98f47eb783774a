"""Message codes of queries and of answers, which are no events.

A query expects an answer with its result.  ipf answers none, so a query is refused (AE) unless a map of its type is
installed.  An answer that arrives belongs to a query that ipf did not send.

Source: HL7 v2.8.2 table 0076 (message type), with the codes of older versions; chapters 4, 5, 8, 10, 11, 12 and 13.
"""

from __future__ import annotations

_QUERIES = frozenset(
    "EQQ MFQ NMQ OSQ QBP QCN QRY QSB QVR RQC RQI RQP RQQ SPQ SQM VQQ VXQ".split()  # noqa: SIM905
)
_ANSWERS = frozenset(
    "ACK ADR DSR EDR EHC ERP MCF MFD MFK MFR NMR ORA ORB ORD ORF ORG ORI ORL ORN ORP ORR ORS ORX OSR PPT PPV PRR PTR"  # noqa: SIM905
    " QCK RAR RCI RCL RDR RER RGR ROR RPI RPL RPR RRA RRD RRE RRG RSP RTB SQR SRR TBR VXR VXX".split()
)


def is_query(message_type: str) -> bool:
    """Whether a message of this type (`QBP_Q22`) expects an answer with its result."""
    return message_type.partition("_")[0] in _QUERIES


def is_event(message_type: str) -> bool:
    """Whether it tells of something that happened: neither a query nor an answer."""
    return message_type.partition("_")[0] not in _QUERIES | _ANSWERS
