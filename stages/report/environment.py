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

    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return EnvironmentInfo(
        versions=versions,
        platform=platform.platform(),
        processor=find_processor(),
        threads=torch.get_num_threads(),
        device=device,
        seed=seed,
    )


def find_processor() -> str | None:
    """Return the name of the processor; Linux has it only in a file."""
    if CPUS.is_file():
        for line in CPUS.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, name = line.partition(":")
            if key.startswith("model name") and name.strip():
                return name.strip()
    return platform.processor() or platform.machine() or None
