"""Find the places of a file that scripts/mutants.py changes, and change them with cosmic-ray."""

import ast
import difflib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A change: its line, an operator of cosmic-ray and the number of its occurrence."""

    line: int
    operator: str
    occurrence: int


def iter_places(source: str) -> Iterator[Place]:
    """Yield all changes of a source, except in annotations."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        if get_operator(name).arguments():
            continue  # it changes names that are passed to it
        operator = get_operator(name)()
        positions = ((node, at) for node in nodes for at, _ in operator.mutation_positions(node))
        for occurrence, (node, at) in enumerate(positions):
            if not is_annotation(node):
                yield Place(at[0], name, occurrence)


def is_annotation(node: Any) -> bool:
    """Return whether a node is part of the type of an argument, a result or a variable."""
    while (parent := node.parent) is not None:
        types = {"tfpdef": parent.children[2:], "annassign": parent.children[1:2]}.get(
            parent.type, ()
        )
        if node in types or (parent.type == "funcdef" and node is parent.annotation):
            return True
        node = parent
    return False


def change_source(source: str, place: Place) -> str | None:
    """Return the source with a change; None if it is invalid or equivalent.

    cosmic-ray mistakes `**` before a mapping for a power.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    code = str(mutate_code(source, get_operator(place.operator)(), place.occurrence))
    with suppress(SyntaxError):
        return code if ast.dump(ast.parse(code)) != ast.dump(ast.parse(source)) else None
    return None


def describe_change(source: str, code: str) -> str:
    """Return the different lines of two sources, before and after."""
    lines = difflib.ndiff(source.splitlines(), code.splitlines())
    return " → ".join(line[2:].strip() for line in lines if line[:2] in ("- ", "+ "))


def find_statement(source: str, line: int) -> range:
    """Return the lines of the innermost statement at a line, without its inner statements."""
    lines = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            lines = range(node.lineno, body[0].lineno if body else (node.end_lineno or line) + 1)
    return lines if line in lines else range(line, line + 1)
