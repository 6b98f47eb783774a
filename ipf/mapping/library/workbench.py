"""Trying out a map before it is installed: on one message, and on the last messages of its type; installing it.

What arrives: the text of a map in the FHIR Mapping Language, and messages.  What leaves: the result with its trace, or
the mistake with its place; and how the results differ from those of the installed map.  A trial stores and installs
nothing, and runs in a process of its own, so that other messages are converted meanwhile.  `install` stores the text,
as `POST /mapping/fhir/StructureMap` does.

A candidate takes the place of the installed map with the same canonical, and of its message types, in a library of its
own.  Maps that it does not use are shared.
"""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

from ipf.errors import Category, Problem
from ipf.fhir.structure.check import check_formats
from ipf.hl7.message import Message
from ipf.mapping.language.grammar import parse, parse_header
from ipf.mapping.language.model import StructureMap
from ipf.mapping.language.printer import print_map
from ipf.mapping.language.structuremap import to_json
from ipf.mapping.library.definitions import installed_place
from ipf.mapping.library.installation import Installation, RunInThread
from ipf.mapping.library.installed_maps import SOURCE_TEXT, source_text
from ipf.mapping.library.origins import Checks
from ipf.mapping.library.service import as_claimed, findings_of
from ipf.mapping.library.trials import CANDIDATE, Trial, request_of, run_trial, steps_of
from ipf.ports import Claimed, Clock, Inbox, InstalledMap, Json
from ipf.ports.messages.inbox import MessageFilter
from ipf.ports.messages.mapping_admin import MapWorkbench

MOST_COMPARED = 200
_MAP = "StructureMap"
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9.-]+")


class Workbench:
    """Trials on the maps in use."""

    def __init__(
        self,
        installation: Installation,
        inbox: Inbox,
        run_in_thread: RunInThread,
        clock: Clock,
        folder: Path | None = None,
        checks: Checks | None = None,
        trial: Trial | None = None,
    ) -> None:
        """`folder`: the accepted map files, to show their text.  `checks`: validates the result of a trial.

        `trial`: what runs trials apart from the service; None: a thread.
        """
        self._trial = trial or self._in_thread
        self._clock = clock
        self._installation = installation
        self._inbox = inbox
        self._run_in_thread = run_in_thread
        self._folder = folder
        self._checks = checks

    async def source(self, canonical: str) -> Json:
        """The text of an installed map as it was written, with its comments; printed anew where there is none.

        `is_original`: it is the text as written.  `is_removable`: it was installed over HTTP.  Problem NOT_FOUND.
        """
        library = self._installation.library
        installed = self._installed(canonical)
        if installed is not None and canonical not in library.maps:
            return _unreadable(installed)
        if canonical not in library.maps:
            raise Problem(Category.NOT_FOUND, f"no StructureMap {canonical[:200]} is installed")
        content = await self._run_in_thread(lambda: library.maps[canonical])
        if installed is not None:
            text = source_text(installed.resource)
        else:
            text = await self._run_in_thread(lambda: _text_of_file(self._folder, content))
        return {
            "url": content.url,
            "file": content.file or None,
            "text": text or print_map(content),
            "is_original": text is not None,
            "is_removable": installed is not None,
        }

    async def install(self, text: str) -> Json:
        """Install a map from its text, in every process.  Problem: it does not compile with all others."""
        resource: Json = to_json(await self._run_in_thread(lambda: parse(text, CANDIDATE)))
        check_formats(resource)
        url = str(resource.get("url") or "")
        if not url or "|" in url:
            raise Problem(Category.REQUIRED, "a map needs a url in its header: /// url = ...", CANDIDATE)
        resource.setdefault("extension", []).append({"url": SOURCE_TEXT, "valueString": text})
        digest = sha256(url.encode()).hexdigest()[:12]
        plain = _NOT_IN_IDS.sub("-", url.rstrip("/").replace(":", "/").rpartition("/")[2]).strip("-")[:50]
        made = await self._installation.install("StructureMap", url, f"{plain or 'map'}-{digest}", resource)
        return {"url": url, "id": made.id, "version": made.version, "installed_at": made.updated_at.isoformat()}

    async def remove(self, canonical: str) -> Json:
        """Remove a map that was installed over HTTP; the one that it replaced is used again.  Problem NOT_FOUND."""
        found = self._installed(canonical)
        if found is None:
            raise Problem(Category.NOT_FOUND, f"no StructureMap {canonical[:200]} was installed over HTTP")
        await self._installation.remove("StructureMap", found.id)
        return {"url": canonical, "is_installed": canonical in self._installation.library.maps}

    def _installed(self, canonical: str) -> InstalledMap | None:
        found = (one for one in self._installation.installed if (one.resource_type, one.url) == (_MAP, canonical))
        return next(found, None)

    async def attempt(self, text: str | None, raw: bytes | None, message_id: int | None) -> Json:
        """The result of a map (None: the installed one) for a message: its bytes, or the id of a stored one.

        `mistake` instead of a result, when there is one.  Problem NOT_FOUND, VALUE.
        """
        claimed = await self._message(raw, message_id)
        made = await self._trial(request_of(text, [claimed]))
        if made["mistake"] is not None or self._checks is None:
            return made
        return {**made, "findings": await findings_of(self._checks, "", made["result"], steps_of(made))}

    async def compare(self, text: str, message_type: str, limit: int) -> Json:
        """How the results of a map for the newest messages of a type differ from those of the installed map."""
        wanted = MessageFilter(message_type=message_type)
        page = await self._inbox.page(wanted, min(limit, MOST_COMPARED), 0)
        rows = [row for one in page.rows if (row := await self._inbox.get(one.id)) is not None]
        made = await self._trial(request_of(text, map(as_claimed, rows), compares=True))
        return {"message_type": message_type, "messages": len(rows), **made}

    async def _message(self, raw: bytes | None, message_id: int | None) -> Claimed:
        if message_id is not None:
            row = await self._inbox.get(message_id)
            if row is None:
                raise Problem(Category.NOT_FOUND, f"there is no message with id {message_id}")
            return as_claimed(row)
        if not raw:
            raise Problem(Category.VALUE, "message or message_id is required")
        message = Message.parse(raw)
        header = message.header
        source = header.source_system, header.source_id, message.message_type
        return Claimed(0, 0, "", self._clock(), *source, raw, "", 0)

    async def _in_thread(self, request: Json) -> Json:
        made: Json = await self._run_in_thread(lambda: run_trial(self._installation.library, request))
        return made


def _unreadable(installed: InstalledMap) -> Json:
    """An installed map that cannot be read any more, so that it can be mended."""
    text = source_text(installed.resource)
    flags = {"is_original": text is not None, "is_removable": True}
    return {"url": installed.url, "file": installed_place(installed), "text": text or "", **flags}


def _text_of_file(folder: Path | None, content: StructureMap) -> str | None:
    """The text of a map of the folder; None for one of a package, or whose file was replaced."""
    path = None if folder is None else (folder.resolve() / content.file)
    if path is None or not content.file.endswith(".fml") or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    return text if parse_header(text, content.file).url == content.url else None


_: type[MapWorkbench] = Workbench
