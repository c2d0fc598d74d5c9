"""Check this folder: are the files those that were handed over, and do they compute what they computed then?

    python verify.py

It needs numpy and onnxruntime. Exit code 0: all is well; 1: something is not, and a line says what.
"""

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
ROUNDING, ROUNDING_HALF = (
    1e-6,
    2e-4,
)  # differences of single and half precision that mean nothing, whatever the size


def hashed(folder: Path) -> dict[str, str]:
    """What is wrong with each file that is listed; nothing is an empty text."""
    found = {}
    for line in (folder / SUMS).read_text(encoding="utf-8").splitlines():
        digest, name = line[:64], line[66:]
        path = folder / name
        if Path(name).name != name:
            found[name] = "is not a name in this folder"
        elif not path.is_file():
            found[name] = "is missing"
        else:
            found[name] = (
                ""
                if sha256(path) == digest
                else "is not the file that was handed over: its hash is another"
            )
    return found


def sha256(path: Path) -> str:
    """Hash of a file's content."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    return digest.hexdigest()


def apart(found: Any, expected: Any) -> float:
    """The largest difference of two outputs as a share of the largest value; whatever is no float must be equal."""
    if (
        not isinstance(found, np.ndarray)
        or found.shape != expected.shape
        or found.dtype != expected.dtype
    ):
        return float("inf")
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else float("inf")
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    gap[(found == expected) | (np.isnan(found) & np.isnan(expected))] = 0
    widest = float(np.where(np.isnan(gap), np.inf, gap).max(initial=0))
    if widest <= (ROUNDING if expected.dtype.itemsize > 2 else ROUNDING_HALF):
        return 0.0
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    largest = finite.max() if finite.size and finite.max() else 1.0
    return float(widest / largest)


def differs(path: Path, example: Any, library: Path | None = None) -> float:
    """How far the outputs of a file are from those in the example, on the kernels of a library if there is one."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    weights = {tensor.name for tensor in session.get_overridable_initializers()}
    names = [tensor.name for tensor in session.get_inputs() if tensor.name not in weights]
    outputs = session.run(None, {name: example[f"input/{name}"] for name in names})
    numbers = [key.partition("/")[2] for key in example.files if key.partition("/")[0] == path.name]
    if not numbers:
        raise ValueError(f"{EXAMPLE} has no outputs of it")
    return max(apart(outputs[int(n)], example[f"{path.name}/{n}"]) for n in numbers)


def check(folder: Path) -> bool:
    """Check everything, and print a line for each thing."""
    passed = True

    def say(problem: str, what: str) -> None:
        nonlocal passed
        passed = passed and not problem
        print(f"FAILED  {problem}" if problem else f"ok      {what}")

    try:
        problems = hashed(folder)
    except (OSError, ValueError) as error:
        say(f"{SUMS} cannot be read: {error}", "")
        return False
    for name, problem in problems.items():
        say(problem and f"{name} {problem}", f"{name} is the file that was handed over")
    if problems.get(EXAMPLE, "is not listed"):
        say(f"outputs are not compared: {EXAMPLE} is not the one that was handed over", "")
        return False
    example = np.load(folder / EXAMPLE)
    for name in (name for name in problems if name.endswith(".onnx")):
        if problems[name] or problems.get(f"{name}.data"):
            say(f"{name} is not run", "")
            continue
        try:
            found = differs(folder / name, example)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common root
            say(
                f"{name} does not run: {(str(error).splitlines() or [type(error).__name__])[0]}", ""
            )
            continue
        own = f"tolerance/{name}"
        limit = float(example[own if own in example.files else "tolerance"])
        said = f"{name}: outputs differ from the example's by {found:.2g} of the largest value; {limit:g} is allowed"
        say("" if found <= limit else said, said)
        library = str(example[f"library/{name}"]) if f"library/{name}" in example.files else ""
        if problems.get(library, "is not listed"):
            continue
        try:
            found = differs(folder / name, example, folder / library)
        except Exception as error:  # noqa: BLE001 - it may have been made for another system
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            print(
                f"note    {library} cannot be used here, and {name} is as slow as a dense file: {reason}"
            )
            continue
        said = f"{name} with {library}: outputs differ by {found:.2g} of the largest value; {limit:g} is allowed"
        say("" if found <= limit else said, said)
    return passed


if __name__ == "__main__":
    good = check(Path(__file__).resolve().parent)
    print("All is well." if good else "Something is wrong; ask those who handed it over.")
    sys.exit(0 if good else 1)
