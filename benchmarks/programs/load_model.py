"""Print the processor time of sessions of a model, and the peak memory of the first one, as JSON.

python benchmarks/programs/load_model.py MODEL
"""

import json
import re
import sys
import time
from pathlib import Path

import onnxruntime
from onnx import TensorProto, helper

AGAIN = 3  # sessions after the first one, of which the shortest counts


def make_session(model: str | bytes) -> float:
    """Return the processor time of a session of one thread with the default optimizations."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    begin = time.process_time()
    onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return time.process_time() - begin


def main() -> None:
    """Time sessions, after one of a tiny model that loads what every session needs."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "tiny", [x], [y])
    opset = helper.make_opsetid("", 13)
    tiny = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    make_session(tiny.SerializeToString())
    first = make_session(sys.argv[1])
    # The maximum of getrusage would count the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0])
    again = min(make_session(sys.argv[1]) for _ in range(AGAIN))
    print(json.dumps({"load": first, "load again": again, "peak memory": peak}))


if __name__ == "__main__":
    main()
