"""Print the processor time that a process needs to inspect or to import a model.

python benchmarks/programs/time_command.py MODEL inspect|import
"""

import sys
import time

from ltp_pipeline.settings.schema import PruneSettings
from ltp_pipeline.stages import import_model
from ltp_pipeline.stages.import_model.read import read_model_file
from ltp_pipeline.stages.tools.inspect import inspect


def main() -> None:
    """Run one of the commands; what it imports is loaded before the clock starts."""
    path, command = sys.argv[1:]
    if command == "import":
        from ltp_pipeline.stages.import_model import network  # noqa: F401 - `inspect` has no torch
    begin = time.process_time()
    if command == "inspect":
        inspect(path)
    else:
        import_model.build_network(read_model_file(path), PruneSettings())
    print(time.process_time() - begin)


if __name__ == "__main__":
    main()
