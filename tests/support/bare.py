"""Run Python in a process that has the named packages and nothing else: as on a machine this program never saw."""

import importlib.util
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

RUN = """
import runpy, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
for absent in ("ltp_pipeline", "torch"):
    try:
        __import__(absent)
    except ImportError:
        continue
    sys.exit(f"{absent} can be imported here")
sys.argv[:] = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_bare(
    folder: Path, packages: Sequence[str], script: Path, *arguments: object
) -> "subprocess.CompletedProcess[str]":
    """Run a script that can import only these packages and the libraries next to them."""
    site = folder / "-".join(("site", *packages))
    if not site.exists():
        site.mkdir(parents=True)
        for package in packages:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            where = Path(
                spec.origin or next(iter(spec.submodule_search_locations))
            )  # a namespace has no file
            inside = where.parent if where.name == "__init__.py" else where
            for part in (inside, *inside.parent.glob(f"{LIBRARIES.get(package, package)}.libs")):
                (site / part.name).symlink_to(part)
    command = [sys.executable, "-I", "-S", "-c", RUN, site, script.parent, script, *arguments]
    return subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False
    )


LIBRARIES = {"PIL": "pillow"}
ONNX = ("onnx", "google", "numpy", "ml_dtypes", "typing_extensions")
