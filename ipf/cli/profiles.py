"""Commands for vendor profiles: list those in use, validate an archive, pack a folder, draft one from samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import click

from ipf.cli.api import Api, Refused
from ipf.cli.local import run_module
from ipf.cli.output import Output
from ipf.cli.running import action, query, writes_file
from ipf.fhir.model.json import loads

_LOADED = ("file", "id", "version", "vendor", "message_types", "messages_of")
_PATH = "/admin/api/profiles"


_archive = click.argument("archive", type=click.File("rb"))
_folder = click.Path(exists=True, file_okay=False, path_type=Path)


@click.group("profiles")
def profiles() -> None:
    """Vendor profiles: list, validate, install, draft, pack."""


@profiles.command("list")
@query
async def list_profiles(api: Api, output: Output) -> bool:
    """List the vendor profiles in use.

    Exit status 1 when an archive was skipped.
    """
    return _show(output, await api.get(_PATH))


@profiles.command("reload")
@action
async def reload(api: Api, output: Output) -> bool:
    """Read the folder of archives again, and list the profiles.

    Exit status 1 when an archive was skipped.
    """
    return _show(output, await api.post(f"{_PATH}/reload"))


def _show(output: Output, found: Mapping[str, Any]) -> bool:
    if not output.data(found):
        output.page(
            {"items": [dict(zip(_LOADED, _row(item), strict=True)) for item in found["loaded"]]},
            _LOADED,
            "vendor profile",
        )
        for item in found["skipped"]:
            kept = f"; version {item['kept']} stays in use" if item.get("kept") else ""
            output.error(f"{item['file']} is not in use{kept}")
            _problems(output, item["problems"])
    return not found["skipped"]


def _row(item: Mapping[str, Any]) -> list[Any]:
    profile = item["profile"]
    types = ", ".join(_type(mapping) for mapping in item["mappings"])
    return [item["file"], profile["id"], profile["version"], profile["vendor"]["name"], types, _sources(item["ingest"])]


def _type(item: Mapping[str, Any]) -> str:
    """The type of a mapping or case."""
    return str(item["messageType"] or item["sourceType"])


def _sources(ingest: list[dict[str, Any]]) -> str:
    """Such as `port 2580; msh-4 GENERAL, WEST`."""
    texts = []
    for item in ingest:
        port = f"port {item['port']}" if item.get("port") else ""
        names = f"{item['facilityResolver']} {', '.join(item['facilities'])}" if item.get("facilities") else ""
        texts.append(" ".join(filter(None, (port, names))))
    return "; ".join(texts)


@profiles.command("validate")
@_archive
@query
async def validate(api: Api, output: Output, archive: IO[bytes]) -> bool:
    """Check the archive of a vendor profile without installing it.

    Exit status 1 when it is not valid.
    """
    found = await api.upload(f"{_PATH}/validate", archive.read(), "application/x-gtar")
    if not output.data(found):
        profile, tests = found.get("profile") or {}, found["tests"]
        output.record({
            "profile": profile.get("id"), "version": profile.get("version"), "valid": found["valid"],
            "cases": f"{tests['passed']} passed, {tests['failed']} failed",
        })  # fmt: skip
        for one in found.get("ingest", ()):  # a service of an older version says nothing of them
            output.say(f"ingest {one['id']} ({one['type']}): {'served' if one['served'] else one['reason']}")
        columns = ("case", "message_type", "result", "message")
        rows = [(one["path"], _type(one), "ok" if one["passed"] else "failed", one.get("message"))
                for one in tests["cases"]]  # fmt: skip
        if rows:
            output.table(columns, rows, "cases")
        _problems(output, found["problems"])
    return bool(found["valid"])


@profiles.command("install")
@_archive
@click.option("--name", help="Its name in the folder; default: that of the file.")
@action
async def install(api: Api, output: Output, archive: IO[bytes], name: str | None) -> bool:
    """Put an archive into the folder of the service, and use it."""
    file = name or Path(archive.name).name
    path = f"{_PATH}/install?{urlencode({'file': file})}"
    return _installed(output, await api.upload(path, archive.read(), "application/x-gtar"), file)


@profiles.command("roll-back")
@click.argument("file")
@action
async def roll_back(api: Api, output: Output, file: str) -> bool:
    """Use the archive that FILE was before it was installed.

    A second time undoes that.
    """
    return _installed(output, await api.post(f"{_PATH}/rollback?{urlencode({'file': file})}"), file)


def _installed(output: Output, found: dict[str, Any], file: str) -> bool:
    if not output.data(found):
        profile = next(one["profile"] for one in found["loaded"] if one["file"] == file)
        output.say(f"{file}: {profile['id']} {profile['version']} is installed; conversions use it within seconds")
    return True


def _problems(output: Output, problems: list[dict[str, Any]]) -> None:
    if problems:
        columns = ("severity", "file", "line", "place", "problem")
        keys = ("severity", "path", "line", "pointer", "message")
        output.table(columns, [[item.get(key) or None for key in keys] for item in problems], "problems")


@profiles.command("pack")
@click.argument("folder", type=_folder)
@click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path),
              help="The archive to write; default: the folder's name with .tar.gz, here.")  # fmt: skip
@writes_file
async def pack(api: Api, output: Output, folder: Path, target: Path | None) -> None:
    """Pack the folder of a profile into an archive.

    It holds manifest.yaml, README.md, maps/ and tests/.
    """
    target, size = await _pack(folder, target)
    if not output.data({"file": str(target), "bytes": size}):
        output.say(f"{target}: {size} bytes")


@profiles.command("new")
@click.option("--from", "source", required=True, type=_folder, help="A folder with sample messages.")
@click.option("--out", type=click.Path(path_type=Path), help="The folder to write; default: its id, here.")
@click.option("--id", "profile_id", default="", help="Its id; default: that of the first sender.")
@action
async def new(api: Api, output: Output, source: Path, out: Path | None, profile_id: str) -> bool:
    """Draft the profile of a sender from sample messages.

    Manifest, maps with places for Z segments, cases.
    """
    found = loads(await run_module("ipf.app.new_profile", str(source), str(out or ""), profile_id))
    if not output.data(found):
        output.record({
            "folder": found["folder"], "profile": found["id"], "valid": found["valid"], "messages": found["messages"],
            "types": ", ".join(f"{kind} ({count})" for kind, count in found["types"].items()),
            "cases": f"{found['cases']} passed", "Z segments": ", ".join(found["z_segments"]) or None,
            "types without a map": ", ".join(found["without_map"]) or None,
        })  # fmt: skip
        for text in found["failing"]:
            output.say(f"fails today: {text}")
        _problems(output, found["problems"])
        output.say(f"{found['folder']}/README.md says what was seen and what to do next")
    return bool(found["valid"])


async def _pack(folder: Path, target: Path | None) -> tuple[Path, int]:
    return _written(await run_module("ipf.app.pack_profile", str(folder)), folder, target)


def _written(content: bytes, folder: Path, target: Path | None) -> tuple[Path, int]:
    target = target or Path(f"{folder.resolve().name}.tar.gz")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise Refused(str(error)) from None
    return target, len(content)
