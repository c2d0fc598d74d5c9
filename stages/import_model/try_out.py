"""A file from elsewhere, before onnxruntime takes it into this process: it is tried in a process of its own."""

from collections.abc import Mapping
from pathlib import Path

from ltp_pipeline.errors import UnsupportedModel
from ltp_pipeline.graph import Array
from ltp_pipeline.records import ModelFile
from ltp_pipeline.scratch import scratch_folder
from ltp_pipeline.stages.import_model import ort_subprocess
from ltp_pipeline.stages.import_model.parity_inputs import as_input, numeric
from ltp_pipeline.stages.import_model.value_sizes import require_room


def try_out(file: ModelFile, path: Path, samples: Mapping[str, Array] | None = None) -> None:
    """Refuse a file that does not fit into memory, or that onnxruntime does not survive on these samples.

    What onnxruntime refuses by itself is left to whoever opens the file next. Without samples it is only loaded.
    """
    require_room(file.model, samples)
    known = samples or {}
    feeds = {i.name: as_input(i, known[i.name]) for i in file.inputs if i.name in known and numeric(i)}
    with scratch_folder("trial") as folder:
        try:
            ort_subprocess.run(path.resolve(), feeds, folder=folder)
        except ort_subprocess.WorkerDied as error:
            raise UnsupportedModel(f"onnxruntime {error} on {path}", "export the model again") from None
        except (ort_subprocess.LoadFailed, ort_subprocess.RunFailed):
            return
