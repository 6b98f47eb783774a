"""Commands for vendor profiles: list those in use, validate an archive, pack a folder, draft one from samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import click

from ipf.cli.api import Api, Refused
from ipf.cli.local import run_module
from ipf.cli.output import Output
from ipf.fhir.model.json import loads

Register = Callable[[Callable[..., Any]], Callable[..., None]]

_LOADED = ("file", "id", "version", "vendor", "message types", "messages of")


def register(cli: click.Group, command: Register) -> None:
    """Put the commands of this module under `cli`."""
    reload = click.option("--reload", is_flag=True, help="Reload the folder of archives first.")
    cli.command("profiles")(reload(command(profiles)))
    archive = click.argument("archive", type=click.File("rb"))
    cli.command("validate-profile")(archive(command(validate_profile)))
    name = click.option("--name", help="Its name in the folder; default: that of the file.")
    cli.command("install-profile")(archive(name(command(install_profile))))
    cli.command("roll-back-profile")(click.argument("file")(command(roll_back_profile)))
    folder = click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
    target = click.option("-o", "--output", "target", type=click.Path(dir_okay=False, path_type=Path),
                          help="The archive to write; default: the folder's name with .tar.gz, here.")  # fmt: skip
    cli.command("pack-profile")(folder(target(command(pack_profile))))
    source = click.option("--from", "source", required=True, help="A folder with sample messages.",
                          type=click.Path(exists=True, file_okay=False, path_type=Path))  # fmt: skip
    out = click.option("--out", type=click.Path(path_type=Path), help="The folder to write; default: its id, here.")
    profile_id = click.option("--id", "profile_id", default="", help="Its id; default: that of the first sender.")
    cli.command("new-profile")(source(out(profile_id(command(new_profile)))))


async def profiles(api: Api, output: Output, reload: bool) -> bool:
    """List the vendor profiles in use; exit status 1 when an archive was skipped."""
    path = "/admin/api/profiles"
    found = await (api.post(f"{path}/reload") if reload else api.get(path))
    if not output.data(found):
        output.table(_LOADED, [_row(item) for item in found["loaded"]])
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


async def validate_profile(api: Api, output: Output, archive: IO[bytes]) -> bool:
    """Check the archive of a vendor profile without installing it; exit status 1 when it is not valid."""
    found = await api.upload("/admin/api/profiles/validate", archive.read(), "application/x-gtar")
    if not output.data(found):
        profile, tests = found.get("profile") or {}, found["tests"]
        output.record({
            "profile": profile.get("id"), "version": profile.get("version"), "valid": found["valid"],
            "cases": f"{tests['passed']} passed, {tests['failed']} failed",
        })  # fmt: skip
        for one in found.get("ingest", ()):  # a service of an older version says nothing of them
            output.say(f"ingest {one['id']} ({one['type']}): {'served' if one['served'] else one['reason']}")
        columns = ("case", "message type", "result", "")
        rows = [(one["path"], _type(one), "ok" if one["passed"] else "failed", one.get("message"))
                for one in tests["cases"]]  # fmt: skip
        if rows:
            output.table(columns, rows)
        _problems(output, found["problems"])
    return bool(found["valid"])


async def install_profile(api: Api, output: Output, archive: IO[bytes], name: str | None) -> bool:
    """Put the archive of a vendor profile into the service's folder, and use it."""
    file = name or Path(archive.name).name
    path = f"/admin/api/profiles/install?{urlencode({'file': file})}"
    return _installed(output, await api.upload(path, archive.read(), "application/x-gtar"), file)


async def roll_back_profile(api: Api, output: Output, file: str) -> bool:
    """Use the archive that FILE was before it was installed; a second time undoes that."""
    return _installed(output, await api.post(f"/admin/api/profiles/rollback?{urlencode({'file': file})}"), file)


def _installed(output: Output, found: dict[str, Any], file: str) -> bool:
    if not output.data(found):
        profile = next(one["profile"] for one in found["loaded"] if one["file"] == file)
        output.say(f"{file}: {profile['id']} {profile['version']} is in use")
    return True


def _problems(output: Output, problems: list[dict[str, Any]]) -> None:
    if problems:
        columns = ("severity", "file", "line", "place", "problem")
        keys = ("severity", "path", "line", "pointer", "message")
        output.table(columns, [[item.get(key) or None for key in keys] for item in problems])


async def pack_profile(api: Api, output: Output, folder: Path, target: Path | None) -> None:
    """Pack the folder of a profile into an archive: manifest.yaml, README.md, maps/ and tests/."""
    target, size = _pack(folder, target)
    if not output.data({"file": str(target), "bytes": size}):
        output.say(f"{target}: {size} bytes")


async def new_profile(api: Api, output: Output, source: Path, out: Path | None, profile_id: str) -> bool:
    """Draft the profile of a sender from sample messages: manifest, maps with places for Z segments, cases."""
    found = loads(run_module("ipf.app.new_profile", str(source), str(out or ""), profile_id))
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


def _pack(folder: Path, target: Path | None) -> tuple[Path, int]:
    content = run_module("ipf.app.pack_profile", str(folder))
    target = target or Path(f"{folder.resolve().name}.tar.gz")
    try:
        target.write_bytes(content)
    except OSError as error:
        raise Refused(str(error)) from None
    return target, len(content)
