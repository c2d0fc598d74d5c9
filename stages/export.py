"""Put the trained tensors back into the original graph, write it in the formats asked for, and prove the files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from ltp_pipeline import __version__, exporters
from ltp_pipeline.config import ExportSettings
from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters import lossy, packed_reader, running
from ltp_pipeline.exporters.tensors import graphs
from ltp_pipeline.exporters.tensors import stored as stored_tensors
from ltp_pipeline.files import data_beside
from ltp_pipeline.hashing import sha256_of
from ltp_pipeline.records import ExportedFile, ImportedModel, Sparsity
from ltp_pipeline.stages import closeness, deploy
from ltp_pipeline.stages.import_model.restore_bn import fold
from ltp_pipeline.stages.import_model.tensors import to_array
from ltp_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.records import Array

Paths = Mapping[tuple[str, str], Path]  # by format and kind of values
EXACT = "exact"
DEPLOY = "deploy"
DEPLOY_LIMIT = 1e-5  # of an output's largest value: what folding norms may change by rounding
HALF_DEPLOY_LIMIT = 2e-2  # the same where every node rounds to half precision


@dataclass(frozen=True)
class Source:
    """A dense model on its way into files, and what its tensors hold."""

    model: ModelProto
    tensors: Mapping[str, Array]
    kernels: exporters.Scan  # looked through once for all formats
    graph: str = ""  # "deploy", or nothing for the original graph
    notes: tuple[str, ...] = ()


def _source(
    imported: ImportedModel, model: ModelProto, tensors: Mapping[str, Array], graph: str = "", *notes: str
) -> Source:
    return Source(model, tensors, exporters.Scan(model, [k.name for k in imported.kernels], tensors), graph, notes)


def run(
    imported: ImportedModel, settings: ExportSettings, workspace: Workspace, samples: Array, folder: str = ""
) -> list[ExportedFile]:
    """Write the live module, one file per graph and format, into a folder of the run directory."""
    tensors = live_arrays(imported)
    original = _source(imported, exporters.with_tensors(imported.proto, tensors), tensors)
    feeds = _feeds(imported, samples)
    sources = [original]
    if settings.deploy:
        sources.append(_deployable(imported, original, feeds))
    files = []
    for source in sources:
        expected: dict[str, list[Array]] = {}  # outputs by the kind of values
        paths: Paths = {
            (name, values): workspace.path(folder) / _file_name(name, source.graph, values)
            for name in settings.formats
            for values in (EXACT, *(settings.values if name == "packed" else ()))
        }
        with _removed_unless_proven() as unproven:
            saving, promised = _save(imported, source, paths, unproven, settings.external_data)
            for (name, values), said in promised.items():
                path = paths[name, values]
                saving[path].result()
                exporters.verify(path, said, name)
                if values not in expected:
                    expected[values] = _dense_outputs(exporters.with_tensors(source.model, said), imported, feeds)
                running.check_running(path, feeds, expected[values])
                unproven.remove(path)
                files.append(
                    ExportedFile(
                        path,
                        workspace.relative(path),
                        format=f"{source.graph}-{name}" if source.graph else name,
                        **hashes_of(path),
                        bytes=sum(part.stat().st_size for part in _parts(path)),
                        values=values,
                        notes=source.notes,
                    )
                )
    return files


def _file_name(format_name: str, graph: str, values: str) -> str:
    plain = exporters.FORMATS[format_name].file_name
    if values != EXACT:
        plain = plain.removesuffix(".onnx") + f".rounded-{values}.onnx"
    return plain.replace("model.", f"model.{graph}.", 1) if graph else plain


def live_arrays(imported: ImportedModel, replaced: Mapping[str, Tensor] | None = None) -> dict[str, Array]:
    """Every trained tensor in the type it has in the file, with some `replaced`."""
    stored = {name: t for graph in graphs(imported.proto.graph) for name, t in stored_tensors(graph).items()}
    tensors = fold(imported.restored.norms, imported.module.tensors() | dict(replaced or {}))
    return {name: to_array(tensor, stored[name].data_type) for name, tensor in tensors.items()}


def write(imported: ImportedModel, tensors: Mapping[str, Array], format_name: str, path: Path) -> None:
    """Write one file; it is read back and compared bit for bit, and removed when it does not say the same."""
    source = _source(imported, exporters.with_tensors(imported.proto, tensors), tensors)
    with _removed_unless_proven() as unproven:
        saving, promised = _save(imported, source, {(format_name, EXACT): path}, unproven)
        saving[path].result()
        exporters.verify(path, promised[format_name, EXACT], format_name)


def count(tensors: Mapping[str, Array], imported: ImportedModel) -> Sparsity:
    """Sparsity over all kernels."""
    nonzeros = sum(int((tensors[k.name] != 0).sum()) for k in imported.kernels)
    return Sparsity(sum(k.elements for k in imported.kernels), nonzeros)


def _save(
    imported: ImportedModel,
    source: Source,
    paths: Paths,
    written: list[Path],
    external: bool = False,
) -> tuple[Mapping[Path, Future[None]], Mapping[tuple[str, str], Mapping[str, Array]]]:
    """Write a file for each format and kind of values: how that went, and what its tensors must hold.

    Where nothing could be packed, nothing can be rounded, and such a file is left out.
    """
    promised: dict[tuple[str, str], Mapping[str, Array]] = {}

    def drafts() -> Iterator[tuple[exporters.Draft, Path]]:
        for name, values in sorted(paths, key=lambda key: key[0] != "dense"):  # the largest file first
            draft, said = _draft(imported, source, name, values)
            if values != EXACT and not packed_reader.encoded_names(draft.model):
                continue
            promised[name, values] = said
            yield draft, paths[name, values]

    for path in paths.values():
        data_beside(path).unlink(missing_ok=True)  # an older file's, which would be taken for the new one's
    saving = exporters.save_all(drafts(), written, external)
    return saving, {key: promised[key] for key in paths if key in promised}


def _draft(
    imported: ImportedModel, source: Source, format_name: str, values: str
) -> tuple[exporters.Draft, Mapping[str, Array]]:
    how: dict[str, Any] = {} if values == EXACT else {"values": values}
    draft = exporters.FORMATS[format_name].draft(source.model, source.kernels, **how)
    model = draft.model
    said = source.tensors if values == EXACT else _rounded(model, source, values)
    counted = count(said, imported)
    exporters.stamp(
        model,
        format=format_name,
        version=__version__,
        sparsity=f"{counted.sparsity:.6f}",
        nonzeros=counted.nonzeros,
        source_sha256=imported.file.sha256,
        values=values,
        **({"graph": source.graph} if source.graph else {}),
    )
    return draft, said


def _rounded(model: ModelProto, source: Source, values: str) -> dict[str, Array]:
    """What a file with rounded values must say: the packed kernels rounded, all others as they are."""
    said = dict(source.tensors)
    for name in packed_reader.encoded_names(model):
        array = said[name]
        kept = lossy.rounded(array, values, lossy.output_axis(source.model.graph, name) % array.ndim)
        said[name] = lossy.restored(kept.stored, array.shape, array.dtype, kept.scale)
    return said


def _deployable(imported: ImportedModel, original: Source, feeds: Mapping[str, Array]) -> Source:
    """The deploy graph of a model, proven to compute the same and to have kept its kernels."""
    kernels = [k.name for k in imported.kernels]
    made = deploy.run(original.model, kernels)
    tensors = exporters.read_tensors(made.model, kernels)
    if any(((tensors[name] != 0) != (original.tensors[name] != 0)).any() for name in kernels):
        raise ExportFailed(
            "the deploy graph has other zeros than the pruned network", "start it again without --deploy"
        )
    limit = HALF_DEPLOY_LIMIT if imported.module.wide else DEPLOY_LIMIT
    for outputs in zip(
        *(_dense_outputs(model, imported, feeds) for model in (made.model, original.model)), strict=True
    ):
        gap = closeness.gap(*outputs)
        if closeness.judge(gap, limit, lambda: 0.0) is closeness.Verdict.DIFFERENT:
            raise ExportFailed(
                f"the deploy graph computes something else: outputs differ by {gap.relative:.2g} of the largest",
                "start it again without --deploy, and please report this as a bug",
            )
    return _source(imported, made.model, tensors, DEPLOY, made.note)


def _dense_outputs(model: ModelProto, imported: ImportedModel, feeds: Mapping[str, Array]) -> list[Array]:
    with tempfile.TemporaryDirectory(prefix="ltp-proof-") as folder:
        path = Path(folder, "dense.onnx")
        exporters.save(exporters.FORMATS["dense"].encode(model, [k.name for k in imported.kernels]), path)
        return running.outputs(path, feeds)


def _feeds(imported: ImportedModel, samples: Array) -> dict[str, Array]:
    """Samples as the graph's input wants them: its type, and its batch size where that is fixed."""
    wanted = imported.file.inputs[0]
    size = wanted.shape[0] if wanted.shape else None
    if isinstance(size, int) and size > 0:
        samples = np.resize(samples, (size, *samples.shape[1:]))  # repeats what is there
    dtype = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(wanted.type))
    return {wanted.name: samples.astype(dtype)}


@contextmanager
def _removed_unless_proven() -> Iterator[list[Path]]:
    """A list for files that were written and are to be proven; those in it when anything goes wrong are removed."""
    unproven: list[Path] = []
    try:
        yield unproven
    except BaseException:
        for part in (part for path in unproven for part in _parts(path)):
            part.unlink()
        raise


def hashes_of(path: Path) -> dict[str, Any]:
    """Hash of a file that was written, and of its data where they are beside it."""
    hashes = [sha256_of(part) for part in _parts(path)]
    return {"sha256": hashes[0], "data_sha256": hashes[1] if hashes[1:] else None}


def _parts(path: Path) -> list[Path]:
    """A file and the external data beside it, as far as they are there."""
    return [p for p in (path, data_beside(path)) if p.is_file()]
