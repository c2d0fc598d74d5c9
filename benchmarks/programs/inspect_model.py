"""Print the processor time and the peak memory in MB of a process that inspects a model.

    python benchmarks/programs/inspect_model.py MODEL

A refusal of the model goes to standard error.
"""

import sys
import time
from pathlib import Path

from ltp_pipeline.errors import LtpError
from ltp_pipeline.stages.tools.inspect import inspect


def main() -> None:
    """Inspect the model; getrusage would include the peak memory of the parent process."""
    try:
        inspect(sys.argv[1])
    except LtpError as error:
        print(error.message[:80], file=sys.stderr)
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    print(time.process_time(), int(kilobytes) / 2**10)


if __name__ == "__main__":
    main()
