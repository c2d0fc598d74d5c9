"""Names of the files that a run can write: each file is a graph in an encoding.

A new encoding is an entry of ENCODINGS and a module of that name in exporters/encodings. A new
graph is an entry of GRAPHS and a module of that name in exporters/graphs. Settings, help texts and
file names follow. Nothing heavy is imported here.
"""

from dataclasses import dataclass
from typing import Literal, get_args

EXACT = "exact"  # weight storage without rounding
RoundedStorage = Literal["fp16", "int8"]
ROUNDED_STORAGES: tuple[str, ...] = get_args(RoundedStorage)

ENCODINGS = ("packed", "dense", "sparse")  # HANDOFF.md recommends the first one that was written
ROUNDABLE_ENCODINGS = ("packed",)  # encodings that can store rounded weights
ORIGINAL = "original"  # file names leave it out: `packed` is the original graph, packed
DEPLOY = "deploy"
FAST = "fast"
INT8 = "int8"
# Graphs, the plainest first, with the encoding that the name of a graph alone stands for.
GRAPHS = {ORIGINAL: None, DEPLOY: "packed", FAST: "packed", INT8: "packed"}


@dataclass(frozen=True)
class ExportFormat:
    """A graph in an encoding."""

    graph: str
    encoding: str

    @property
    def name(self) -> str:
        """Name in settings and reports, for example `packed` or `deploy-packed`."""
        return "-".join(self._name_parts)

    @property
    def can_be_rounded(self) -> bool:
        """True if the weights can also be written rounded."""
        return self.encoding in ROUNDABLE_ENCODINGS and self.graph != INT8

    def file_name(self, weight_storage: str = EXACT) -> str:
        """Return the name of the file, for example `model.deploy.packed.rounded-int8.onnx`."""
        parts = ["model", *self._name_parts]
        if weight_storage != EXACT:
            parts.append(f"rounded-{weight_storage}")
        return ".".join([*parts, "onnx"])

    @property
    def _name_parts(self) -> tuple[str, ...]:
        return (self.encoding,) if self.graph == ORIGINAL else (self.graph, self.encoding)


def find_format(name: str) -> ExportFormat:
    """Return the format with this name. A graph alone stands for its default encoding.

    Raises:
        ValueError: There is no such format.
    """
    export_format = FORMATS.get(name) or _DEFAULT_FORMATS.get(name)
    if export_format is None:
        raise ValueError(f"there is no format {name!r}; choose among {', '.join(FORMAT_CHOICES)}")
    return export_format


def _list_file_patterns() -> tuple[str, ...]:
    patterns = []
    for export_format in FORMATS.values():
        patterns.append(export_format.file_name())
        if export_format.can_be_rounded:
            patterns.append(export_format.file_name("*"))
    return tuple(patterns)


_ALL_FORMATS = [ExportFormat(graph, encoding) for graph in GRAPHS for encoding in ENCODINGS]
FORMATS = {export_format.name: export_format for export_format in _ALL_FORMATS}
_DEFAULT_FORMATS = {
    graph: FORMATS[f"{graph}-{encoding}"] for graph, encoding in GRAPHS.items() if encoding
}
FORMAT_CHOICES = tuple(dict.fromkeys((*ENCODINGS, *_DEFAULT_FORMATS, *FORMATS)))
FILE_PATTERNS = _list_file_patterns()  # shell patterns of all names that a file can have
FORMAT_HELP = (
    f"an encoding ({', '.join(ENCODINGS)}), a graph ({', '.join(_DEFAULT_FORMATS)}),"
    f" or both ({DEPLOY}-dense)"
)
