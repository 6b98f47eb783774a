"""The exception of FHIRPath: one class for parsing, checks and evaluation."""

from __future__ import annotations


class FhirPathError(Exception):
    """An expression that cannot be parsed, is wrong for its types, or cannot be evaluated on its input.

    `kind` is `syntax` (with `line` and `column`, both from 1), `semantic` (names or types that are wrong for any data)
    or `execution` (this data).  The text contains names and positions, never values of the data.
    """

    def __init__(self, text: str, *, kind: str = "execution", line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {text}" if line else text)
        self.text = text
        self.kind = kind
        self.line = line
        self.column = column


class BudgetError(FhirPathError):
    """An evaluation that takes more steps than it may, or makes a collection or a text beyond the limit."""
