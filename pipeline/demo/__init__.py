"""The embedded example: a model, its data and its settings."""

from importlib import resources
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.system.files import write_bytes

MODEL = "model.onnx"
EXAMPLE_FILES = (MODEL, "digits.npz", "ltp.toml")


def copy_example(folder: Path) -> Path:
    """Copy the example into a folder.

    Returns:
        The path of the model in that folder.

    Raises:
        InputError: The folder has a file of one of these names with other content.
    """
    for name in EXAMPLE_FILES:
        content = resources.files(__name__).joinpath(name).read_bytes()
        target = folder / name
        if target.is_file() and target.read_bytes() == content:
            continue
        if target.exists():
            raise InputError(
                f"{target} exists and is not a file of the example",
                "pass another directory with --out",
            )
        write_bytes(target, content)
    return folder / MODEL
