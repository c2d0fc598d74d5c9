"""What scripts/mutants.py changes: every place that cosmic-ray knows in a file, but for annotations."""

import ast
import difflib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a change can be made, by what cosmic-ray calls it."""

    line: int
    operator: str
    occurrence: int


def places(source: str) -> Iterator[Place]:
    """Every change that cosmic-ray knows, but for those of annotations."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        if get_operator(name).arguments():
            continue  # made for names that one gives it
        operator = get_operator(name)()
        found = ((node, start) for node in nodes for start, _ in operator.mutation_positions(node))
        for occurrence, (node, start) in enumerate(found):
            if not is_annotation(node):
                yield Place(start[0], name, occurrence)


def is_annotation(node: Any) -> bool:
    """Whether a node lies in the type of an argument, of a result or of a variable."""
    while (parent := node.parent) is not None:
        types = {"tfpdef": parent.children[2:], "annassign": parent.children[1:2]}.get(
            parent.type, ()
        )
        if node in types or (parent.type == "funcdef" and node is parent.annotation):
            return True
        node = parent
    return False


def changed(source: str, place: Place) -> str | None:
    """The file with a change; None where that is no Python: cosmic-ray takes `**` before a mapping for a power."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = str(mutate_code(source, get_operator(place.operator)(), place.occurrence))
    with suppress(SyntaxError):
        return code if ast.dump(ast.parse(code)) != ast.dump(ast.parse(source)) else None
    return None


def in_words(source: str, code: str) -> str:
    """The lines that differ, before and after."""
    lines = difflib.ndiff(source.splitlines(), code.splitlines())
    return " → ".join(line[2:].strip() for line in lines if line[:2] in ("- ", "+ "))


def statement(source: str, line: int) -> range:
    """The lines of the innermost statement at a line, without the statements in it."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            found = range(node.lineno, body[0].lineno if body else (node.end_lineno or line) + 1)
    return found if line in found else range(line, line + 1)
