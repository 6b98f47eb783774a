"""Reads YAML into the tree of `yaml_tree`.

Uses the composer of the library only, so no tag constructs an object.  Anchors and aliases are refused, since a few
lines of them can expand to a tree of any size, and so are duplicate keys.

Source: https://yaml.org/spec/1.1/
"""

from __future__ import annotations

from typing import Any

import yaml

from ipf.vendor_profiles.findings import Findings
from ipf.vendor_profiles.yaml_tree import Mapping, Node, Scalar, Sequence

MOST_DEPTH = 20


def read_yaml(content: bytes, path: str, findings: Findings) -> Node | None:
    """The document of a file; None, with findings, when it cannot be read."""
    try:
        text = content.decode("utf-8-sig")
        if not _is_plain(text, path, findings):
            return None
        made = yaml.compose(text, Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        findings.error(path, "", f"is not UTF-8 at byte {error.start}")
        return None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        findings.error(path, _place(mark), f"is no YAML: {getattr(error, 'problem', None) or error}", _line(mark))
        return None
    if made is None:
        findings.error(path, "", "is empty")
        return None
    return _tree(made, "", path, findings)


def _is_plain(text: str, path: str, findings: Findings) -> bool:
    """Whether the depth is bounded and there are no anchors; checked during parsing, since deep nesting has quadratic
    cost.
    """
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        at = event.start_mark
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            findings.error(path, _place(at), "is nested too deeply", _line(at))
            return False
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            findings.error(path, _place(at), "anchors and aliases are not taken", _line(at))
            return False
    return True


def _tree(node: yaml.Node, pointer: str, path: str, findings: Findings) -> Node:
    line = _line(node.start_mark)
    if isinstance(node, yaml.SequenceNode):
        found = (_tree(one, f"{pointer}/{place}", path, findings) for place, one in enumerate(node.value))
        return Sequence(tuple(found), pointer, line)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, pointer, path, findings)
    return Scalar(str(node.value), pointer, line, is_null=node.tag.endswith(":null"))


def _mapping(node: yaml.MappingNode, pointer: str, path: str, findings: Findings) -> Mapping:
    items: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            findings.error(path, pointer, "a key must be a text", _line(key.start_mark))
            continue
        name = str(key.value)
        at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in items:
            findings.error(path, at, "is there twice", _line(key.start_mark))
            continue
        items[name], lines[name] = _tree(value, at, path, findings), _line(key.start_mark)
    return Mapping(items, lines, pointer, _line(node.start_mark))


def _line(mark: Any) -> int:
    return mark.line + 1 if mark is not None else 0


def _place(mark: Any) -> str:
    return f"{mark.line + 1}:{mark.column + 1}" if mark is not None else ""
