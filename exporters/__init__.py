"""File formats: how the zeros of a pruned model are written, read back and proven.

One module per format and one table of them. `encode` comes last: every other tool works on the dense model.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from onnx import ModelProto

from ltp_pipeline.exporters import dense, packed, sparse
from ltp_pipeline.exporters.decoding import read_tensors, to_dense
from ltp_pipeline.exporters.draft import Draft
from ltp_pipeline.exporters.metadata import labels, stamp
from ltp_pipeline.exporters.proof import check_labels, verify
from ltp_pipeline.exporters.scan import Scan
from ltp_pipeline.exporters.storage import load, load_with_data, save, save_all
from ltp_pipeline.exporters.tensors import with_tensors
from ltp_pipeline.exporters.weights import float_weights


@dataclass(frozen=True)
class Format:
    """A way to write a model: `encode(model, kernels)` takes final dense weights and returns a new model.

    `draft` does the same for `save` alone, in less time: the large tensors are not copied into the new model. Give both
    a `Scan` in place of the kernels' names, and several formats look through the weights only once.
    """

    name: str
    file_name: str
    encode: Callable[..., ModelProto]
    without_copies: Callable[..., Draft] | None = None

    def draft(self, model: ModelProto, kernels: Collection[str], **how: str) -> Draft:
        """What `save` needs of `encode(model, kernels)`."""
        if self.without_copies is None:
            return Draft(self.encode(model, kernels, **how))
        return self.without_copies(model, kernels, **how)


FORMATS: dict[str, Format] = {
    name: Format(name, f"model.{name}.onnx", module.encode, module.draft)
    for name, module in (("sparse", sparse), ("packed", packed), ("dense", dense))
}

__all__ = [
    "FORMATS",
    "Draft",
    "Format",
    "Scan",
    "check_labels",
    "float_weights",
    "labels",
    "load",
    "load_with_data",
    "read_tensors",
    "save",
    "save_all",
    "stamp",
    "to_dense",
    "verify",
    "with_tensors",
]
