"""Count the files of a report again: sizes, zeros, and what the files say of themselves; needs no data and no torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from ltp_pipeline import exporters
from ltp_pipeline.config import KernelSettings
from ltp_pipeline.exporters.counting import Counts, count
from ltp_pipeline.files import data_beside
from ltp_pipeline.formats import ORIGINAL
from ltp_pipeline.graph import FLOAT_TYPES, Model, read_with_data, stored
from ltp_pipeline.report_checks import refuse
from ltp_pipeline.report_derivations import Claim
from ltp_pipeline.report_parts import Layer
from ltp_pipeline.report_schema import CurvePoint, File, Report, Stored
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.kernels import find_kernels
from ltp_pipeline.words import shortened


def require_counts(report: Report, folder: Path) -> None:
    """Refuse a report that says something else of its files than they do; their hashes were compared before.

    Files of the baseline count where they are there.
    """
    for claim in _claims(report, folder):
        refuse(claim, "the report")


def _claims(report: Report, folder: Path) -> Iterator[Claim]:
    names = [layer.name for layer in report.layers]
    counted = []
    for number, file in enumerate(report.pruned.files):
        path = folder / file.path
        model, data = read_with_data(path)
        yield _data(file, path, data)
        yield from _said_of(file, f"pruned.files.{number}", path, model, report.model.sha256)
        if names:
            counted.append(count(model, names))
            yield Claim(f"pruned.files.{number}.nonzeros", file.nonzeros, counted[-1].kernels.nonzeros, file.path)
            if file.graph == ORIGINAL and file.is_exact:
                yield from _elements(report, file.path, counted[-1])
    if counted:
        most = max(counted, key=lambda counts: counts.kernels.nonzeros)
        yield Claim("pruned.model_nonzeros", report.pruned.model_nonzeros, most.whole.nonzeros, "the files")
        yield from _nonzeros("nonzeros", report.layers, [layer.nonzeros for layer in report.layers], most)
        yield from _kernels(report, folder)
        yield from _baseline(report, folder, names)


def _data(file: Stored, path: Path, found: Sequence[Path]) -> Claim:
    """The weights outside the file are those that the report has the hash of."""
    wanted = [data_beside(path).resolve()] if file.data_sha256 else []
    stated, read = ([part.name for part in parts] for parts in (wanted, found))
    same_place = [part.resolve() for part in found] == wanted
    return Claim(f"the list of data files of {file.path}", stated, stated if same_place else read, "the file")


def _said_of(file: File, key: str, path: Path, model: Model, source: str | None) -> Iterator[Claim]:
    """Its size, and the labels in it, where it has any."""
    parts = [path, *([data_beside(path)] if file.data_sha256 else [])]
    yield Claim(f"{key}.bytes", file.bytes, sum(part.stat().st_size for part in parts), f"the size of {file.path}")
    labels = exporters.labels(model)
    if labels:
        told = {
            "encoding": labels.get("format"),
            "graph": labels.get("graph", ORIGINAL),
            "values": labels.get("values"),
        }
        for name, value in told.items():
            yield Claim(f"{key}.{name}", getattr(file, name), value, f"the labels in {file.path}")
        yield Claim("model.sha256", source, labels.get("source_sha256"), f"the labels in {file.path}")


def _elements(report: Report, name: str, counts: Counts) -> Iterator[Claim]:
    """Of a file with the graph of the original, which has all its weights."""
    for number, layer in enumerate(report.layers):
        yield Claim(f"layers.{number}.elements", layer.elements, counts.each[layer.name].elements, name)
    yield Claim("model.float_elements", report.model.float_elements, counts.whole.elements, name)


def _nonzeros(key: str, layers: Sequence[Layer], stated: Sequence[int | None], counts: Counts) -> Iterator[Claim]:
    for number, (layer, said) in enumerate(zip(layers, stated, strict=True)):
        yield Claim(f"layers.{number}.{key}", said, counts.each[layer.name].nonzeros, "the files")


def _kernels(report: Report, folder: Path) -> Iterator[Claim]:
    """No kernel may be left out of the layers: the rest would have another sparsity."""
    plain = next((file for file in report.pruned.files if file.graph == ORIGINAL and file.is_exact), None)
    if plain is None:
        return
    _, walked, _ = import_model.prepare(import_model.read(folder / plain.path))
    held, listed = stored(walked.graph), {layer.name for layer in report.layers}
    found = [k.name for k in find_kernels(walked, KernelSettings()) if held[k.name].data_type in FLOAT_TYPES]
    left_out = [name for name in found if name not in listed]
    told = f"without {shortened(left_out[0])}" if left_out else "whole"
    yield Claim("the list of layers", told, "whole", plain.path)


def _baseline(report: Report, folder: Path, names: list[str]) -> Iterator[Claim]:
    if report.baseline is None:
        return
    counted: dict[str, Counts] = {}
    files: list[File | CurvePoint] = [*report.baseline.files, *report.baseline_points.values()]
    for file in files:
        path = folder / file.path
        if file.path not in counted and path.is_file():
            model, data = read_with_data(path)
            yield _data(file, path, data)
            counted[file.path] = count(model, names)
        if file.path in counted:
            nonzeros = counted[file.path].kernels.nonzeros
            yield Claim(f"nonzeros of {file.path}", file.nonzeros, nonzeros, "the file")
    of_files = [counted[file.path] for file in report.baseline.files if file.path in counted]
    if of_files and len(of_files) == len(report.baseline.files):
        most = max(of_files, key=lambda counts: counts.kernels.nonzeros)
        stated = [layer.baseline_nonzeros for layer in report.layers]
        yield Claim("baseline.model_nonzeros", report.baseline.model_nonzeros, most.whole.nonzeros, "the files")
        yield from _nonzeros("baseline_nonzeros", report.layers, stated, most)
