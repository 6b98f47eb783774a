"""`python -m ipf.app.backup backup|verify|restore FOLDER`: what `ipfctl backup` and `ipfctl restore` run on this host.

The settings come from the environment and `--env-file`.  Exit status: 0 done; 1 refused, failed, or a check found
something.  SIGTERM and SIGINT end it in order: what it made is removed.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from twisted.internet import reactor

from ipf.app.backup.check import Checked
from ipf.app.backup.manifest import Manifest
from ipf.app.backup.restore import restore_backup, verify_backup
from ipf.app.backup.running import exit_with
from ipf.app.backup.take import back_up
from ipf.app.doctor import environment_file
from ipf.app.verify_audit import trusted_keys
from ipf.config.environment import read

_OUTSIDE = """\
not in the backup, keep them apart from it:
  IPF_SECRET_KEY   without it secrets in channel.header cannot be read, and de-identified exports get other ids
  audit-key.pem    in IPF_DATA_DIR, or IPF_AUDIT_KEY: it signs the audit trail; a new one is made when it is missing
  other secrets    tokens, TLS keys, passwords, files that settings name (IPF_FORWARD_FILE ...)
  the dumps hold data of patients, not encrypted: encrypt the folder before it leaves the host
  (docs/how-to/back-up-and-restore.md)"""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="ipfctl")
    parser.add_argument("action", choices=("backup", "verify", "restore"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--env-file", type=Path)
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--key", type=Path, action="append")
    given = parser.parse_args()
    given.folder = given.folder.absolute()
    environ = dict(os.environ) | (dict(environment_file(given.env_file)) if given.env_file else {})
    actions = {"backup": _backup, "verify": _verify, "restore": _restore}
    exit_with(lambda: actions[given.action](environ, given))


async def _backup(environ: dict[str, str], given: argparse.Namespace) -> bool:
    settings, _ = read(environ)
    manifest = await back_up(settings, frozenset(environ), given.folder, reactor)
    print(f"{given.folder}: ipf {manifest.ipf} at {manifest.at}, {_size(manifest)}")
    print(f"{manifest.count} messages, the last one {manifest.highest_id}; none came in for {manifest.held_ms} ms")
    for one in manifest.files[:1]:
        print(f"{len(manifest.files)} files of maps and vendor profiles, such as {one.path}")
    print(_OUTSIDE)
    return True


async def _verify(environ: dict[str, str], given: argparse.Namespace) -> bool:
    trusted = trusted_keys(given.key) if given.key else None
    manifest, checked = await verify_backup(given.folder, reactor, given.scratch, trusted)
    return _show(given.folder, manifest, checked, "the backup is complete")


async def _restore(environ: dict[str, str], given: argparse.Namespace) -> bool:
    settings, _ = read(environ)
    manifest, checked = await restore_backup(settings, given.folder, reactor, replace=given.replace)
    found = _show(given.folder, manifest, checked, f"restored to {manifest.at}")
    if not found:
        print("the databases are kept, and no service starts on them: restore another backup with --replace, or, to\n"
              "use them nevertheless, run DROP SCHEMA ipf_restore CASCADE in both")  # fmt: skip
        return False
    for one in manifest.files:
        print(f"to be put back by you: {one.path}, it was {one.source}")
    print("before the start: IPF_SECRET_KEY and audit-key.pem as they were; repeat erasures since")
    print("(docs/how-to/back-up-and-restore.md)")
    return True


def _show(folder: Path, manifest: Manifest, checked: Checked, done: str) -> bool:
    print(f"{folder}: ipf {manifest.ipf} at {manifest.at}")
    for note in checked.notes:
        print(f"  {note}")
    for finding in checked.findings:
        print(f"WRONG: {finding}")
    print(f"{len(checked.findings)} findings" if checked.findings else f"OK: {done}")
    return not checked.findings


def _size(manifest: Manifest) -> str:
    return f"{sum(one.bytes for one in manifest.databases.values()) / 2**20:.1f} MiB"


if __name__ == "__main__":
    main()
