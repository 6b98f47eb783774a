"""How the entries of an HL7 v2 message find and update their resources, by its map and its sender."""

from __future__ import annotations

from ipf.hl7.message import Message
from ipf.mapping.bundle.field_sources import update_of
from ipf.mapping.bundle.transaction import Rules
from ipf.mapping.compiler.compile import Program
from ipf.mapping.language.identity_table import IdentityTable


def message_rules(program: Program, message: Message, table: IdentityTable) -> Rules:
    """`table`: which numbers of a Patient identify, and which senders send snapshots."""
    header = message.header
    is_snapshot = table.sends_snapshots(header.source_system, header.message_type)
    update = update_of(message, program.known_sources, program.deletions, is_snapshot=is_snapshot)
    return Rules(table, program.moves, update)
