"""Where a run was made: versions, platform, processor."""

import platform
from importlib import metadata
from pathlib import Path

from ltp_pipeline.results.schema_parts import EnvironmentInfo

LIBRARIES = ("ltp-pipeline", "torch", "onnx", "onnxruntime", "onnxsim", "numpy")
CPUS = Path("/proc/cpuinfo")


def describe_environment(device: str, seed: int) -> EnvironmentInfo:
    """Return this machine and the installed versions."""
    import torch

    return EnvironmentInfo(
        versions={
            "python": platform.python_version(),
            **{name: _get_version(name) for name in LIBRARIES},
        },
        platform=platform.platform(),
        processor=find_processor(),
        threads=torch.get_num_threads(),
        device=device,
        seed=seed,
    )


def find_processor() -> str | None:
    """Return the name of the processor; Linux has it only in a file."""
    lines = (
        CPUS.read_text(encoding="utf-8", errors="replace").splitlines() if CPUS.is_file() else []
    )
    named = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), ""
    )
    return named or platform.processor() or platform.machine() or None


def _get_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
