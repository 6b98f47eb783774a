"""What the tests of this room share: short ways to a map, a run and a message."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from typing import Any

from ipf.hl7.message import Message
from ipf.mapping.compiler.compile import Compiler, Program
from ipf.mapping.compiler.groups import Environment
from ipf.mapping.compiler.models import Models
from ipf.mapping.language.concepts import ConceptTables
from ipf.mapping.language.grammar import parse
from ipf.mapping.runtime.run import Run
from ipf.ports import Json
from tests.reference import REFERENCE

FML = REFERENCE / "fml"
KEY = b"a message"


def cross_version_maps() -> Iterable[tuple[str, str]]:
    """(name, text) of the 340 maps between R4 and R5."""
    with zipfile.ZipFile(FML / "cross-version.zip") as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".fml"):
                yield name, archive.read(name).decode()


HEAD = '/// url = "urn:test:map"\n'
V2 = 'uses "urn:ipf:v2:ADT_A01" alias ADT_A01 as source\n'


def program(
    text: str, *others: str, logical: Iterable[Json] = (), tables: Iterable[Json] = (), offset: str = "Z"
) -> Program:
    """The compiled map of a text, with others that it may import."""
    maps = [parse(one, f"map{number}.fml") for number, one in enumerate((text, *others))]
    environment = Environment(Models(logical), ConceptTables(tables), offset)
    return Program(Compiler(maps, environment), maps[0])


def patient_program(rules: str, **more: Any) -> Program:
    """Rules of one group from an ADT^A01 (`src`, with `pid`) to a Patient (`tgt`)."""
    groups = f"group main(source src : ADT_A01, target tgt : Patient) {{\n src.PID as pid then {{\n{rules}\n}}; }}"
    return program(HEAD + V2 + groups, **more)


def message(*segments: str) -> Message:
    """An ADT^A01 of these segments."""
    head = r"MSH|^~\&|APP|FAC|RCV|RF|20260101120000||ADT^A01^ADT_A01|MSG1|P|2.5.1"
    return Message.parse("\r".join((head, *segments)).encode())


def run(compiled: Program, source: Any, *, trace: bool = False) -> tuple[Json, Run]:
    """The target and the state of the run."""
    return compiled.run(source, KEY, trace=trace)


def mapped(compiled: Program, *segments: str) -> Json:
    """Target of a message, without its resourceType."""
    target = dict(run(compiled, message(*segments))[0])
    target.pop("resourceType", None)
    return target
