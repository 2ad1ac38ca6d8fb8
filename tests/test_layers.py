"""The packages import one way, and files stay small enough to be about one subject."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("interpreter", "timing", "jobs", "farm")
MAX_LINES = 800  # a ceiling; a file about one subject rarely needs 500

FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Top-level package and line of every import of a file, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield (node.module or "").partition(".")[0], node.lineno


def test_there_is_something_to_check() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(LAYERS)
    assert any(name == "interpreter" for path in FILES for name, _ in imported(path))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_only_those_below(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] == layer
        for name, line in imported(path)
        if name in above or name == "tests"
    ]
    assert not wrong, "\n".join(wrong)


def test_files_are_about_one_subject() -> None:
    long = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in long.items() if lines > MAX_LINES}
