"""One table of names: every encoding and every graph is in it, and all that names files follows from it."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters import encodings, graphs
from ltp_pipeline.exporters.encodings import ENCODINGS
from ltp_pipeline.exporters.files import rounding
from ltp_pipeline.exporters.graphs import GRAPHS
from ltp_pipeline.settings import file_names
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import ExportSettings
from tests.support.cli import invoke
from tests.support.paths import ROOT


def modules_with(package: object, name: str) -> set[str]:
    """The modules of a package that define an object of this name."""
    found = Path(package.__file__).parent.glob("*.py")
    return {
        path.stem for path in found if re.search(rf"^{name} = ", path.read_text(), re.MULTILINE)
    }


def test_every_encoding_is_one_module_and_one_object_of_its_name():
    assert modules_with(encodings, "ENCODING") == set(file_names.ENCODINGS)
    assert {name: encoding.name for name, encoding in ENCODINGS.items()} == {
        n: n for n in file_names.ENCODINGS
    }
    tools = [set(encoding.tool_support) for encoding in ENCODINGS.values()]
    assert all(named == tools[0] for named in tools)


def test_every_graph_is_one_module_and_one_object_of_its_name():
    assert modules_with(graphs, "GRAPH") == set(file_names.GRAPHS)
    assert {name: graph.name for name, graph in GRAPHS.items()} == {n: n for n in file_names.GRAPHS}
    assert [name for name, graph in GRAPHS.items() if not graph.description] == [
        file_names.ORIGINAL
    ]


def test_kinds_of_values_are_those_that_packed_files_can_store():
    assert set(rounding.STORAGE_PARTS) == {file_names.EXACT, *file_names.ROUNDED_STORAGES}
    assert rounding.STORAGE_PARTS[file_names.EXACT] == "v"  # a name inside every packed file


@pytest.mark.parametrize(
    ("name", "full", "file"),
    [
        ("packed", "packed", "model.packed.onnx"),
        ("sparse", "sparse", "model.sparse.onnx"),
        ("deploy", "deploy-packed", "model.deploy.packed.onnx"),
        ("deploy-packed", "deploy-packed", "model.deploy.packed.onnx"),
        ("deploy-dense", "deploy-dense", "model.deploy.dense.onnx"),
    ],
)
def test_a_name_is_an_encoding_a_graph_or_both(name: str, full: str, file: str):
    found = file_names.find_format(name)
    assert (found.name, found.file_name()) == (full, file)
    assert ExportSettings(formats=(name,)).formats == (full,)


@pytest.mark.parametrize(
    "name", ["zip", "original", "packed-deploy", "deploy-", "-packed", "deploy-deploy", ""]
)
def test_another_name_is_refused_with_those_there_are(name: str):
    with pytest.raises(InputError) as told:
        load_settings(None, options={"export": {"formats": [name]}})
    assert told.value.exit_code == 3
    assert (
        f"there is no format {name!r}; choose among {', '.join(file_names.FORMAT_CHOICES)}"
        in told.value.message
    )
    assert {"packed", "deploy", "deploy-sparse"} < set(file_names.FORMAT_CHOICES)


def test_file_patterns_are_all_names_of_files_and_no_others():
    for found in file_names.FORMATS.values():
        values = (file_names.EXACT, *(file_names.ROUNDED_STORAGES if found.can_be_rounded else ()))
        names = [found.file_name(kind) for kind in values]
        assert all(
            any(fnmatchcase(name, pattern) for pattern in file_names.FILE_PATTERNS)
            for name in names
        )
    others = (
        "model.onnx",
        "model.packed.onnx.bak",
        "model.mine.packed.onnx",
        "model.dense.rounded-int8.onnx",
    )
    assert not [
        name
        for name in others
        for pattern in file_names.FILE_PATTERNS
        if fnmatchcase(name, pattern)
    ]


@pytest.mark.parametrize(
    ("command", "option"), [("run", "--export"), ("pick", "--export"), ("export", "--format")]
)
def test_help_lists_the_names(capsys: pytest.CaptureFixture[str], command: str, option: str):
    shown = " ".join(invoke(capsys, command, "--help").out.split())
    assert option in shown
    assert file_names.FORMAT_HELP in shown
    assert "--deploy" not in shown


def test_the_former_option_and_key_are_unknown(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert invoke(capsys, "run", tmp_path / "model.onnx", "--deploy").code == 2
    with pytest.raises(InputError, match=r"unknown setting export\.deploy"):
        load_settings(None, options={"export": {"deploy": True}})


def test_the_docs_have_a_row_for_each():
    page = (ROOT / "docs" / "reference" / "file-formats.md").read_text()
    for name in (
        *file_names.ENCODINGS,
        *(graph for graph in file_names.GRAPHS if graph != file_names.ORIGINAL),
    ):
        assert f"| `{name}` |" in page
