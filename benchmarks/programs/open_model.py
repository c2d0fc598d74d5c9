"""Print the seconds and the peak memory in bytes that a process needs to open a model.

    python benchmarks/programs/open_model.py MODEL session|import

`session` makes a session of onnxruntime, `import` a network without comparing outputs.
"""

import sys
import time
from pathlib import Path

import onnxruntime
import torch

from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model import network  # noqa: F401 - loaded before the clock starts
from ltp_pipeline.stages.import_model.read import read_model_file


def read_memory(key: str) -> int:
    """Return an entry of /proc in bytes; getrusage would include the parent of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def open_model(path: str, action: str) -> object:
    """Return a session or a network of a model."""
    if action == "session":
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return import_model.build_network(read_model_file(path), PruneSettings())


def main() -> None:
    """Open the model and keep it until its time and memory are known."""
    path, action = sys.argv[1:]
    before = read_memory("VmRSS")
    torch.set_num_threads(1)
    begin = time.perf_counter()
    _model = open_model(path, action)
    print(time.perf_counter() - begin, read_memory("VmHWM") - before)


if __name__ == "__main__":
    main()
