"""Check what the repository says of itself: versions, and the files that other programs read."""

import ast
import re
import tomllib
from collections.abc import Iterator

import pytest
import yaml

import ltp_pipeline
from tests.support.paths import ROOT

ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
# A place in the code, with the function, class or attribute that is defined there.
PLACE = re.compile(r"`([\w/]+\.py):(\d+)`, `([\w.]+)`")
PLACES = PLACE.findall(ARCHITECTURE.read_text(encoding="utf-8"))


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert ltp_pipeline.__version__ == project == citation


@pytest.mark.parametrize(
    "name", [".pre-commit-config.yaml", ".github/workflows/ci.yml", "CONTRIBUTING.md", ".ci/run"]
)
def test_make_targets_in_documents_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = (ROOT / name).read_text()
    called = re.findall(
        r"(?:^make|^    make|(?:run|entry): make|`make) ((?:[a-z-]+ ?)+)", text, re.MULTILINE
    )
    words = {word for line in called for word in line.split()}
    assert words
    assert words <= targets


def test_workflow_covers_three_systems() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "have not run yet" in text.partition("name:")[0]
    jobs = yaml.safe_load(text)["jobs"]
    systems = {jobs["linux"]["runs-on"], *jobs["others"]["strategy"]["matrix"]["system"]}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}


def iter_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield qualified names of functions, classes and annotated attributes, with their lines."""
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id, node.lineno
        elif isinstance(node, ast.FunctionDef):
            yield prefix + node.name, node.lineno
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name, node.lineno
            yield from iter_definitions(node.body, f"{prefix}{node.name}.")


def test_architecture_page_names_a_place_for_each_line_number() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    assert len(PLACES) > 20
    assert len(PLACES) == len(re.findall(r"\.py:\d+", text)), (
        f"{ARCHITECTURE.name}: write a place as `FILE.py:LINE`, `NAME`"
    )


@pytest.mark.parametrize(("path", "line", "name"), PLACES)
def test_architecture_page_names_the_line_of_a_definition(path: str, line: str, name: str) -> None:
    file = ROOT / path
    assert file.is_file(), f"{ARCHITECTURE.name}: there is no file {path}"
    definitions = dict(iter_definitions(ast.parse(file.read_text(encoding="utf-8")).body))
    assert name in definitions, f"{ARCHITECTURE.name}: {path} does not define {name}"
    assert int(line) == definitions[name], (
        f"{ARCHITECTURE.name}: write `{path}:{definitions[name]}` instead of `{path}:{line}` for `{name}`"
    )
