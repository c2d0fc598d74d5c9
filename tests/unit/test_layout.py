"""The package is laid out as pyproject.toml and CONTRIBUTING.md say."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

FOLDERS = {
    "pipeline": "ltp_pipeline",
    "stages": "ltp_pipeline.stages",
    "exporters": "ltp_pipeline.exporters",
}
OF_NO_MODULE = (
    "test_layout.py",
    "test_action.py",
    "test_documents.py",
    "test_language.py",
)  # tests of the tree and of its other files
UPWARD = {  # imports of gates that still have to be cut
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def modules() -> dict[str, Path]:
    """Every module of the package by its import name."""
    result = {}
    for folder, package in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            name = ".".join([package, *parts]).removesuffix(".__init__")
            result[name] = path
    return result


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it, for its types too."""
    allowed = modules()
    result: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{a.name}" for a in node.names}
            result |= (names & allowed.keys()) or {node.module}
    return {name for name in result if name.startswith("ltp_pipeline.")}


def layers() -> dict[str, int]:
    """The lines of the list in docs/explanation/architecture.md, by the modules and packages on them."""
    (listed,) = re.findall(
        r"```layers\n(.*?)```",
        (ROOT / "docs" / "explanation" / "architecture.md").read_text(),
        re.S,
    )
    return {
        f"ltp_pipeline.{name}": i
        for i, line in enumerate(listed.splitlines())
        for name in line.split()
    }


def layer(name: str) -> int:
    """The line that a module stands on, by itself or by its package."""
    allowed = layers()
    while name not in allowed:
        name = name.rpartition(".")[0]
    return allowed[name]


def test_listed_packages_are_the_folders_with_modules():
    folders = {name for name, path in modules().items() if path.name == "__init__.py"}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == folders


@pytest.mark.parametrize(
    "name", [n for n in modules() if n not in ("ltp_pipeline", "ltp_pipeline.stages")]
)
def test_modules_import_only_what_lies_below_them(name: str):
    wrong = {other for other in imports(modules()[name]) if layer(other) > layer(name)}
    wrong -= {f"ltp_pipeline.gates.{module}" for module in UPWARD.get(name, ())}
    assert not wrong


def test_equations_import_neither_onnx_nor_the_package():
    path = modules()["ltp_pipeline.stages.learn_thresholds.functional"]
    names = {
        a.name
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, ast.Import)
        for a in n.names
    }
    assert names == {"torch"}
    assert not imports(path)


def test_exporters_do_not_import_torch():
    for name, path in modules().items():
        if name.startswith("ltp_pipeline.exporters"):
            assert "torch" not in path.read_text().replace("pytorch", ""), name


def test_typer_is_imported_by_the_command_line_only():
    users = {name for name, path in modules().items() if "import typer" in path.read_text()}
    assert users
    assert all(name.startswith("ltp_pipeline.cli.") for name in users)


def test_heavy_modules_are_imported_on_demand():
    heavy = ("torch", "onnx", "onnxruntime", "numpy", "rich")
    code = f"import sys, ltp_pipeline.cli.app; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_public_names_are_verbs_settings_and_results():
    import ltp_pipeline
    from ltp_pipeline.settings import schema

    sections = {type(field.default).__name__ for field in schema.Settings.model_fields.values()}
    returned = {
        "Comparison",
        "InspectionResult",
        "ValidationResult",
        "Network",
        "RunResult",
        "Report",
        "TrailEntryInfo",
        "GateResult",
    }
    returned |= {"AccelerationResult", "QuantizationResult"}
    verbs = {
        "compare",
        "export",
        "gate",
        "handoff",
        "import_model",
        "init",
        "inspect",
        "pick",
        "report",
        "run",
    }
    verbs |= {"accelerate", "sparse_ops_library", "quantize", "trail", "unpack", "validate"}
    given = {"InputSettings", "Metric"}  # within settings, and in a task of one's own
    assert set(ltp_pipeline.__all__) == {"Settings", *sections, *returned, *verbs, *given}
    assert all(getattr(ltp_pipeline, name).__name__ == name for name in ltp_pipeline.__all__)
    assert ltp_pipeline.__version__ == PROJECT["project"]["version"]


def test_modules_do_not_shadow_verbs():
    import ltp_pipeline

    assert not {f"ltp_pipeline.{name}" for name in ltp_pipeline.__all__} & modules().keys()


@pytest.mark.parametrize("verb", ["compare", "gate"])
def test_gate_does_not_import_torch(verb: str):
    code = f"import sys; from ltp_pipeline import {verb}; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_settings_do_not_import_torch():
    code = (
        "import sys; from ltp_pipeline import Settings; Settings(); print('torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_settings_have_descriptions():
    from ltp_pipeline.settings.schema import Settings

    for section, field in Settings.model_fields.items():
        for key, value in field.annotation.model_fields.items():
            assert value.description, f"{section}.{key}"


def test_gates_have_a_row_in_the_docs():
    from ltp_pipeline.settings.schema import GateSettings

    text = (ROOT / "docs" / "reference" / "gates.md").read_text()
    for name in GateSettings.model_fields:
        assert f"`{name}`" in text
        assert f"`--{name.replace('_', '-')}`" in text


def test_unit_tests_mirror_the_modules():
    """stages/train/loop.py is tested in stages/train/test_loop.py; a package is tested like a module of its name."""
    lost = []
    for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        place = path.relative_to(ROOT / "tests" / "unit")
        tested = ROOT / place.parent / place.stem.removeprefix("test_")
        if str(place) not in OF_NO_MODULE and not (
            tested.with_suffix(".py").is_file() or tested.is_dir()
        ):
            lost.append(str(place))
    assert not lost


def test_tests_do_not_import_or_call_tests():
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        result = [node for node in tree if _calls_a_test(node)]
        assert not result, (
            f"{path.relative_to(ROOT)}:{result[0].lineno}: put what both need into tests/support"
        )


def _calls_a_test(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name.startswith("test_")
        case ast.ImportFrom(module=str(name)):
            return name.rpartition(".")[2].startswith("test_")
    return False
