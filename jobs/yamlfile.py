"""Reading a YAML file so that errors can name a line: plain values plus the line of every key, duplicates refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from interpreter.errors import FarmError

Place = tuple[str | int, ...]


class SweepError(FarmError):
    """A sweep file that cannot be used. The message names file, line, key, value and what is allowed."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """`data` is what the file holds; `lines` maps a key's path to its line (counted from 1)."""

    path: Path
    data: dict[str, Any]
    lines: dict[Place, int]

    def at(self, place: Place) -> str:
        """'file:line' of the nearest enclosing key that has a line."""
        for length in range(len(place), 0, -1):
            line = self.lines.get(place[:length])
            if line is not None:
                return f"{self.path}:{line}"
        return str(self.path)


SWEEP = "a sweep is a mapping of keys (name, kernel, parameters, ...)"


def read_yaml(path: Path, expected: str = SWEEP) -> YamlFile:
    """Read a YAML mapping. Raises SweepError for a missing file, bad YAML, a duplicate key, or another top level
    (`expected` is said then)."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SweepError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise SweepError(f"{path}: is a folder; name the sweep.yaml in it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SweepError(f"{path}: cannot be read: {error}") from None
    lines: dict[Place, int] = {}
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is not None:
            _walk(path, root, (), lines, depth=0)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise SweepError(f"{path}{line}: not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SweepError(f"{path}: not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(data, dict):
        raise SweepError(f"{path}: {expected}")
    return YamlFile(path=path, data=data, lines=lines)


def _walk(path: Path, node: yaml.Node, place: Place, lines: dict[Place, int], depth: int) -> None:
    if depth > 50 or len(lines) > 200_000:  # aliases can make a small file describe an endless one
        raise SweepError(f"{path}: nested too deeply")
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else str(key_node.value)
            here = (*place, key)
            if here in lines:
                raise SweepError(f"{path}:{key_node.start_mark.line + 1}: {key}: given twice")
            lines[here] = key_node.start_mark.line + 1
            _walk(path, value_node, here, lines, depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            here = (*place, index)
            lines[here] = item.start_mark.line + 1
            _walk(path, item, here, lines, depth + 1)
