"""Files of a report are counted again: what it says otherwise is refused, whether or not it agrees with itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from ltp_pipeline.errors import InputError
from ltp_pipeline.gates.recount import UNLABELED, check_counts
from ltp_pipeline.results.consistency import ContradictionError
from ltp_pipeline.system.hashing import sha256_file
from tests.support.finished import lay_out
from tests.support.sample_report import report_of


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recount") / "run"
    lay_out(folder)
    return folder


def contradiction_of(content: dict[str, Any], folder: Path) -> ContradictionError:
    """Return the error that counting the files of a report again raises."""
    with pytest.raises(ContradictionError) as caught:
        check_counts(report_of(content), folder)
    return caught.value


@pytest.fixture
def content(laid_out: Path, tmp_path: Path) -> dict[str, Any]:
    """The report of the files that were laid out; the same again elsewhere has the same content."""
    return lay_out(tmp_path / "again")


def test_check_counts_matching_report_passes(laid_out: Path, content: dict[str, Any]) -> None:
    check_counts(report_of(content), laid_out)


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (("pruned", "files", 0, "nonzeros"), "pruned.files.0.nonzeros"),
        (("pruned", "files", 1, "nonzeros"), "pruned.files.1.nonzeros"),
        (("pruned", "files", 0, "bytes"), "pruned.files.0.bytes"),
        (("pruned", "files", 1, "bytes"), "pruned.files.1.bytes"),
        (("pruned", "model_nonzeros"), "pruned.model_nonzeros"),
        (("layers", 2, "nonzeros"), "layers.2.nonzeros"),
        (("layers", 2, "elements"), "layers.2.elements"),
        (("model", "float_elements"), "model.float_elements"),
        (("baseline", "files", 0, "nonzeros"), "nonzeros of model.baseline.packed.onnx"),
        (("baseline", "curve", 2, "nonzeros"), "nonzeros of baseline/3/model.packed.onnx"),
        (("baseline", "model_nonzeros"), "baseline.model_nonzeros"),
        (("layers", 1, "baseline_nonzeros"), "layers.1.baseline_nonzeros"),
    ],
)
def test_check_counts_other_number_raises_with_both(
    laid_out: Path, content: dict[str, Any], path: tuple[Any, ...], key: str
) -> None:
    part: Any = content
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] -= 1
    stated = part[path[-1]]
    error = contradiction_of(content, laid_out)
    assert (error.key, error.stated, error.computed) == (key, stated, stated + 1)
    assert str(stated) in error.message
    assert str(stated + 1) in error.message


def test_check_counts_other_uses_than_the_shapes_tell_raises(
    laid_out: Path, content: dict[str, Any]
) -> None:
    content["layers"][1]["uses"] = 9
    error = contradiction_of(content, laid_out)
    assert (error.stated, error.computed) == (9, 1)
    assert "'body.weight'" in error.key


def test_check_counts_uses_that_were_not_counted_are_not_compared(
    laid_out: Path, content: dict[str, Any]
) -> None:
    content["layers"][1]["uses"] = None
    check_counts(report_of(content), laid_out)


def test_check_counts_unlisted_layer_raises(laid_out: Path, content: dict[str, Any]) -> None:
    gone = content["layers"].pop(0)
    for network, key in (("pruned", "nonzeros"), ("baseline", "baseline_nonzeros")):
        for file in content[network]["files"]:
            file["nonzeros"] -= gone[key]
    assert "'stem.weight'" in contradiction_of(content, laid_out).stated


def test_check_counts_report_without_layers_raises(laid_out: Path, content: dict[str, Any]) -> None:
    content["layers"] = []
    for network in (content["pruned"], content["baseline"]):
        for part in (network, *network["files"]):
            part["nonzeros"] = None
    assert "'body.weight'" in contradiction_of(content, laid_out).stated


def saved_again(folder: Path, model: onnx.ModelProto, file: dict[str, Any]) -> None:
    """A file with other content, of which the report has hash and size."""
    path = folder / file["path"]
    onnx.save(model, path)
    file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}


@pytest.mark.parametrize("graph", ["original", "deploy"])
@pytest.mark.parametrize("dead", [False, True])
def test_check_counts_layer_that_is_not_multiplied_raises(
    tmp_path: Path, graph: str, dead: bool
) -> None:
    content = lay_out(tmp_path)
    file = content["pruned"]["files"][1]
    model = onnx.load(tmp_path / file["path"])
    real = onnx.TensorProto()
    real.CopyFrom(next(t for t in model.graph.initializer if t.name == "stem.weight"))
    real.name = "real"
    model.graph.initializer.append(real)
    model.graph.node[0].input[1] = "sum"
    model.graph.node.insert(0, onnx.helper.make_node("Add", ["stem.weight", "real"], ["sum"]))
    if dead:  # a node that no output depends on
        model.graph.node.append(onnx.helper.make_node("MatMul", ["x", "stem.weight"], ["unused"]))
    if graph != "original":
        model.metadata_props.add(key="ltp.graph", value=graph)
        file["graph"] = graph
    saved_again(tmp_path, model, file)
    content["model"]["float_elements"] = None
    assert "'stem.weight'" in contradiction_of(content, tmp_path).stated


def test_check_counts_unused_layer_need_not_be_listed(tmp_path: Path) -> None:
    content = lay_out(tmp_path)
    content["pruned"]["files"] = [file := content["pruned"]["files"][1]]
    model = onnx.load(tmp_path / file["path"])
    model.graph.node.append(onnx.helper.make_node("MatMul", ["x", "unlisted"], ["unused"]))
    model.graph.initializer.append(
        onnx.numpy_helper.from_array(np.ones((8, 2), np.float32), "unlisted")
    )
    saved_again(tmp_path, model, file)
    content["model"]["float_elements"] = content["pruned"]["model_nonzeros"] = None
    check_counts(report_of(content), tmp_path)


def test_check_counts_layer_elements_in_every_graph(tmp_path: Path) -> None:
    content = lay_out(tmp_path)
    content["pruned"]["files"] = [file := content["pruned"]["files"][1]]
    model = onnx.load(tmp_path / file["path"])
    model.metadata_props.add(key="ltp.graph", value="deploy")
    file["graph"] = "deploy"
    saved_again(tmp_path, model, file)
    check_counts(report_of(content), tmp_path)
    content["layers"][0]["elements"] *= 10
    error = contradiction_of(content, tmp_path)
    assert (error.key, error.stated) == ("layers.0.elements", 640)


def test_check_counts_file_without_metadata_raises(tmp_path: Path) -> None:
    content = lay_out(tmp_path)
    file = content["pruned"]["files"][1]
    model = onnx.load(tmp_path / file["path"])
    del model.metadata_props[:]
    saved_again(tmp_path, model, file)
    error = contradiction_of(content, tmp_path)
    assert (error.key, error.computed) == ("model.sha256", UNLABELED)


def test_check_counts_missing_layer_raises(laid_out: Path, content: dict[str, Any]) -> None:
    content["layers"][0]["name"] = "elsewhere"
    with pytest.raises(InputError, match="'elsewhere'"):
        check_counts(report_of(content), laid_out)


@pytest.mark.parametrize(
    ("label", "value", "key"),
    [
        ("format", "dense", "pruned.files.1.encoding"),
        ("graph", "deploy", "pruned.files.1.graph"),
        ("values", "int8", "pruned.files.1.weight_storage"),
        ("source_sha256", "b" * 64, "model.sha256"),
    ],
)
def test_check_counts_other_metadata_raises(
    tmp_path: Path, label: str, value: str, key: str
) -> None:
    content = lay_out(tmp_path)
    file = content["pruned"]["files"][1]
    path = tmp_path / file["path"]
    model = onnx.load(path)
    onnx.helper.set_model_props(
        model, {p.key: p.value for p in model.metadata_props} | {f"ltp.{label}": value}
    )
    onnx.save(model, path)
    file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    error = contradiction_of(content, tmp_path)
    assert (error.key, error.computed) == (key, value)


@pytest.mark.parametrize("hidden", ["model.sparse.onnx.data", "elsewhere.bin"])
def test_check_counts_external_data_without_hash_raises(tmp_path: Path, hidden: str) -> None:
    content = lay_out(tmp_path)
    file = content["pruned"]["files"][0]
    path = tmp_path / file["path"]
    model = onnx.load(path)
    path.with_name(f"{path.name}.data").unlink()
    onnx.save(model, path, save_as_external_data=True, location=hidden, size_threshold=0)
    file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size, "data_sha256": None}
    error = contradiction_of(content, tmp_path)
    assert "model.sparse.onnx" in error.key
    assert (error.stated, error.computed) == ([], [str(tmp_path / hidden)])


def test_check_counts_external_data_elsewhere_raises(
    tmp_path: Path,
) -> None:
    content = lay_out(tmp_path)
    file = content["pruned"]["files"][0]
    path = tmp_path / file["path"]
    data = path.with_name(f"{path.name}.data")
    (tmp_path / "other").mkdir()
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = f"other/{data.name}"
    (tmp_path / "other" / data.name).write_bytes(data.read_bytes())
    onnx.save(model, path)
    file |= {"sha256": sha256_file(path), "bytes": path.stat().st_size + data.stat().st_size}
    error = contradiction_of(content, tmp_path)
    assert (error.stated, error.computed) == ([data.name], [str(tmp_path / "other" / data.name)])


def test_check_counts_file_that_is_not_a_model_raises(tmp_path: Path) -> None:
    content = lay_out(tmp_path)
    (tmp_path / "model.packed.onnx").write_bytes(b"no model")
    with pytest.raises(InputError):
        check_counts(report_of(content), tmp_path)


def test_check_counts_missing_baseline_is_skipped(tmp_path: Path) -> None:
    content = lay_out(tmp_path)
    for part in (*content["baseline"]["files"], *content["baseline"]["curve"]):
        (tmp_path / part["path"]).unlink(missing_ok=True)
    content["baseline"]["files"][0]["nonzeros"] = 1
    check_counts(report_of(content), tmp_path)


def changed_file(
    folder: Path, change: Callable[[onnx.ModelProto], object], graph: str = "original"
) -> dict[str, Any]:
    """The report of files of which the packed one is another, with its size as it is."""
    content = lay_out(folder)
    file = content["pruned"]["files"][1]
    model = onnx.load(folder / file["path"])
    change(model)
    if graph != "original":
        model.metadata_props.add(key="ltp.graph", value=graph)
    saved_again(folder, model, file)
    file["graph"] = graph
    return content


def clear_a_weight(model: onnx.ModelProto) -> None:
    (tensor,) = (t for t in model.graph.initializer if t.name == "stem.weight")
    array = numpy_helper.to_array(tensor).copy()
    array.flat[array.ravel().nonzero()[0][0]] = 0
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def test_check_counts_counts_each_file(tmp_path: Path) -> None:
    content = changed_file(tmp_path, clear_a_weight)
    content["pruned"]["files"][1]["nonzeros"] -= 1
    check_counts(report_of(content), tmp_path)


@pytest.mark.parametrize(("graph", "refused"), [("original", True), ("deploy", False)])
def test_check_counts_elements_of_original_graph_only(
    tmp_path: Path, graph: str, refused: bool
) -> None:
    tensor = numpy_helper.from_array(np.ones(5, np.float32), "more")
    content = changed_file(tmp_path, lambda model: model.graph.initializer.append(tensor), graph)
    if refused:
        assert contradiction_of(content, tmp_path).key == "model.float_elements"
    else:
        check_counts(report_of(content), tmp_path)


def add_a_kernel(model: onnx.ModelProto) -> None:
    first = model.graph.node[0]
    (tensor,) = (t for t in model.graph.initializer if t.name == first.input[1])
    square = numpy_helper.from_array(np.zeros((tensor.dims[0],) * 2, np.float32), "more")
    model.graph.initializer.append(square)
    node = onnx.helper.make_node("MatMul", [first.input[0], "more"], ["more.output"])
    first.input[0] = "more.output"
    model.graph.node.insert(0, node)


@pytest.mark.parametrize(("graph", "refused"), [("original", True), ("deploy", False)])
def test_check_counts_finds_layers_in_the_original_graph(
    tmp_path: Path, graph: str, refused: bool
) -> None:
    content = changed_file(tmp_path, add_a_kernel, graph)
    content["pruned"]["files"].reverse()
    if refused:
        assert contradiction_of(content, tmp_path).key == "model.float_elements"
    else:
        check_counts(report_of(content), tmp_path)
