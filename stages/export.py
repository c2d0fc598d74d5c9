"""Put the trained tensors back into the original graph and write it in the formats asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ltp_pipeline import exporters
from ltp_pipeline.errors import ExportFailed
from ltp_pipeline.exporters.tensors import graphs
from ltp_pipeline.exporters.tensors import stored as stored_tensors
from ltp_pipeline.files import sha256_of
from ltp_pipeline.records import ExportedFile, ImportedModel, Sparsity
from ltp_pipeline.stages.import_model.tensors import to_array
from ltp_pipeline.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor

    from ltp_pipeline.records import Array


def run(imported: ImportedModel, formats: Sequence[str], workspace: Workspace, folder: str = "") -> list[ExportedFile]:
    """Write the live module, one file per format, into a folder of the run directory."""
    tensors = live_arrays(imported)
    files = []
    for name in formats:
        path = workspace.path(folder) / exporters.FORMATS[name].file_name
        write(imported, tensors, name, path)
        files.append(ExportedFile(path, workspace.relative(path), name, sha256_of(path), path.stat().st_size))
    return files


def live_arrays(imported: ImportedModel, replaced: Mapping[str, Tensor] | None = None) -> dict[str, Array]:
    """Every trained tensor in the type it has in the file, with some `replaced`."""
    stored = {name: t for graph in graphs(imported.proto.graph) for name, t in stored_tensors(graph).items()}
    tensors = imported.module.tensors() | dict(replaced or {})
    return {name: to_array(tensor, stored[name].data_type) for name, tensor in tensors.items()}


def write(imported: ImportedModel, tensors: Mapping[str, Array], format_name: str, path: Path) -> None:
    """Write one file; it is read back and compared bit for bit, and removed when it does not say the same."""
    kernels = [k.name for k in imported.kernels]
    dense = exporters.with_tensors(imported.proto, tensors)
    model = exporters.FORMATS[format_name].encode(dense, kernels)
    counted = count(tensors, imported)
    exporters.stamp(
        model,
        format=format_name,
        sparsity=f"{counted.sparsity:.6f}",
        nonzeros=str(counted.nonzeros),
        source_sha256=imported.file.sha256,
    )
    exporters.save(model, path)
    try:
        exporters.verify(path, tensors, format_name)
    except ExportFailed:
        path.unlink(missing_ok=True)
        raise


def count(tensors: Mapping[str, Array], imported: ImportedModel) -> Sparsity:
    """Sparsity over all kernels."""
    nonzeros = sum(int((tensors[k.name] != 0).sum()) for k in imported.kernels)
    return Sparsity(sum(k.elements for k in imported.kernels), nonzeros)
