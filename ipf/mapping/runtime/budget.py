"""The budget of one run of a map: steps, and the depth of calls.

A step is one execution of a group or of a rule for one item, one target, one expression, one item of a long list, or
`CHARACTERS_OF_A_STEP` characters of a text.  The compiled functions count them where they loop and call, so the steps
also bound the size of the result: each element takes a step, and each text takes steps for its length.  The budget
grows with the source, as the work of a map does.  A run beyond it is a Problem COSTLY, which names the budget, the map,
the group, the rule and the line.  It is permanent: the same message fails again until the map is corrected.

Measured: an ADT^A01 of ten segments takes about 500 steps, an ORU^R01 of 30 results about 5,000; a step takes 0.2 to 3
microseconds.
"""

from __future__ import annotations

from ipf.errors import Category, Problem
from ipf.mapping.runtime.trace import RulePosition

STEPS = 2_000_000
"""Steps of a run, whatever its source."""
STEPS_OF_A_CHARACTER = 20
"""Further steps for each character of the source."""
DEPTH = 100
"""Calls of a group from inside itself, directly or through others."""
CHARACTERS_OF_A_STEP = 64
FEW = 8
"""So many items of a list are part of the step that reads it."""
LONG = 1024
"""Shorter texts are part of the step that makes them."""
LONG_FIELD = 64
"""Characters of a field that are read within a step; a repetition of one character takes about as long as a step."""
READ_IN_A_STEP = 16
LONGEST = 50_000_000
"""Characters of a text that a rule makes."""


def steps_for(characters: int) -> int:
    """The steps of a run for a source of this size."""
    return STEPS + STEPS_OF_A_CHARACTER * characters


def out_of_steps(limit: int, at: RulePosition | None) -> Problem:
    """The Problem of a run that takes more steps than it may."""
    text = f"the budget of {limit} steps of a map run is used up: the map does too much for this message"
    return Problem(Category.COSTLY, text, None if at is None else place_of(at))


def too_deep(at: RulePosition | None) -> Problem:
    """The Problem of groups that call themselves without end."""
    text = f"the budget of {DEPTH} nested calls of a map run is used up: a group calls itself"
    return Problem(Category.COSTLY, text, None if at is None else place_of(at))


def too_long() -> Problem:
    """The Problem of a rule that makes a text without end."""
    return Problem(Category.COSTLY, f"the budget of {LONGEST} characters of a text of a map run is used up")


def too_nested(at: RulePosition) -> Problem:
    """The Problem of a result, or of calls, nested deeper than Python allows."""
    text = "the budget of nesting of a map run is used up: calls or elements are nested too deeply"
    return Problem(Category.COSTLY, text, place_of(at))


def place_of(at: RulePosition) -> str:
    """A rule in an error message: group, rule, canonical of the map and line."""
    rule = f".rule '{at.rule}'" if at.rule else ""
    return f"{at.group}{rule} ({at.map_url}, line {at.line})"
