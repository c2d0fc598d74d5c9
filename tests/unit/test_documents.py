"""Check what the repository says of itself: versions, and the files that other programs read."""

import re
import tomllib

import pytest
import yaml

import ltp_pipeline
from tests.support.paths import ROOT


def test_one_version_stands_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"]
    assert ltp_pipeline.__version__ == project == citation


@pytest.mark.parametrize(
    "name", [".pre-commit-config.yaml", ".github/workflows/ci.yml", "CONTRIBUTING.md", ".ci/run"]
)
def test_targets_of_make_that_are_called_exist(name: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = (ROOT / name).read_text()
    called = re.findall(
        r"(?:^make|^    make|(?:run|entry): make|`make) ((?:[a-z-]+ ?)+)", text, re.MULTILINE
    )
    words = {word for line in called for word in line.split()}
    assert words
    assert words <= targets


def test_the_workflow_covers_three_systems_and_says_that_it_was_not_run() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "have not run yet" in text.partition("name:")[0]
    jobs = yaml.safe_load(text)["jobs"]
    systems = {jobs["linux"]["runs-on"], *jobs["others"]["strategy"]["matrix"]["system"]}
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}
