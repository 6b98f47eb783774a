"""`python -m ipf.app.verify_audit FILE --key=PEM ... [--heads=FILE]`: checks an export of the audit trail offline.

Prints what was checked, the first differences in detail, and what could not be checked.  Exit status: 0 intact, 1
changed, 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from ipf.security.audit.chain import BadKey, key_id, read_public_pem
from ipf.security.audit.proof import Fault, Proof, Verifier

_PEM = re.compile(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----", re.DOTALL)


def run(arguments: Sequence[str]) -> int:
    """Check and print; the exit status."""
    parser = argparse.ArgumentParser(prog="ipfctl audit verify")
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", type=Path, action="append", required=True)
    parser.add_argument("--heads", type=Path)
    given = parser.parse_args(arguments)
    try:
        verifier = Verifier(trusted_keys(given.key))
        if given.heads is not None:
            with given.heads.open("rb") as kept:
                verifier.add_heads(kept)
        with given.file.open("rb") as file:
            verifier.read(file)
    except (OSError, BadKey, ValueError, KeyError) as failed:
        print(f"cannot be read: {failed}", file=sys.stderr)
        return 2
    proof = verifier.finish()
    print("\n".join(report(proof)))
    return 1 if proof.count else 0


def trusted_keys(files: Sequence[Path]) -> dict[str, str]:
    """The public keys in files, by key id.  BadKey, OSError."""
    keys: dict[str, str] = {}
    for path in files:
        found = _PEM.findall(path.read_text("utf-8", "replace"))
        if not found:
            raise BadKey(f"{path}: no public key in PEM")
        for pem in found:
            try:
                key = read_public_pem(pem)
            except BadKey as bad:
                raise BadKey(f"{path}: {bad}") from None
            keys[key_id(key)] = key
    return keys


def report(proof: Proof) -> list[str]:
    """The lines to print."""
    lines = []
    for (tenant, surface), chain in sorted(proof.chains.items()):
        lines.append(f"{tenant}/{surface}: {chain.links} records, {chain.signed} up to the last signed head")
        if chain.begins:
            lines.append(f"  begins {chain.begins}")
        if chain.last_head is not None:
            head = chain.last_head
            lines.append(f"  last head: {head.day} number {head.number}, signed {head.at} by {head.key_id}")
    lines += [f"not checked: {note}" for note in proof.notes]
    lines += [_shown(fault) for fault in proof.faults]
    total = sum(proof.count.values())
    if total > len(proof.faults):
        lines.append(f"... and {total - len(proof.faults)} more")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(proof.count.items()))
    lines.append(f"CHANGED: {kinds}" if total else "OK: nothing was changed")
    return lines


def _shown(fault: Fault) -> str:
    chain = f"{fault.tenant}/{fault.surface} {fault.day} number {fault.number}" if fault.tenant else fault.surface
    record = f"record {fault.id} of {fault.recorded_at}" if fault.id else ""
    return " | ".join(part for part in (fault.kind.upper(), record, chain, fault.text) if part)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
