"""The packed encoding: ordinary ONNX nodes that rebuild the kernels from their nonzeros, folded away at load.

Every tool that runs ONNX reads it; packed_graph has the nodes, packed_codec the bytes, packed_reader the way back.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from onnx import TensorProto

from ltp_pipeline.exporters.encodings import packed_codec, packed_graph, packed_reader
from ltp_pipeline.exporters.encodings.encoding import Encoding
from ltp_pipeline.exporters.encodings.packed_graph import (
    PREFIX,
    DecoderGraph,
    PackedGroup,
    PackedTensor,
    PackedUnit,
)
from ltp_pipeline.exporters.files import labels, rounding, tensors
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex, find_nonzeros
from ltp_pipeline.graph.edit import drop_inputs
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.tensors import (
    WEIGHT_TYPES,
    collect_stored_tensors,
    count_elements,
    get_byte_size,
    make_empty_tensor,
)
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.system.arrays import Array

IR_VERSION = 4  # below it, every initializer has to be a graph input too
MAX_GROUP_CODES = (
    2**20
)  # codes unpacked together: fewer cost nodes, more cost memory that is not in the cache
SMALL_TENSOR = (
    2**17
)  # elements: a node of its own costs a smaller tensor more time than being copied once more
MAX_UNIT_ELEMENTS = 2**18  # elements of small tensors that are scattered as one
TENSOR_HEADER_BYTES = 24  # bytes that a tensor takes beside its name and values
SLOW_KIND_FACTOR = 0.95  # a form that is slow to decode has to be this much smaller
KINDS = packed_codec.KINDS
DENSE_COLUMN = len(KINDS)  # the column after theirs


@dataclass(frozen=True)
class _PackableTensor:
    """A tensor on its way into a group: what is stored of it, and where its nonzeros are."""

    name: str
    tensor: TensorProto
    storage: str  # which kind of values
    scale: Array | None
    values: Array  # the nonzeros
    deltas: Array
    costs: Sequence[float]  # bytes for each of KINDS, then for dense

    @property
    def group(self) -> tuple[int, str]:
        """Only tensors of the same type can be decoded together."""
        return self.tensor.data_type, self.storage

    @property
    def size(self) -> int:
        """Elements of the dense tensor."""
        return count_elements(self.tensor)

    @property
    def can_share_unit(self) -> bool:
        """Whether it goes with others into one unit, which has one place for values and what is said of them."""
        return (
            self.size < SMALL_TENSOR
            and not self.tensor.doc_string
            and not self.tensor.metadata_props
        )


def encode(model: OnnxModel, weight_names: Collection[str], storage: str = EXACT) -> OnnxModel:
    """The model with each kernel packed in the form that takes the least room, or left dense if none does.

    A kernel in a Constant node or among the graph inputs comes out of there, as in the sparse encoding. `values` "fp16"
    and "int8" round what is stored, and the label ltp.values says so.
    """
    rounding.check_storage(storage)
    opset = packed_graph.get_opset(model.proto)
    scan = NonzeroIndex.from_names(model, weight_names)
    prepared = [
        _prepare_tensor(scan, name, tensor, storage)
        for name, tensor in _find_packable(model, weight_names, opset).items()
    ]
    decoder, parts, weights = DecoderGraph(), list[TensorProto](), dict[str, Array]()
    for index, (kind, units) in enumerate(_iter_groups(prepared)):
        group, added, arrays = _store_group(index, kind, units)
        both = decoder.merge(packed_graph.build_decoder(group, opset))
        if _is_smaller(
            added, both.num_bytes - decoder.num_bytes, [kernel for unit in units for kernel in unit]
        ):
            decoder, parts, weights = both, parts + added, weights | arrays
    packed = {kernel.name for kernel in prepared} & set(decoder.nodes)
    copy = scan.replace_negative_zeros(
        tensors.remove_tensors(model, packed, first=list(decoder.nodes.values()))
    )
    if not packed:
        return copy
    copy.graph.initializer.extend([*decoder.constants.values(), *parts])
    tensors.raise_ir_version(copy.proto, IR_VERSION)
    drop_inputs(copy.graph, packed)
    copy = replace(copy, weights={**copy.weights, **weights})
    return copy if storage == EXACT else labels.write_metadata(copy, values=storage)


def _find_packable(
    model: OnnxModel, weight_names: Collection[str], opset: int
) -> dict[str, TensorProto]:
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if opset < packed_graph.OPSET or any(name.startswith(PREFIX) for name in names):
        return {}
    outputs = {value.name for value in model.graph.output}
    types = [
        t for t in WEIGHT_TYPES if opset >= packed_graph.BFLOAT16_OPSET or t != TensorProto.BFLOAT16
    ]
    return {
        name: tensor
        for name, tensor in collect_stored_tensors(model.graph).items()
        if name in weight_names
        and name not in outputs
        and tensor.data_type in types
        and tensor.dims
        and all(tensor.dims)
    }


def _prepare_tensor(
    scan: NonzeroIndex, name: str, tensor: TensorProto, values: str
) -> _PackableTensor:
    kept, scale = EXACT, None
    if values == EXACT:
        found = scan.get_nonzeros(name)
    else:
        axis = rounding.find_output_axis(scan.model.graph, name) % len(tensor.dims)
        rounded = rounding.round_tensor(scan.model.get_array(name), values, axis)
        kept, scale, found = rounded.storage, rounded.scale, find_nonzeros(rounded.values)
    gaps = packed_codec.compute_deltas(found.positions)
    sizes = packed_codec.estimate_sizes(gaps, count_elements(tensor))
    once = 0 if scale is None else scale.nbytes
    kernel = _PackableTensor(name, tensor, kept, scale, found.values, gaps, [])
    again = [_measure_overhead(k)[2 if kernel.can_share_unit else 1] for k in KINDS]
    width = found.values.dtype.itemsize
    costs = [
        sizes[k][0] + sizes[k][1] * width + once + more
        for k, more in zip(KINDS, again, strict=True)
    ]
    return replace(kernel, costs=[*costs, float(get_byte_size(tensor))])


def _iter_groups(
    tensors: Sequence[_PackableTensor],
) -> Iterator[tuple[str, list[list[_PackableTensor]]]]:
    """The kernels that go together, in units, with the kind of codes that suits them; what stays dense is left out."""
    for key in dict.fromkeys(kernel.group for kernel in tensors):
        alike = [kernel for kernel in tensors if kernel.group == key]
        chosen = _choose_kinds(np.array([kernel.costs for kernel in alike]))
        for column, kind in enumerate(KINDS):
            coded = [k for k, choice in zip(alike, chosen, strict=True) if choice == column]
            if kind == packed_codec.MASK:
                yield from ((kind, [[kernel]]) for kernel in coded)
                continue
            together, codes = list[list[_PackableTensor]](), 0
            for unit in _iter_units(coded):
                if together and codes > MAX_GROUP_CODES:
                    yield kind, together
                    together, codes = [], 0
                together.append(unit)
                codes += sum(kernel.deltas.size for kernel in unit)
            if together:
                yield kind, together


def _iter_units(tensors: Iterable[_PackableTensor]) -> Iterator[list[_PackableTensor]]:
    """Large kernels alone, small ones together."""
    unit = list[_PackableTensor]()
    for kernel in tensors:
        if not kernel.can_share_unit:
            yield [kernel]
            continue
        if unit and sum(k.size for k in unit) + kernel.size > MAX_UNIT_ELEMENTS:
            yield unit
            unit = []
        unit.append(kernel)
    if unit:
        yield unit


def _choose_kinds(costs: Array) -> Array:
    """The column for each tensor: the cheapest, with kinds left out as long as that saves more than it costs."""
    weighed = costs.copy()
    weighed[:, [i for i, kind in enumerate(KINDS) if kind not in packed_codec.VALUED_KINDS]] /= (
        SLOW_KIND_FACTOR
    )
    allowed = [*range(len(KINDS)), DENSE_COLUMN]

    def total(columns: list[int]) -> float:
        chains = sum(
            _measure_overhead(KINDS[column])[0] for column in columns if column != DENSE_COLUMN
        )
        return float(weighed[:, columns].min(axis=1).sum() + chains)

    while len(allowed) > 1:
        fewer = min(
            ([c for c in allowed if c != out] for out in allowed if out != DENSE_COLUMN), key=total
        )
        if total(fewer) > total(allowed):
            break
        allowed = fewer
    choice: Array = np.array(allowed)[weighed[:, allowed].argmin(axis=1)]
    return choice


@cache
def _measure_overhead(kind: str) -> tuple[int, int, int]:
    """About the bytes that decoding takes: once for a group, again for each tensor in it, again for each small one."""

    def taken(*units: PackedUnit) -> int:
        group = PackedGroup(0, kind, TensorProto.FLOAT, EXACT, units)
        return packed_graph.build_decoder(group, packed_graph.SPLIT_INPUT_OPSET).num_bytes

    a, b, c = (PackedTensor(name, (8 + i,)) for i, name in enumerate("abc"))
    alone = taken(PackedUnit((a,), 1))
    if kind == packed_codec.MASK:  # which is never shared
        return 0, alone, alone
    again = taken(PackedUnit((a,), 1), PackedUnit((b,), 1)) - alone
    small = taken(PackedUnit((a, b, c), 1)) - taken(PackedUnit((a, b), 1))
    return alone - again, again + 2 * TENSOR_HEADER_BYTES, small


def _is_smaller(
    stored: Sequence[TensorProto], nodes: int, tensors: Sequence[_PackableTensor]
) -> bool:
    """Whether a group takes less than its kernels take dense; what chose its kind only knew it roughly."""
    packed = nodes + sum(
        get_byte_size(tensor) + len(tensor.name) + TENSOR_HEADER_BYTES for tensor in stored
    )
    return packed < sum(kernel.costs[DENSE_COLUMN] for kernel in tensors)


def _store_group(
    index: int, kind: str, units: Sequence[Sequence[_PackableTensor]]
) -> tuple[PackedGroup, list[TensorProto], dict[str, Array]]:
    """A group, the tensors that hold it, and their values."""
    data_type, values = units[0][0].group
    sizes = [[kernel.size for kernel in unit] for unit in units]
    gaps = [
        packed_codec.join_deltas([k.deltas for k in unit], n)
        for unit, n in zip(units, sizes, strict=True)
    ]
    nonzeros = [
        unit[0].values if len(unit) == 1 else np.concatenate([k.values for k in unit])
        for unit in units
    ]
    codes, kept = packed_codec.encode(kind, gaps, nonzeros, [sum(n) for n in sizes])
    members = [tuple(PackedTensor(k.name, tuple(k.tensor.dims)) for k in unit) for unit in units]
    group = PackedGroup(
        index,
        kind,
        data_type,
        values,
        tuple(map(PackedUnit, members, [part.size for part in codes])),
    )
    packed = packed_codec.pack(kind, np.concatenate(codes))
    code_type = TensorProto.UINT16 if packed.dtype == np.uint16 else TensorProto.UINT8
    parts, weights = (
        [make_empty_tensor(group.part_name(kind), code_type, packed.shape)],
        {group.part_name(kind): packed},
    )
    stored_type = rounding.STORED_TYPES.get(values, data_type)
    for nth, (unit, array) in enumerate(zip(units, kept, strict=True)):
        name = group.part_name(rounding.STORAGE_PARTS[values], nth)
        parts.append(make_empty_tensor(name, stored_type, array.shape, like=unit[0].tensor))
        weights[name] = array
        for i, kernel in enumerate(unit):
            if kernel.scale is not None:
                name = group.part_name("scale", nth, i)
                parts.append(make_empty_tensor(name, data_type, kernel.scale.shape))
                weights[name] = kernel.scale
    return group, parts, weights


ENCODING = Encoding(
    name="packed",
    description="plain ONNX operators that onnxruntime folds into dense weights when it loads the file",
    tool_support={
        "onnxruntime": "yes",
        "OpenVINO": "yes",
        "onnx: checker": "yes",
        "onnx: shape inference, version converter": "yes",
        "onnx: ReferenceEvaluator": "yes",
        "onnx: compose": "yes",
        "onnx-ir": "yes",
        "onnxscript's optimizer": "not tested",
        "onnxsim, onnxslim": "yes, write dense",
    },
    encode=encode,
    find_encoded_names=packed_reader.find_encoded_names,
    decode=packed_reader.decode,
)
