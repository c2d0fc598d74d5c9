"""Print figures of how the source code reads, for this package and for installed ones.

    python scripts/code_metrics.py [--json] [PACKAGE ...]

A figure shows where to look; it does not decide. Docstrings and comments do not count as tokens.
The peers are packages whose source lies in the environment; pass other names to compare with them.
"""

import argparse
import ast
import importlib.util
import io
import json
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("pipeline", "stages", "exporters")
PEERS = ("typer", "jinja2", "pydantic")
NO_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DENSE = (
    ast.ListComp,
    ast.SetComp,
    ast.DictComp,
    ast.GeneratorExp,
    ast.IfExp,
    ast.NamedExpr,
)


@dataclass(frozen=True)
class SourceFigures:
    """Figures of a set of Python files.

    Attributes:
        modules: Number of files.
        lines: Lines of text, docstrings included.
        tokens: Tokens of code.
        tokens_per_line: Tokens per line that has code.
        dense_per_1000_tokens: Comprehensions, conditional expressions and walruses.
        words_per_function: Mean number of words in the name of a function or method.
        one_word_functions: Fraction of functions and methods with a name of one word.
        repeated_class_names: Public names of top-level classes in several modules.
    """

    modules: int
    lines: int
    tokens: int
    tokens_per_line: float
    dense_per_1000_tokens: float
    words_per_function: float
    one_word_functions: float
    repeated_class_names: int


def measure_sources(paths: list[Path]) -> SourceFigures:
    """Return the figures of these Python files."""
    lines = tokens = code_lines = dense = 0
    words: list[int] = []
    classes: Counter[str] = Counter()
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        tree = ast.parse(text)
        lines += text.count("\n")
        positions = list(_code_lines(text, _docstring_lines(tree)))
        tokens += len(positions)
        code_lines += len(set(positions))
        for node in ast.walk(tree):
            dense += isinstance(node, DENSE)
            if isinstance(node, FUNCTIONS) and not node.name.startswith("__"):
                words.append(count_words(node.name))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name] += 1
    return SourceFigures(
        modules=len(paths),
        lines=lines,
        tokens=tokens,
        tokens_per_line=round(tokens / max(code_lines, 1), 2),
        dense_per_1000_tokens=round(1000 * dense / max(tokens, 1), 2),
        words_per_function=round(sum(words) / max(len(words), 1), 2),
        one_word_functions=round(words.count(1) / max(len(words), 1), 2),
        repeated_class_names=sum(count > 1 for count in classes.values()),
    )


def count_words(name: str) -> int:
    """Return the number of words of a name in snake_case."""
    return len([word for word in name.split("_") if word])


def find_own_sources() -> list[Path]:
    """Return the modules of the product."""
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]


def find_package_sources(package: str) -> list[Path]:
    """Return the modules of an installed package, without tests and vendored code."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: package {package!r} is not installed")
    root = Path(spec.submodule_search_locations[0])
    paths = sorted(root.rglob("*.py"))
    return [path for path in paths if not {"tests", "_vendor"}.intersection(path.parts)]


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of all docstrings."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return lines


def _code_lines(text: str, docstring_lines: set[int]) -> Iterator[int]:
    """Yield the line of every token that is code."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE and token.start[0] not in docstring_lines:
            yield token.start[0]


def main() -> None:
    """Print a table, or one line of JSON for each package."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "packages",
        nargs="*",
        default=list(PEERS),
        metavar="PACKAGE",
        help="installed packages to compare with; default: typer, jinja2 and pydantic",
    )
    parser.add_argument("--json", action="store_true", help="print a line of JSON")
    options = parser.parse_args()
    figures = {"ltp_pipeline": measure_sources(find_own_sources())}
    for package in options.packages:
        figures[package] = measure_sources(find_package_sources(package))
    if options.json:
        print(json.dumps({name: asdict(each) for name, each in figures.items()}))
        return
    print(f"{'':24}" + "".join(f"{name:>14}" for name in figures))
    for field in asdict(figures["ltp_pipeline"]):
        print(f"{field:24}" + "".join(f"{getattr(f, field):>14}" for f in figures.values()))


if __name__ == "__main__":
    main()
