"""Count the files of a report again: sizes, zeros and labels. This needs neither data nor torch."""

from collections.abc import Sequence
from pathlib import Path

from ltp_pipeline.exporters.files.count import FileSparsity, count_sparsity
from ltp_pipeline.exporters.files.labels import read_metadata
from ltp_pipeline.exporters.int8.layers import QUANTIZED_SUFFIX
from ltp_pipeline.graph.layer_weights import find_layer_weights
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.readers import find_readers
from ltp_pipeline.graph.storage import read_model_with_data
from ltp_pipeline.graph.tensors import FLOAT_TYPES, collect_stored_tensors
from ltp_pipeline.graph.view import find_ancestors
from ltp_pipeline.graph.weight_uses import infer_uses
from ltp_pipeline.results.complete import put_nonzeros
from ltp_pipeline.results.consistency import ContradictionError, check_same_values
from ltp_pipeline.results.schema import BaselinePoint, FileResult, HashedFile, Report
from ltp_pipeline.settings.file_names import ORIGINAL
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.import_model.validity import SMALL_TENSOR_BYTES
from ltp_pipeline.system.files import external_data_path
from ltp_pipeline.system.text import quote_name

UNLABELED = "not labeled"
WHERE = "the report"


def check_counts(report: Report, folder: Path) -> None:
    """Raise InputError if the files of a report have other counts, sizes or labels than it states.

    Args:
        report: A report whose files in the folder have the hashes that it states.
        folder: Folder of the report. Files of other networks may be missing.
    """
    names = [layer.name for layer in report.layers]
    counted = []
    for number, file in enumerate(report.pruned.files):
        model = _read(file, folder)
        counts = count_sparsity(model, names)
        recounted = _put_file(report, number, folder, read_metadata(model), counts)
        check_same_values(report, recounted, WHERE, file.path)
        _check_layers(folder / file.path, file, report)
        counted.append(counts)
    if counted:
        _check_network(report, "pruned", counted)
        _check_others(report, folder, names)


def _read(file: HashedFile, folder: Path) -> OnnxModel:
    """Read a file, whose external data must be the file that the report has the hash of."""
    path = folder / file.path
    model, data = read_model_with_data(path)
    expected = []
    if file.data_sha256:
        expected.append(external_data_path(path))
    if list(map(Path.resolve, data)) != list(map(Path.resolve, expected)):
        key = f"the list of data files of {file.path}"
        names = [part.name for part in expected]
        raise ContradictionError(key, names, list(map(str, data)), WHERE, "the file")
    return model


def _put_file(
    report: Report, number: int, folder: Path, labels: dict[str, str], counts: FileSparsity
) -> Report:
    """Return the report with the size, the labels and the counts of a file of the network."""
    file = report.pruned.files[number]
    path = folder / file.path
    num_bytes = path.stat().st_size
    if file.data_sha256:
        num_bytes += external_data_path(path).stat().st_size
    files = list(report.pruned.files)
    files[number] = file.replace(
        bytes=num_bytes,
        nonzeros=counts.layers.nonzeros,
        encoding=labels.get("format", UNLABELED),
        graph=labels.get("graph", ORIGINAL),
        weight_storage=labels.get("values", UNLABELED),
    )
    model = report.model.replace(sha256=labels.get("source_sha256", UNLABELED))
    if file.graph == ORIGINAL:  # other graphs may have more or fewer float weights
        model = model.replace(float_elements=counts.model.elements)
    layers = []
    for layer in report.layers:
        layers.append(layer.replace(elements=counts.by_name[layer.name].elements))
    pruned = report.pruned.replace(files=tuple(files))
    return report.replace(pruned=pruned, model=model, layers=tuple(layers))


def _check_network(report: Report, network: str, counted: list[FileSparsity]) -> None:
    """Compare the counts of a network with those of its file that has the most nonzeros."""
    most = max(counted, key=lambda counts: counts.layers.nonzeros)
    recounted = put_nonzeros(report, network, most.nonzeros, most.model.nonzeros)
    check_same_values(report, recounted, WHERE, "its files")


def _check_others(report: Report, folder: Path, names: Sequence[str]) -> None:
    """Raise ContradictionError if a file of another network in the folder has other counts."""
    counted: dict[str, FileSparsity] = {}
    files: list[FileResult | BaselinePoint] = [*report.baseline_points.values()]
    for network in report.other_networks.values():
        files += network.files
    for file in files:
        if not (folder / file.path).is_file():
            continue
        if file.path not in counted:
            counted[file.path] = count_sparsity(_read(file, folder), names)
        nonzeros = counted[file.path].layers.nonzeros
        if file.nonzeros is not None and nonzeros != file.nonzeros:
            key = f"nonzeros of {file.path}"
            raise ContradictionError(key, file.nonzeros, nonzeros, WHERE, "the file")
    for key, network in report.other_networks.items():
        present = [counted[file.path] for file in network.files if file.path in counted]
        if present and len(present) == len(network.files):
            _check_network(report, key, present)


def _check_layers(path: Path, file: FileResult, report: Report) -> None:
    """Raise ContradictionError if the layers of the report are not the layer weights of the file.

    A layer weight is multiplied by something that an output depends on. Folded constants of other
    graphs than the original's may look like layer weights and need not be listed. How often layers
    are used in one sample is compared as far as the shapes of the original graph tell it.
    """
    listed = [layer.name for layer in report.layers]
    _, walked, _ = import_model.prepare_graph(read_model_file(path))
    needed = find_ancestors(walked.graph, collect_names(walked.graph.output))
    used = {}
    multiplied = set()
    for name, readers in find_readers(walked.graph).items():
        live_readers = [reader for reader in readers if needed.intersection(reader.node.output)]
        if live_readers:
            used[name] = live_readers
        if any(reader.is_weight for reader in live_readers):
            multiplied.add(name.removesuffix(QUANTIZED_SUFFIX))
            multiplied.add(name)
    stored = collect_stored_tensors(walked.graph)
    layer_names = set()
    weights = find_layer_weights(walked, readers=used)
    for weight in weights:
        if file.graph != ORIGINAL and weight.name.endswith(QUANTIZED_SUFFIX):
            layer_names.add(weight.name.removesuffix(QUANTIZED_SUFFIX))
        elif file.graph == ORIGINAL and stored[weight.name].data_type in FLOAT_TYPES:
            layer_names.add(weight.name)
    unread = [name for name in listed if name not in multiplied]
    missing = sorted(layer_names.difference(listed))
    problem = None
    if unread:
        problem = f"with {quote_name(unread[0])}, which is not a layer weight"
    elif missing:
        problem = f"without {quote_name(missing[0])}"
    if problem is not None:
        raise ContradictionError("the list of layers", problem, "complete", WHERE, file.path)
    if file.graph == ORIGINAL:
        proto = walked.to_proto(max_bytes=SMALL_TENSOR_BYTES)
        uses = infer_uses(proto, weights, used)
        for layer in report.layers:
            counted = uses.get(layer.name)
            if None not in (counted, layer.uses) and counted != layer.uses:
                key = f"the number of uses of {quote_name(layer.name)}"
                raise ContradictionError(key, layer.uses, counted, WHERE, file.path)
