"""The syntax tree of a FHIRPath expression.  Frozen, so that it can be compared and hashed.

Grammar: http://hl7.org/fhirpath/N1/grammar.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: str, bool, int, Decimal, or a date, dateTime, time or quantity of `values.py`; `{}` is value None."""

    value: Any


@dataclass(frozen=True, slots=True)
class Variable:
    """`%name`, also `%'vs-name'`."""

    name: str


@dataclass(frozen=True, slots=True)
class This:
    """`$this`, `$index` or `$total`; `name` is without the dollar."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """`focus.name`; focus None = the context (or a type name, when it is the first word: decided by the compiler)."""

    focus: Node | None
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """`focus.name(args)`; focus None = the context."""

    focus: Node | None
    name: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """`focus[index]`."""

    focus: Node
    index: Node


@dataclass(frozen=True, slots=True)
class Unary:
    """`+operand` or `-operand`."""

    operator: str
    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`: | & and or xor implies = ~ != !~ < > <= >= in contains + - * / div mod."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class TypeTest:
    """`operand is type` or `operand as type`; `type_name` as written, e.g. `FHIR.Patient` or `string`."""

    operator: str
    operand: Node
    type_name: str


Node = Literal | Variable | This | Member | Function | Index | Unary | Binary | TypeTest
