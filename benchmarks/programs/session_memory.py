"""Print the bytes that a session of a model adds to the memory of this process.

python benchmarks/programs/session_memory.py MODEL [LIBRARY]
"""

import sys
from pathlib import Path

import onnxruntime


def read_memory() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4096


def main() -> None:
    """Make a session, with a library of operators if one is passed."""
    path, *libraries = sys.argv[1:]
    before = read_memory()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    for library in libraries:
        options.register_custom_ops_library(library)
    _session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    print(read_memory() - before)


if __name__ == "__main__":
    main()
