"""Names and docstrings stay readable: rules that a program can check."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.paths import ROOT

MODULES = [p for f in ("pipeline", "stages", "exporters") for p in sorted((ROOT / f).rglob("*.py"))]
# Locals that say how a value came here, not what it is.
VAGUE_LOCALS = frozenset(
    [
        "found",
        "told",
        "said",
        "given",
        "wanted",
        "kept",
        "held",
        "known",
        "made",
        "taken",
        "what",
        "one",
        "more",
    ]
)
# Former names of functions that told a stranger nothing.
VAGUE_FUNCTIONS = frozenset(
    [
        "apart",
        "asked",
        "average",
        "borne_out",
        "conclude",
        "counted",
        "declared",
        "evidence",
        "fresh",
        "gap",
        "gathered",
        "guess",
        "hard",
        "held",
        "holds",
        "in_parts",
        "in_turns",
        "join",
        "judge",
        "keep",
        "kept",
        "least",
        "leave",
        "lift",
        "lower",
        "make",
        "masked",
        "masks_of",
        "on",
        "over",
        "prove",
        "quick",
        "reads",
        "ready",
        "recalled",
        "right",
        "speaks",
        "stamp",
        "stored",
        "told",
        "turn_over",
        "turned",
        "unfused",
        "users",
        "world",
    ]
)
RELATIVE_OPENINGS = ("The same", "Its ", "Their ", "Whether ", "What ", "Where ", "Of ", "In which")


def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_public_class_names_are_unique():
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_locals_name_their_content(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    stored = {
        f"{node.id}, line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        if node.id in VAGUE_LOCALS
    }
    assert stored == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_functions_have_no_names_that_were_replaced(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name.strip("_") for name in functions} & VAGUE_FUNCTIONS == set()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_docstrings_of_functions_are_complete_without_their_neighbors(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    openings = {
        f"{node.name}: {docstring.splitlines()[0]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and not _is_property(node)
        and (docstring := ast.get_docstring(node))
        if docstring.startswith(RELATIVE_OPENINGS)
    }
    assert openings == set()


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)
