"""The names of the files that a run can write: a file is a graph in an encoding.

This is the one table of names. A new encoding is one line in ENCODINGS and a module of that name in
exporters/encodings; a new graph is one line in GRAPHS and a module of that name in exporters/graphs. Settings, help
texts, file names and HANDOFF.md follow. Nothing heavy is imported here.
"""

from dataclasses import dataclass
from typing import Literal, get_args

EXACT = "exact"
RoundedStorage = Literal["fp16", "int8"]  # what `values` may be beside "exact"
ROUNDED_STORAGES: tuple[str, ...] = get_args(RoundedStorage)

ENCODINGS = ("packed", "dense", "sparse")  # HANDOFF.md recommends the first one that there is
ROUNDABLE_ENCODINGS = ("packed",)  # the encodings that can store rounded values
ORIGINAL = "original"  # its name is left out: `packed` is the original graph, packed
DEPLOY, FAST, INT8 = "deploy", "fast", "int8"
# The plainest first; with the encoding that a graph's bare name means.
GRAPHS = {ORIGINAL: None, DEPLOY: "packed", FAST: "packed", INT8: "packed"}


@dataclass(frozen=True)
class ExportFormat:
    """A graph in an encoding."""

    graph: str
    encoding: str

    @property
    def name(self) -> str:
        """How settings and reports call it: `packed`, `deploy-packed`."""
        return "-".join(self._parts)

    @property
    def can_be_rounded(self) -> bool:
        """Whether there may be files with rounded values beside it."""
        return self.encoding in ROUNDABLE_ENCODINGS and self.graph != INT8

    def file_name(self, values: str = EXACT) -> str:
        """`model.packed.onnx`, `model.deploy.packed.onnx`, `model.packed.rounded-int8.onnx`."""
        rounded = () if values == EXACT else (f"rounded-{values}",)
        return ".".join(("model", *self._parts, *rounded, "onnx"))

    @property
    def _parts(self) -> tuple[str, ...]:
        return (self.encoding,) if self.graph == ORIGINAL else (self.graph, self.encoding)


FORMATS = {
    f.name: f for f in (ExportFormat(graph, encoding) for graph in GRAPHS for encoding in ENCODINGS)
}
_DEFAULT_FORMATS = {
    graph: FORMATS[f"{graph}-{encoding}"] for graph, encoding in GRAPHS.items() if encoding
}
FORMAT_CHOICES = tuple(
    dict.fromkeys((*ENCODINGS, *_DEFAULT_FORMATS, *FORMATS))
)  # what may be asked for
FILE_PATTERNS = tuple(
    f.file_name(values)
    for f in FORMATS.values()
    for values in ((EXACT, "*") if f.can_be_rounded else (EXACT,))
)  # shell-style, of every name that a file may have
FORMAT_HELP = f"an encoding ({', '.join(ENCODINGS)}), a graph ({', '.join(_DEFAULT_FORMATS)}), or both ({next(iter(_DEFAULT_FORMATS))}-dense)"


def find_format(name: str) -> ExportFormat:
    """The format of this name; a graph alone is taken in its usual encoding."""
    found = FORMATS.get(name) or _DEFAULT_FORMATS.get(name)
    if found is None:
        raise ValueError(f"there is no format {name!r}; choose among {', '.join(FORMAT_CHOICES)}")
    return found
