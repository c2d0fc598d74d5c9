"""The embedded example: a model, its data and its settings."""

from importlib import resources
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import write_bytes

MODEL = "model.onnx"
EXAMPLE_FILES = (MODEL, "digits.npz", "ltp.toml")


def copy_example(folder: Path) -> Path:
    """Copy the example into a folder and return the model's path there; files of the user's are never replaced."""
    for name in EXAMPLE_FILES:
        content = resources.files(__name__).joinpath(name).read_bytes()
        target = folder / name
        if target.is_file() and target.read_bytes() == content:
            continue
        if target.exists():
            raise InputError(
                f"{target} exists and is not the example's", "give another folder with --out"
            )
        write_bytes(target, content)
    return folder / MODEL
