"""Write docs/api.md: the public names of the package, from their own signatures and docstrings."""

import ast
import inspect
from pathlib import Path
from textwrap import dedent

import ltp_pipeline

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "api.md"
HEADER = """# Python API

Written by `python scripts/write_api.py`; do not edit.

`import ltp_pipeline` imports nothing heavy; the first call does. What is wrong is raised as
`ltp_pipeline.errors.LtpError`, whose `what` and `remedy` are the two lines that the command line shows. Which of these
names may change is told in [releasing.md](releasing.md).
"""
Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The whole page: verbs, settings, and what verbs return."""
    verbs, settings, results = [], [], []
    for name in ltp_pipeline.__all__:
        node = definition(getattr(ltp_pipeline, name))
        if isinstance(node, ast.FunctionDef):
            verbs.append(function(node))
        else:
            (settings if name.endswith("Settings") else results).append(class_(node))
    parts = {"Verbs": verbs, "Settings": settings, "Results": results}
    return HEADER + "".join(f"\n## {title}\n" + "".join(found) for title, found in parts.items())


def definition(thing: object) -> Definition:
    """The source of a function or a class, as a tree."""
    node = ast.parse(dedent(inspect.getsource(thing))).body[0]
    return Plain().visit(node)


def function(node: ast.FunctionDef) -> str:
    """A verb: its signature, a line for each argument, and what it does."""
    given = [f"    {argument},\n" for argument in arguments(node)]
    signature = f"def {node.name}(\n{''.join(given)}) -> {ast.unparse(node.returns) if node.returns else 'Any'}"
    return f"\n### {node.name}\n\n```text\n{signature}\n```\n\n{ast.get_docstring(node)}\n"


def arguments(node: ast.FunctionDef) -> list[str]:
    """Each argument as it is written."""
    found = [ast.unparse(argument) for argument in node.args.args]
    firsts = len(found) - len(node.args.defaults)
    for i, default in enumerate(node.args.defaults):
        found[firsts + i] += f" = {ast.unparse(default)}"
    if node.args.kwonlyargs:
        found.append(f"*{ast.unparse(node.args.vararg)}" if node.args.vararg else "*")
    for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        found.append(ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else ""))
    return found + ([f"**{ast.unparse(node.args.kwarg)}"] if node.args.kwarg else [])


class Plain(ast.NodeTransformer):
    """Types without what pydantic checks of them."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`Annotated[int, Field(ge=1)]` is an int."""
        self.generic_visit(node)
        annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if annotated and isinstance(node.slice, ast.Tuple) else node


def class_(node: ast.ClassDef) -> str:
    """A type: what it is, its fields, and what can be asked of it."""
    bases = [ast.unparse(base) for base in node.bases]
    fields, asked = [], []
    for inner in node.body:
        if isinstance(inner, ast.AnnAssign) and not ast.unparse(inner.target).startswith("_"):
            fields.append(f"{ast.unparse(inner)}\n")
        elif isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
            is_property = any("property" in ast.unparse(d) for d in inner.decorator_list)
            call = inner.name if is_property else f"{inner.name}({', '.join(arguments(inner)[1:])})"
            said = (ast.get_docstring(inner) or "").partition("\n")[0]
            asked.append(f"- `{call}`: {said}\n")
    code = f"\n```text\n{''.join(fields)}```\n" if fields else ""
    of = f" ({', '.join(bases)})" if bases and bases != ["Section"] else ""
    return f"\n### {node.name}{of}\n\n{ast.get_docstring(node)}\n{code}" + (
        "\n" + "".join(asked) if asked else ""
    )


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET.relative_to(ROOT)}")
