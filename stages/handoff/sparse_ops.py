"""What a handoff with fast files holds besides: the sparse kernels, their sources, and a section of the page."""

import io
import json
import platform
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library
from ltp_pipeline.results.schema import FileResult, Report
from ltp_pipeline.stages.handoff import page_text as filters
from ltp_pipeline.stages.handoff.page_text import code, escape
from ltp_pipeline.system.hashing import sha256_file

FOLDER = "ltp_kernels"  # of the sources, in the archive
SOURCES = f"{FOLDER}.zip"
FIRST_DATE = (1980, 1, 1, 0, 0, 0)  # of an archive; the same sources are the same bytes


@dataclass(frozen=True)
class Kernels:
    """The library by which fast files were measured, where this machine has it, and its sources."""

    path: Path | None
    sources: bytes


def find(report: Report) -> Kernels | None:
    """What belongs to the fast files of a report; None where it has none."""
    files = fast_files(report)
    if not files:
        return None
    wanted = {
        file.sparse_kernels.library_sha256 for file in files if file.sparse_kernels is not None
    }
    try:
        path = library.sparse_ops_library()
    except InputError:
        return Kernels(None, _sources())
    return Kernels(path if {sha256_file(path)} == wanted else None, _sources())


def fast_files(report: Report) -> list[FileResult]:
    """The files that use sparse kernels."""
    return [file for file in report.pruned.files if file.sparse_kernels is not None]


def section(report: Report, kernels: Kernels) -> str:
    """How to use the files with the library, and how to build it elsewhere."""
    files = fast_files(report)
    processor = escape(report.environment.processor or "an unknown processor")
    name = library.FILE_NAME if kernels.path is None else kernels.path.name
    lines = [
        f"{filters.speed(report, file, code)} Latency was measured on {processor}."
        for file in files
    ]
    return "\n\n".join(
        [
            "## Sparse kernels",
            *lines,
            f"These files skip the zeros where `{name}` is registered before the session is made, in onnxruntime 1.17 "
            "or newer on the processor. Without it they run in any onnxruntime like the others, with the speed of "
            f"dense weights. In Python:\n\n```python\n{in_python(files[0], name)}\n```",
            f"In C++:\n\n```cpp\n{_in_cpp(files[0], name)}\n```",
            _about(kernels),
            f"`{SOURCES}` has its sources. One command builds it for another machine, by GCC 9, Clang 10 or newer:"
            f"\n\n    unzip {SOURCES} && {build_command()}",
            "It takes the instructions that the processor has (AVX-512, AVX2, NEON, or plain ones, which are slow), "
            "and checks each on small cases when it is loaded. On another processor than that above, measure before "
            "you rely on its speed.",
        ]
    )


def in_python(file: FileResult, name: str) -> str:
    """The lines that load a file with the library."""
    return "\n".join(
        [
            "import onnxruntime",
            "options = onnxruntime.SessionOptions()",
            f"options.register_custom_ops_library({f'./{name}'!r})",
            f"session = onnxruntime.InferenceSession({file.path!r}, options, providers=['CPUExecutionProvider'])",
        ]
    )


def build_command() -> str:
    """The one command, from the folder in which the archive was unpacked."""
    first, *others = library.make_build_command(Path(library.FILE_NAME), "c++")
    flags = [word for word in others if not word.endswith(".cpp")]
    return " ".join([first, *flags[:-1], f"{FOLDER}/*.cpp", flags[-1]])


def expectations(report: Report) -> str:
    """What zeros bring and what not, for the end of the page."""
    named = " and ".join(code(file.path) for file in fast_files(report))
    if not named:
        return """The zeros save storage and transfer. They do not make the model faster: runtimes for dense weights,
onnxruntime among them, fill the zeros in when they load the file, and latency and memory are then those of the
original."""
    return f"""The zeros save storage and transfer. They make the model faster only in {named},
and only where the sparse kernels are registered: elsewhere runtimes fill the zeros in when they load the file, and
latency and memory are those of the original."""


def _in_cpp(file: FileResult, name: str) -> str:
    return "\n".join(
        [
            "Ort::SessionOptions options;",
            f"options.RegisterCustomOpsLibrary(ORT_TSTR({json.dumps(f'./{name}')}));",
            f"Ort::Session session(env, ORT_TSTR({json.dumps(file.path)}), options);",
        ]
    )


def _about(kernels: Kernels) -> str:
    if kernels.path is None:
        return "The library is not in this folder: the one that the files were measured with was not at hand."
    made_for = f"{platform.system()} on {platform.machine()}"
    return (
        f"`{kernels.path.name}` is for {made_for}, with C and C++ runtimes as new as those it was built with; its "
        f"SHA-256 is `{sha256_file(kernels.path)}`."
    )


def _sources() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path in sorted(library.SOURCE.iterdir()):
            if path.suffix in (".h", ".cpp"):
                entry = zipfile.ZipInfo(f"{FOLDER}/{path.name}", FIRST_DATE)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return made.getvalue()
