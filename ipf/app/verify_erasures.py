"""`python -m ipf.app.verify_erasures FILE --key=PEM ... [--patient=Patient/x] [--tenant=T]`: checks receipts offline.

The file has one receipt, what `POST /admin/patients/{id}/forget` or `GET /admin/erasures` answered, or a list of them.
Exit status: 0 all are genuine, and one concerns the patient; 1 not; 2 a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from ipf.app.verify_audit import trusted_keys
from ipf.ports.fhir.erasure import ErasureReceipt
from ipf.security.audit.chain import BadKey
from ipf.security.audit.erasure_receipt import concerns, is_genuine

_MEMBERS = frozenset((*ErasureReceipt._fields, "finished"))


def run(arguments: Sequence[str]) -> int:
    """Check and print; the exit status."""
    parser = argparse.ArgumentParser(prog="ipfctl audit verify-erasures")
    parser.add_argument("file", type=Path)
    parser.add_argument("--key", type=Path, action="append", required=True)
    parser.add_argument("--patient", default="")
    parser.add_argument("--tenant", default="default")
    given = parser.parse_args(arguments)
    try:
        keys = trusted_keys(given.key)
        receipts = list(receipts_in(orjson.loads(given.file.read_bytes())))
    except (OSError, BadKey, ValueError, KeyError, TypeError) as failed:
        print(f"cannot be read: {failed}", file=sys.stderr)
        return 2
    faults = [fault for one in receipts if (fault := fault_of(one, keys))]
    for one in receipts:
        print(f"erasure {one.id} of {one.at} by {one.actor}: {fault_of(one, keys) or 'genuine'}")
    if given.patient:
        name = given.patient if "/" in given.patient else f"Patient/{given.patient}"
        of_him = [one.id for one in receipts if one.tenant == given.tenant and concerns(one, name)]
        print(f"{name} was erased: {', '.join(map(str, of_him))}" if of_him else f"no receipt is about {name}")
        faults += [] if of_him else ["no receipt"]
    return 1 if faults or not receipts else 0


def receipts_in(found: Any) -> Iterator[ErasureReceipt]:
    """The receipts of an answer.  KeyError, TypeError, ValueError for anything else."""
    if isinstance(found, dict) and "receipt" in found:
        found = found["receipt"]
    elif isinstance(found, dict) and "items" in found:
        found = found["items"]
    for one in found if isinstance(found, list) else [found]:
        yield _receipt(one)


def _receipt(found: Mapping[str, Any]) -> ErasureReceipt:
    if set(found) != _MEMBERS:
        raise ValueError("a receipt has the members " + ", ".join(sorted(_MEMBERS)))
    if found["finished"] is not bool(found["signature"]):
        raise ValueError("a receipt is finished when it is signed")
    return ErasureReceipt(**{name: found[name] for name in ErasureReceipt._fields})


def fault_of(receipt: ErasureReceipt, keys: Mapping[str, str]) -> str:
    """What is wrong; empty: it is genuine."""
    if not receipt.signature:
        return "NOT FINISHED: the erasure began; repeat it"
    key = keys.get(receipt.key_id)
    if key is None:
        return f"CHANGED: its key {receipt.key_id} is not trusted"
    return "" if is_genuine(receipt, key) else "CHANGED: the signature does not fit"


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
