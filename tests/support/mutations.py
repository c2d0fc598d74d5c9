"""Ways to spoil a model: its bytes, or its structure with the bytes still those of a message."""

from __future__ import annotations

import random
from collections.abc import Callable

from onnx import ModelProto, NodeProto, TensorProto, defs, helper

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, -(2**62))
OPERATORS = sorted({s.name for s in defs.get_all_schemas() if s.domain == ""})


def spoil_bytes(content: bytes, seed: int) -> bytes:
    """Change, drop, repeat or insert a few bytes."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret here
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, length = rng.randrange(len(data)), rng.choice((1, 2, 8, 64))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = data[at : at + length]
        elif kind == 3:
            data[at:at] = rng.randbytes(length)
        else:
            del data[at:]
        if not data:
            return b"\0"
    return bytes(data)


def spoil_structure(model: ModelProto, seed: int) -> ModelProto:
    """Change a few fields to something that fits the message but seldom the model."""
    rng = random.Random(seed)  # noqa: S311 - nothing secret here
    copy = ModelProto.FromString(model.SerializeToString())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_EDITS)(copy, rng)
    return copy


def _node(model: ModelProto, rng: random.Random) -> NodeProto:
    return rng.choice(model.graph.node) if model.graph.node else NodeProto()


def _tensor(model: ModelProto, rng: random.Random) -> TensorProto:
    return rng.choice(model.graph.initializer) if model.graph.initializer else TensorProto()


def _names(model: ModelProto) -> list[str]:
    values = {v.name for v in (*model.graph.input, *model.graph.output)} | {t.name for t in model.graph.initializer}
    return sorted(values | {n for node in model.graph.node for n in (*node.input, *node.output)} | {"", "nothing"})


def _rewire(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    values = rng.choice((node.input, node.output))
    if values:
        values[rng.randrange(len(values))] = rng.choice(_names(model))


def _more_or_fewer(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    values = rng.choice((node.input, node.output))
    if rng.random() < 0.5:
        values.append(rng.choice(_names(model)))
    elif values:
        del values[-1]


def _operator(model: ModelProto, rng: random.Random) -> None:
    _node(model, rng).op_type = rng.choice(OPERATORS)


def _attribute(model: ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = [a.name for a in node.attribute] or ["axis"]
    if node.op_type in OPERATORS and rng.random() < 0.7:
        names += list(defs.get_schema(node.op_type).attributes)
    name = rng.choice(names)
    value = rng.choice(
        (rng.choice(NUMBERS), [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 5))], 0.5, "SAME_UPPER")
    )
    for i, attribute in enumerate(node.attribute):
        if attribute.name == name:
            del node.attribute[i]
            break
    node.attribute.append(helper.make_attribute(name, value))


def _dims(model: ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    if tensor.dims and rng.random() < 0.8:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    else:
        tensor.dims.append(rng.choice(NUMBERS))


def _type(model: ModelProto, rng: random.Random) -> None:
    _tensor(model, rng).data_type = rng.randrange(30)


def _values(model: ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    tensor.raw_data = rng.randbytes(max(len(tensor.raw_data) + rng.choice((0, 0, 0, -1, 4)), 0))


def _integers(model: ModelProto, rng: random.Random) -> None:
    tensors = [t for t in model.graph.initializer if t.data_type == TensorProto.INT64]
    if tensors:
        tensor = rng.choice(tensors)
        size = len(tensor.raw_data) // 8
        tensor.raw_data = b"".join(rng.choice(NUMBERS).to_bytes(8, "little", signed=True) for _ in range(size))


def _drop(model: ModelProto, rng: random.Random) -> None:
    values = rng.choice((model.graph.node, model.graph.initializer, model.graph.input, model.graph.output))
    if values:
        del values[rng.randrange(len(values))]


def _repeat(model: ModelProto, rng: random.Random) -> None:
    values = rng.choice((model.graph.node, model.graph.initializer, model.graph.input, model.graph.output))
    if values:
        values.append(rng.choice(values))


def _input_shape(model: ModelProto, rng: random.Random) -> None:
    for value in model.graph.input[:1]:
        dims = value.type.tensor_type.shape.dim
        if dims:
            rng.choice(dims).dim_value = rng.choice(NUMBERS)


def _input_type(model: ModelProto, rng: random.Random) -> None:
    for value in model.graph.input[:1]:
        value.type.tensor_type.elem_type = rng.randrange(30)


def _version(model: ModelProto, rng: random.Random) -> None:
    if rng.random() < 0.5 and model.opset_import:
        model.opset_import[0].version = rng.choice((-1, 1, 7, 8, 9, 11, 13, 18, 21, 25, 2**40))
    else:
        model.ir_version = rng.choice((0, 1, 3, 4, 9, 2**40))


def _external(model: ModelProto, rng: random.Random) -> None:
    tensor = _tensor(model, rng)
    tensor.external_data.add(key="location", value=rng.choice(("/etc/passwd", "../x", "x", "")))
    tensor.data_location = TensorProto.EXTERNAL


_EDITS: list[Callable[[ModelProto, random.Random], None]] = [
    _rewire,
    _more_or_fewer,
    _operator,
    _attribute,
    _attribute,
    _dims,
    _type,
    _values,
    _integers,
    _integers,
    _drop,
    _repeat,
    _input_shape,
    _input_type,
    _version,
    _external,
]
