"""Check that the files of this folder are unchanged and that the models compute what they should.

    python verify.py

The script hashes each file in SHA256SUMS, runs each model on the inputs in example.npz and compares
its outputs with those in example.npz. It needs numpy and onnxruntime. The exit code is 0 if each
check passed, else 1.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

try:
    import numpy as np
    import onnxruntime
except ImportError as error:
    sys.exit(f"FAILED  {error}: pip install numpy onnxruntime")

SUMS, EXAMPLE = "SHA256SUMS", "example.npz"
# Differences that rounding explains, whatever the size of the values.
ROUNDING = 1e-6
ROUNDING_HALF = 2e-4  # of outputs in half precision


def check_hashes(folder: Path) -> dict[str, str]:
    """Return the problem of each file in SHA256SUMS; an empty text if there is none."""
    problems = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, name = line[:64], line[66:]
        path = folder / name
        if Path(name).name != name:
            problems[name] = "is not a name in this folder"
        elif not path.is_file():
            problems[name] = "is missing"
        elif hash_file(path) != digest:
            problems[name] = "has been changed: its SHA-256 is another one"
        else:
            problems[name] = ""
    return problems


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def compare_outputs(actual: Any, expected: Any) -> float:
    """Return the largest difference of two outputs, relative to the largest expected value.

    Returns:
        0 for differences that rounding explains, and infinity for outputs of another shape or type
        and for integers that are not equal.
    """
    if not isinstance(actual, np.ndarray):
        return float("inf")
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, expected) else float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        differences = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    differences[(actual == expected) | (np.isnan(actual) & np.isnan(expected))] = 0
    largest = float(np.where(np.isnan(differences), np.inf, differences).max(initial=0))
    if largest <= (ROUNDING if expected.dtype.itemsize > 2 else ROUNDING_HALF):
        return 0.0
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    scale = finite.max() if finite.size and finite.max() else 1.0
    return float(largest / scale)


def run_model(path: Path, example: Any, library: Path | None = None) -> float:
    """Run a model on the example and return the largest relative difference of its outputs.

    Args:
        path: Model file.
        example: Arrays of example.npz.
        library: Library of sparse operators to run the model with.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    weights = {tensor.name for tensor in session.get_overridable_initializers()}
    names = [tensor.name for tensor in session.get_inputs() if tensor.name not in weights]
    outputs = session.run(None, {name: example[f"input/{name}"] for name in names})
    keys = [key for key in example.files if key.partition("/")[0] == path.name]
    if not keys:
        raise ValueError(f"{EXAMPLE} has no outputs of this file")
    differences = [
        compare_outputs(outputs[int(key.partition("/")[2])], example[key]) for key in keys
    ]
    return max(differences)


def describe_error(error: Exception) -> str:
    """Return the first line of an error, or its type if it has no text."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Checklist:
    """Prints a line for each check, and remembers whether all passed."""

    def __init__(self) -> None:
        self.has_passed = True

    def report(self, is_good: bool, line: str) -> None:
        """Print the outcome of a check."""
        self.has_passed = self.has_passed and is_good
        print(f"ok      {line}" if is_good else f"FAILED  {line}")


def check_folder(folder: Path) -> bool:
    """Check the files and the models of a folder; return True if each check passed."""
    checks = Checklist()
    try:
        problems = check_hashes(folder)
    except (OSError, ValueError) as error:
        checks.report(False, f"{SUMS} cannot be read: {error}")
        return False
    for name, problem in problems.items():
        checks.report(not problem, f"{name} {problem or 'is unchanged'}")
    if problems.get(EXAMPLE, "is not listed"):
        checks.report(False, f"outputs are not compared: {EXAMPLE} is missing or changed")
        return False
    example = np.load(folder / EXAMPLE)
    for name in problems:
        if not name.endswith(".onnx"):
            continue
        if problems[name] or problems.get(f"{name}.data"):
            checks.report(False, f"{name} is not run, because it is missing or changed")
        else:
            check_model(folder, name, example, problems, checks)
    return checks.has_passed


def check_model(
    folder: Path, name: str, example: Any, problems: dict[str, str], checks: Checklist
) -> None:
    """Run a model, also with its library of sparse operators if it has one, and compare outputs."""
    own_limit = f"tolerance/{name}"
    limit = float(example[own_limit if own_limit in example.files else "tolerance"])
    try:
        difference = run_model(folder / name, example)
    except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common base class
        checks.report(False, f"{name} does not run: {describe_error(error)}")
        return
    report_difference(checks, name, difference, limit)
    if f"library/{name}" not in example.files:
        return
    library = str(example[f"library/{name}"])
    if problems.get(library, "is not listed"):
        return
    try:
        difference = run_model(folder / name, example, folder / library)
    except Exception as error:  # noqa: BLE001 - the library may have been built for another system
        reason = describe_error(error)
        print(
            f"note    {library} does not run here; {name} has the speed of a dense file: {reason}"
        )
        return
    report_difference(checks, f"{name} with {library}", difference, limit)


def report_difference(checks: Checklist, what: str, difference: float, limit: float) -> None:
    """Report how far outputs are from those in the example, next to what is allowed."""
    line = f"{what}: outputs differ by {difference:.2g} of the largest value (allowed: {limit:g})"
    checks.report(difference <= limit, line)


if __name__ == "__main__":
    is_good = check_folder(Path(__file__).resolve().parent)
    print(
        "All checks passed." if is_good else "A check failed. Ask those who delivered the folder."
    )
    sys.exit(0 if is_good else 1)
