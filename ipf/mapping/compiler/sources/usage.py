"""Whether a rule uses the nodes of its items, or only their texts.

Most leaves of a message map use only texts (`xpn.XPN_2 as given -> name.given = given`), and need no node objects.  The
analysis is conservative: in doubt the rule uses nodes.
"""

from __future__ import annotations

from collections.abc import Container

from ipf.fhir.fhirpath import FhirPathError, parse
from ipf.fhir.fhirpath.language import ast
from ipf.mapping.compiler.expressions.native import parts
from ipf.mapping.language.model import Parameter, Rule, Source, Target


def needs_node(rule: Rule, source: Source, names: Container[str]) -> bool:
    """Whether the rule needs the node of this source's items.  `names`: the variables in scope outside the rule."""
    if rule.is_simple:
        return True
    name = source.variable
    if source.condition and _steps_in(source.condition, name, names, is_focus=True):
        return True
    position = rule.sources.index(source)
    return bool(name) and _used(rule, name, names, rule.sources[position + 1 :])


def _used(rule: Rule, name: str, names: Container[str], sources: tuple[Source, ...]) -> bool:
    passed = Parameter("id", name)
    return (
        any(_source_steps_in(rule, one, name, names) for one in sources)
        or any(_target_steps_in(one, name, names) for one in rule.targets)
        or any(passed in one.parameters for one in rule.dependents)
        or any(_used(one, name, names, one.sources) for one in rule.rules)
    )


def _source_steps_in(rule: Rule, source: Source, name: str, names: Container[str]) -> bool:
    is_focus = source.context == name
    if is_focus and (source.element or rule.is_simple):
        return True
    if is_focus and source.variable and _used(rule, source.variable, names, ()):
        return True
    texts = (source.condition, source.check, source.log_message, source.default_expression)
    return any(_steps_in(text, name, names, is_focus=is_focus) for text in texts if text)


def _target_steps_in(target: Target, name: str, names: Container[str]) -> bool:
    if target.context == name:
        return True
    if target.transform != "evaluate":
        return False
    if len(target.parameters) > 1 and target.parameters[0] == Parameter("id", name):
        return True
    return bool(target.parameters) and _steps_in(str(target.parameters[-1].value), name, names, is_focus=False)


def _steps_in(text: str, name: str, names: Container[str], *, is_focus: bool) -> bool:
    """Whether an expression reads elements of the variable; `is_focus`: bare names are its elements too."""
    try:
        return _node_steps_in(parse(text), name, names, is_focus=is_focus)
    except FhirPathError:
        return True


def _node_steps_in(node: ast.Node, name: str, names: Container[str], *, is_focus: bool) -> bool:
    if isinstance(node, ast.Member):
        if node.focus is None:
            return is_focus and node.name != name and node.name not in names
        if _is_named(node.focus, name):
            return True
    if isinstance(node, (ast.This, ast.TypeTest)):
        return True
    if isinstance(node, ast.Function) and node.name not in _ON_TEXT:
        return True
    return any(_node_steps_in(one, name, names, is_focus=is_focus) for one in parts(node))


def _is_named(node: ast.Node, name: str) -> bool:
    return isinstance(node, (ast.Variable, ast.Member)) and node.name == name


_ON_TEXT = frozenset(
    ("exists", "empty", "not", "first", "matches", "startsWith", "endsWith", "contains", "length", "count", "hasValue")
)
"""Functions with the same result for a node and for its text."""
