"""Names of files: every encoding and every graph has one, and documentation and code follow."""

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
    """Return the modules of a package that define an object with this name."""
    return {
        path.stem
        for path in Path(package.__file__).parent.glob("*.py")
        if re.search(rf"^{name} = ", path.read_text(), re.MULTILINE)
    }


def is_file_name(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in file_names.FILE_PATTERNS)


def test_every_encoding_is_an_object_in_a_module_of_its_name():
    assert modules_with(encodings, "ENCODING") == set(file_names.ENCODINGS)
    assert set(ENCODINGS) == set(file_names.ENCODINGS)
    assert all(encoding.name == name for name, encoding in ENCODINGS.items())


def test_every_graph_is_an_object_in_a_module_of_its_name():
    assert modules_with(graphs, "GRAPH") == set(file_names.GRAPHS)
    assert set(GRAPHS) == set(file_names.GRAPHS)
    assert all(graph.name == name for name, graph in GRAPHS.items())
    undescribed = [name for name, graph in GRAPHS.items() if not graph.description]
    assert undescribed == [file_names.ORIGINAL]


def test_weight_storage_is_what_packed_files_can_store():
    assert set(rounding.STORAGE_PARTS) == {file_names.EXACT, *file_names.ROUNDED_STORAGES}
    assert rounding.STORAGE_PARTS[file_names.EXACT] == "v"  # a name inside every packed file


@pytest.mark.parametrize(
    ("name", "full_name", "file_name"),
    [
        ("packed", "packed", "model.packed.onnx"),
        ("sparse", "sparse", "model.sparse.onnx"),
        ("deploy", "deploy-packed", "model.deploy.packed.onnx"),
        ("deploy-packed", "deploy-packed", "model.deploy.packed.onnx"),
        ("deploy-dense", "deploy-dense", "model.deploy.dense.onnx"),
    ],
)
def test_find_format_name_is_an_encoding_a_graph_or_both(name: str, full_name: str, file_name: str):
    export_format = file_names.find_format(name)
    assert (export_format.name, export_format.file_name()) == (full_name, file_name)
    assert ExportSettings(formats=(name,)).formats == (full_name,)


@pytest.mark.parametrize(
    "name", ["zip", "original", "packed-deploy", "deploy-", "-packed", "deploy-deploy", ""]
)
def test_find_format_unknown_name_is_rejected_with_all_choices(name: str):
    with pytest.raises(InputError) as caught:
        load_settings(None, options={"export": {"formats": [name]}})
    assert caught.value.exit_code == 3
    assert repr(name) in caught.value.message
    assert ", ".join(file_names.FORMAT_CHOICES) in caught.value.message
    assert {"packed", "deploy", "deploy-sparse"} < set(file_names.FORMAT_CHOICES)


def test_file_patterns_match_all_names_of_files_and_no_others():
    for export_format in file_names.FORMATS.values():
        assert is_file_name(export_format.file_name())
        if export_format.can_be_rounded:
            for storage in file_names.ROUNDED_STORAGES:
                assert is_file_name(export_format.file_name(storage))
    assert not is_file_name("model.onnx")
    assert not is_file_name("model.packed.onnx.bak")
    assert not is_file_name("model.mine.packed.onnx")
    assert not is_file_name("model.dense.rounded-int8.onnx")


@pytest.mark.parametrize(
    ("command", "option"), [("run", "--export"), ("pick", "--export"), ("export", "--format")]
)
def test_help_lists_the_names(capsys: pytest.CaptureFixture[str], command: str, option: str):
    help_text = " ".join(invoke(capsys, command, "--help").out.split())
    assert option in help_text
    assert file_names.FORMAT_HELP in help_text


def test_documentation_has_a_row_for_each_name():
    page = (ROOT / "docs" / "reference" / "file-formats.md").read_text()
    for name in (*file_names.ENCODINGS, *file_names.GRAPHS):
        if name != file_names.ORIGINAL:
            assert f"| `{name}` |" in page
