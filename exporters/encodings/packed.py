"""The packed encoding: ordinary ONNX nodes rebuild the weights from nonzeros when a file is loaded.

Every tool that runs ONNX models reads such a file. packed_codec stores positions as bytes,
packed_graph has the decoding nodes, and packed_reader decodes a file without running it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from ltp_pipeline.exporters.encodings import packed_codec, packed_graph, packed_reader
from ltp_pipeline.exporters.encodings.encoding import Encoding, find_encodable, remove_tensors
from ltp_pipeline.exporters.encodings.packed_graph import (
    PREFIX,
    DecoderGraph,
    PackedGroup,
    PackedTensor,
    PackedUnit,
)
from ltp_pipeline.exporters.files import labels, rounding
from ltp_pipeline.exporters.files.nonzeros import NonzeroIndex, find_nonzeros
from ltp_pipeline.graph.edit import drop_inputs, raise_ir_version
from ltp_pipeline.graph.model import OnnxModel
from ltp_pipeline.graph.nodes import collect_names
from ltp_pipeline.graph.tensors import (
    count_elements,
    get_byte_size,
    make_empty_tensor,
)
from ltp_pipeline.settings.file_names import EXACT
from ltp_pipeline.system.arrays import Array

IR_VERSION = 4  # below 4, every initializer has to be a graph input too
# Codes that are unpacked together. Fewer cost more nodes, more do not fit into the cache.
MAX_GROUP_CODES = 2**20
# Elements below which a tensor shares a unit, because nodes of its own cost more time than a copy.
SMALL_TENSOR = 2**17
MAX_UNIT_ELEMENTS = 2**18  # elements of the small tensors that are scattered together
TENSOR_HEADER_BYTES = 24  # bytes of a tensor in addition to its name and values
SLOW_KIND_FACTOR = 0.95  # size below which a kind of codes that decodes slowly is worth it
KINDS = packed_codec.KINDS
DENSE_COLUMN = len(KINDS)  # column of costs after those of KINDS


@dataclass(frozen=True)
class _PackableTensor:
    """A tensor to pack: its nonzeros and what each kind of codes would cost."""

    name: str
    tensor: TensorProto
    storage: str  # "exact", "fp16" or "int8"
    scale: Array | None  # of int8 values
    values: Array  # nonzeros
    deltas: Array  # distance of each nonzero to the one before
    costs: Sequence[float]  # bytes for each of KINDS, then dense

    @property
    def group_key(self) -> tuple[int, str]:
        """Type and storage: tensors can only be decoded together if these are equal."""
        return self.tensor.data_type, self.storage

    @property
    def size(self) -> int:
        """Number of elements of the dense tensor."""
        return count_elements(self.tensor)


class _Overhead(NamedTuple):
    """Approximate bytes of the decoding nodes."""

    per_group: int
    per_unit: int
    per_small_tensor: int


def encode(model: OnnxModel, weight_names: Collection[str], storage: str = EXACT) -> OnnxModel:
    """Return the model with each layer weight in the packed form that takes the fewest bytes.

    A weight stays dense if no form is smaller. A weight that is in a Constant node or is a graph
    input becomes an initializer, as in the sparse encoding.

    Args:
        model: A model with its final dense weights.
        weight_names: Names of the layer weights.
        storage: "exact", or "fp16" or "int8" for rounded values. The label ltp.values states it.
    """
    opset = packed_graph.get_opset(model.proto)
    index = NonzeroIndex.from_names(model, weight_names)
    tensors = [
        _prepare_tensor(index, name, tensor, storage)
        for name, tensor in _find_packable(model, weight_names, opset).items()
    ]
    decoder = DecoderGraph()
    initializers: list[TensorProto] = []
    weights: dict[str, Array] = {}
    for number, (kind, units) in enumerate(_iter_groups(tensors)):
        group, group_initializers, group_weights = _store_group(number, kind, units)
        merged = decoder.merge(packed_graph.build_decoder(group, opset))
        grouped_tensors = [tensor for unit in units for tensor in unit]
        if _is_smaller(group_initializers, merged.num_bytes - decoder.num_bytes, grouped_tensors):
            decoder = merged
            initializers += group_initializers
            weights |= group_weights
    packed_names = collect_names(tensors) & set(decoder.nodes)
    nodes = list(decoder.nodes.values())
    packed = index.replace_negative_zeros(remove_tensors(model, packed_names, nodes))
    if not packed_names:
        return packed
    packed.graph.initializer.extend([*decoder.constants.values(), *initializers])
    raise_ir_version(packed.proto, IR_VERSION)
    drop_inputs(packed.graph, packed_names)
    packed = replace(packed, weights={**packed.weights, **weights})
    return packed if storage == EXACT else labels.write_metadata(packed, values=storage)


def count_weight_bits(model: OnnxModel, weight_names: Collection[str]) -> dict[str, int]:
    """Return the bits that each nonzero of a layer weight takes in a packed file.

    That is its value and its share of the codes, which grows a little with the distance of
    nonzeros. With a mask, it is its value alone. A weight that would stay dense even if it had
    no nonzeros takes 1, because its zeros save nothing.

    Args:
        model: A model with the zeros that it is going to have, at least about as many.
        weight_names: Names of the layer weights.
    """
    opset = packed_graph.get_opset(model.proto)
    index = NonzeroIndex(model, weight_names)
    packable = _find_packable(model, weight_names, opset)
    bits = dict.fromkeys(weight_names, 1)
    for name, tensor in packable.items():
        nonzeros = index.get_nonzeros(name)
        overhead = min(_measure_tensor_overhead(kind, tensor) for kind in KINDS)
        if overhead >= get_byte_size(tensor) or not nonzeros.values.size:
            continue
        deltas = packed_codec.compute_deltas(nonzeros.positions)
        value_bytes = nonzeros.values.dtype.itemsize
        sizes = packed_codec.estimate_sizes(deltas, count_elements(tensor))
        kind = min(KINDS, key=lambda kind: sizes[kind][0] + sizes[kind][1] * value_bytes)
        code_bytes, num_values = sizes[kind]
        if kind == packed_codec.MASK:  # its bits belong to elements, not to nonzeros
            code_bytes, num_values = 0, nonzeros.values.size
        bits[name] = round(8 * (code_bytes + num_values * value_bytes) / nonzeros.values.size)
    return bits


def _measure_tensor_overhead(kind: str, tensor: TensorProto) -> int:
    """Return the approximate bytes of the nodes that one tensor adds to a decoder."""
    overhead = _measure_overhead(kind)
    return overhead.per_small_tensor if _can_share_unit(tensor) else overhead.per_unit


def _find_packable(
    model: OnnxModel, weight_names: Collection[str], opset: int
) -> dict[str, TensorProto]:
    """Return the layer weights that can be packed; none if the model uses reserved names."""
    names = {name for node in model.graph.node for name in (*node.input, *node.output)}
    if opset < packed_graph.OPSET or any(name.startswith(PREFIX) for name in names):
        return {}
    tensors = find_encodable(model, weight_names)
    if opset < packed_graph.BFLOAT16_OPSET:
        return {n: t for n, t in tensors.items() if t.data_type != TensorProto.BFLOAT16}
    return tensors


def _prepare_tensor(
    index: NonzeroIndex, name: str, tensor: TensorProto, storage: str
) -> _PackableTensor:
    """Round a tensor if asked and possible, find its nonzeros and estimate its costs."""
    scale = None
    if storage == EXACT:
        nonzeros = index.get_nonzeros(name)
    else:
        axis = rounding.find_output_axis(index.model.graph, name) % len(tensor.dims)
        rounded = rounding.round_tensor(index.model.get_array(name), storage, axis)
        storage = rounded.storage
        scale = rounded.scale
        nonzeros = find_nonzeros(rounded.values)
    deltas = packed_codec.compute_deltas(nonzeros.positions)
    sizes = packed_codec.estimate_sizes(deltas, count_elements(tensor))
    scale_bytes = 0 if scale is None else scale.nbytes
    costs = []
    for kind in KINDS:
        code_bytes, num_values = sizes[kind]
        nodes = _measure_tensor_overhead(kind, tensor)
        costs.append(code_bytes + num_values * nonzeros.values.dtype.itemsize + scale_bytes + nodes)
    costs.append(float(get_byte_size(tensor)))
    return _PackableTensor(name, tensor, storage, scale, nonzeros.values, deltas, costs)


def _can_share_unit(tensor: TensorProto) -> bool:
    """Return true if a tensor may share a unit with others.

    A unit has one tensor of values, and so one place for a doc string and metadata.
    """
    return (
        count_elements(tensor) < SMALL_TENSOR
        and not tensor.doc_string
        and not tensor.metadata_props
    )


def _iter_groups(
    tensors: Sequence[_PackableTensor],
) -> Iterator[tuple[str, list[list[_PackableTensor]]]]:
    """Yield the kind and the units of each group; tensors that stay dense are in none."""
    for key in dict.fromkeys(tensor.group_key for tensor in tensors):
        candidates = [tensor for tensor in tensors if tensor.group_key == key]
        columns = _choose_kinds(np.array([tensor.costs for tensor in candidates]))
        for column, kind in enumerate(KINDS):
            chosen = [candidates[i] for i in np.flatnonzero(columns == column)]
            if kind == packed_codec.MASK:  # a mask is alone in its group
                for tensor in chosen:
                    yield kind, [[tensor]]
                continue
            group: list[list[_PackableTensor]] = []
            num_codes = 0
            for unit in _iter_units(chosen):
                if group and num_codes > MAX_GROUP_CODES:
                    yield kind, group
                    group = []
                    num_codes = 0
                group.append(unit)
                num_codes += sum(tensor.deltas.size for tensor in unit)
            if group:
                yield kind, group


def _iter_units(tensors: Iterable[_PackableTensor]) -> Iterator[list[_PackableTensor]]:
    """Yield units of tensors: large tensors alone and small ones together."""
    unit: list[_PackableTensor] = []
    for tensor in tensors:
        if not _can_share_unit(tensor.tensor):
            yield [tensor]
            continue
        if unit and sum(t.size for t in unit) + tensor.size > MAX_UNIT_ELEMENTS:
            yield unit
            unit = []
        unit.append(tensor)
    if unit:
        yield unit


def _choose_kinds(costs: Array) -> Array:
    """Choose a column of costs for each tensor.

    Each tensor takes its cheapest kind. Since every kind in use costs nodes once, kinds are
    excluded one by one as long as the total cost does not grow. Rows of `costs` are tensors.
    """
    weighed = costs.copy()
    slow = [i for i, kind in enumerate(KINDS) if kind not in packed_codec.VALUED_KINDS]
    weighed[:, slow] /= SLOW_KIND_FACTOR
    allowed = [*range(len(KINDS)), DENSE_COLUMN]

    def sum_costs(columns: list[int]) -> float:
        kinds = [KINDS[column] for column in columns if column != DENSE_COLUMN]
        group_bytes = sum(_measure_overhead(kind).per_group for kind in kinds)
        return float(weighed[:, columns].min(axis=1).sum() + group_bytes)

    while len(allowed) > 1:
        options = []
        for excluded in allowed:
            if excluded != DENSE_COLUMN:
                options.append([column for column in allowed if column != excluded])
        fewer = min(options, key=sum_costs)
        if sum_costs(fewer) > sum_costs(allowed):
            break
        allowed = fewer
    choice: Array = np.array(allowed)[weighed[:, allowed].argmin(axis=1)]
    return choice


@cache
def _measure_overhead(kind: str) -> _Overhead:
    """Measure the bytes of the nodes that decode a kind of codes."""

    def count_bytes(*units: PackedUnit) -> int:
        group = PackedGroup(0, kind, TensorProto.FLOAT, EXACT, units)
        return packed_graph.build_decoder(group, packed_graph.SPLIT_INPUT_OPSET).num_bytes

    a, b, c = (PackedTensor(name, (8 + i,)) for i, name in enumerate("abc"))
    one_unit = count_bytes(PackedUnit((a,), 1))
    if kind == packed_codec.MASK:  # masks share no nodes
        return _Overhead(0, one_unit, one_unit)
    second_unit = count_bytes(PackedUnit((a,), 1), PackedUnit((b,), 1)) - one_unit
    two_tensors = count_bytes(PackedUnit((a, b), 1))
    third_tensor = count_bytes(PackedUnit((a, b, c), 1)) - two_tensors
    return _Overhead(one_unit - second_unit, second_unit + 2 * TENSOR_HEADER_BYTES, third_tensor)


def _is_smaller(
    initializers: Sequence[TensorProto], node_bytes: int, tensors: Sequence[_PackableTensor]
) -> bool:
    """Return true if a group takes fewer bytes than its tensors take dense.

    The costs by which its kind was chosen are only estimates.
    """
    packed_bytes = node_bytes
    for tensor in initializers:
        packed_bytes += get_byte_size(tensor) + len(tensor.name) + TENSOR_HEADER_BYTES
    return packed_bytes < sum(tensor.costs[DENSE_COLUMN] for tensor in tensors)


def _store_group(
    number: int, kind: str, units: Sequence[Sequence[_PackableTensor]]
) -> tuple[PackedGroup, list[TensorProto], dict[str, Array]]:
    """Encode a group of tensors.

    Returns:
        The group, its initializers without values, and their values by name.
    """
    data_type, storage = units[0][0].group_key
    unit_deltas = []
    unit_nonzeros = []
    unit_sizes = []
    for unit in units:
        sizes = [tensor.size for tensor in unit]
        unit_sizes.append(sum(sizes))
        unit_deltas.append(packed_codec.join_deltas([tensor.deltas for tensor in unit], sizes))
        nonzeros = [tensor.values for tensor in unit]
        unit_nonzeros.append(nonzeros[0] if len(unit) == 1 else np.concatenate(nonzeros))
    codes, unit_values = packed_codec.encode(kind, unit_deltas, unit_nonzeros, unit_sizes)
    packed_units = []
    for unit, unit_codes in zip(units, codes, strict=True):
        members = tuple(PackedTensor(tensor.name, tuple(tensor.tensor.dims)) for tensor in unit)
        packed_units.append(PackedUnit(members, unit_codes.size))
    group = PackedGroup(number, kind, data_type, storage, tuple(packed_units))
    initializers: list[TensorProto] = []
    weights: dict[str, Array] = {}

    def store(name: str, data_type: int, array: Array, like: TensorProto | None = None) -> None:
        initializers.append(make_empty_tensor(name, data_type, array.shape, like=like))
        weights[name] = array

    packed_codes = packed_codec.pack(kind, np.concatenate(codes))
    code_type = helper.np_dtype_to_tensor_dtype(packed_codes.dtype)
    store(group.part_name(kind), code_type, packed_codes)
    stored_type = rounding.STORED_TYPES.get(storage, data_type)
    for i, (unit, values) in enumerate(zip(units, unit_values, strict=True)):
        values_name = group.part_name(rounding.STORAGE_PARTS[storage], i)
        store(values_name, stored_type, values, like=unit[0].tensor)
        for j, tensor in enumerate(unit):
            if tensor.scale is not None:
                store(group.part_name("scale", i, j), data_type, tensor.scale)
    return group, initializers, weights


ENCODING = Encoding(
    name="packed",
    description="plain ONNX operators that onnxruntime folds into dense weights at load",
    encode=encode,
    find_encoded_names=packed_reader.find_encoded_names,
    decode=packed_reader.decode,
    tool_remarks={
        "onnxscript's optimizer": "not tested",
        "onnxsim, onnxslim": "yes, write dense",
    },
)
