"""Mutants of a model file: its bytes, and the fields of its message.

A mutant changes a model in place, or does nothing if there is nothing to change. Mutants of the
graph are in graph_mutants.py.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from google.protobuf.message import Message
from onnx import ModelProto, NodeProto, TensorProto, helper

Mutant = Callable[[ModelProto, random.Random], None]

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, -(2**62))
TYPES = (*TensorProto.DataType.values(), 77, -1)
LOCATIONS = (
    *(
        "/etc/passwd",
        "../model.onnx",
        "..\\x",
        "C:\\x",
        "model.onnx",
        ".",
        "",
        "x\0y",
        "nul",
        "/dev/zero",
        "\udcff",
    ),
    *("n" * 4000, "/".join(["d"] * 2000), "weights.bin", "folder", "link"),
)
NAMES = (
    "",
    "x",
    "\n",
    "\0",
    "ä€\u202e",
    "n" * 4000,
    "n" * 100_000,
    "<b>&",
    "%s{0}",
    "../../x",
    "ltp/0/d8",
    " ",
)


def corrupt_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change, drop, repeat, insert or move a few bytes."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at, length = rng.randrange(len(data)), rng.choice((1, 2, 8, 64))
        kind = rng.randrange(8)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del data[at : at + length]
        elif kind == 3:
            data[at:at] = data[at : at + length]
        elif kind == 4:
            data[at:at] = rng.randbytes(length)
        elif kind == 5:
            other = rng.randrange(len(data))
            data[at : at + length] = data[other : other + length]
        elif kind == 6:  # a length or a number that is huge
            data[at : at + 5] = b"\xff\xff\xff\xff\x07"
        else:
            del data[at:]
        if not data:
            return b"\0"
    return bytes(data)


# Any field of any message


def list_messages(message: Message) -> list[Message]:
    """Return a message and all messages that are set within it."""
    found = [message]
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            parts = value if field.is_repeated else [value]
            found += [inner for part in parts for inner in list_messages(part)]
    return found


def _choose_field(model: ModelProto, rng: random.Random) -> tuple[Message, object] | None:
    owners = [m for m in list_messages(model) if m.ListFields()]
    owner = rng.choice(owners) if owners else None
    return owner and (owner, rng.choice(owner.ListFields())[0])


def drop_field(model: ModelProto, rng: random.Random) -> None:
    """Clear a field."""
    if found := _choose_field(model, rng):
        found[0].ClearField(found[1].name)


def repeat_field(model: ModelProto, rng: random.Random) -> None:
    """Repeat an item of a repeated field once or often."""
    if (found := _choose_field(model, rng)) and found[1].is_repeated:
        values = getattr(found[0], found[1].name)
        values.extend([rng.choice(values)] * rng.choice((1, 1, 1, 2, 100)))


def change_field(model: ModelProto, rng: random.Random) -> None:
    """Change a number, text or bytes."""
    if not (found := _choose_field(model, rng)):
        return
    owner, field = found
    value = {
        field.CPPTYPE_INT64: lambda: rng.choice(NUMBERS),
        field.CPPTYPE_INT32: lambda: rng.choice((0, 1, -1, 7, 2**31 - 1, -(2**31))),
        field.CPPTYPE_ENUM: lambda: rng.choice(field.enum_type.values).number,
        field.CPPTYPE_FLOAT: lambda: rng.choice((0.0, -1.0, 1e38, float("inf"), float("nan"))),
        field.CPPTYPE_STRING: lambda: (
            rng.randbytes(rng.choice((0, 1, 9)))
            if field.type == field.TYPE_BYTES
            else rng.choice(NAMES)
        ),
    }.get(field.cpp_type)
    if value is None:
        return
    if field.is_repeated:
        values = getattr(owner, field.name)
        values[rng.randrange(len(values))] = value()
    else:
        setattr(owner, field.name, value())


def copy_message(model: ModelProto, rng: random.Random) -> None:
    """Replace a message by a copy of another one of its type."""
    parts = list_messages(model)
    target = rng.choice(parts)
    same = [p for p in parts if p.DESCRIPTOR is target.DESCRIPTOR and p is not target]
    if same:
        source = type(target)()
        source.CopyFrom(rng.choice(same))
        target.CopyFrom(source)


# Tensors


def list_tensors(model: ModelProto) -> list[TensorProto]:
    """Return every tensor of a model."""
    return [m for m in list_messages(model) if isinstance(m, TensorProto)]


def _choose_tensor(model: ModelProto, rng: random.Random) -> TensorProto:
    found = list_tensors(model)
    return rng.choice(found) if found else TensorProto()


def change_dims(model: ModelProto, rng: random.Random) -> None:
    """Change the dims of a tensor to huge, negative, more or fewer ones."""
    dims = _choose_tensor(model, rng).dims
    kind = rng.randrange(6)
    if dims and kind < 3:
        dims[rng.randrange(len(dims))] = rng.choice(NUMBERS)
    elif kind == 3:
        dims.append(rng.choice(NUMBERS))
    elif kind == 4:
        dims.extend([rng.choice((1, 2, 2**62))] * rng.choice((40, 70, 5000)))
    else:
        del dims[:]


def change_type(model: ModelProto, rng: random.Random) -> None:
    """Change the type of a tensor, with the same bytes or as many as the type needs."""
    tensor = _choose_tensor(model, rng)
    tensor.data_type = rng.choice(TYPES)
    if rng.random() < 0.7 and tensor.data_type in TensorProto.DataType.values()[1:]:
        count = 1
        for d in tensor.dims:
            count *= d
        if 0 <= count < 2**16 and tensor.data_type != TensorProto.STRING:
            bits = {4: 4, 2: 2}.get(
                int("0" + "".join(filter(str.isdigit, _get_type_name(tensor)))[:1]), 8
            )
            width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
            for field in (
                "float_data",
                "int32_data",
                "int64_data",
                "string_data",
                "double_data",
                "uint64_data",
            ):
                tensor.ClearField(field)
            tensor.raw_data = rng.randbytes(
                count * width if width > 1 or bits == 8 else -(-count * bits // 8)
            )


def _get_type_name(tensor: TensorProto) -> str:
    return TensorProto.DataType.Name(tensor.data_type)


def store_text(model: ModelProto, rng: random.Random) -> None:
    """Store text in a tensor."""
    tensor = _choose_tensor(model, rng)
    tensor.data_type = TensorProto.STRING
    tensor.ClearField("raw_data")
    tensor.string_data.extend([b"\xff\xfe", b"text"] * rng.choice((1, 5)))


def change_values(model: ModelProto, rng: random.Random) -> None:
    """Change the values of a tensor to random bytes, NaN or huge numbers."""
    tensor = _choose_tensor(model, rng)
    size = len(tensor.raw_data)
    kind = rng.randrange(4)
    if kind == 0:
        tensor.raw_data = rng.randbytes(max(size + rng.choice((0, -1, 4, -size, 1000)), 0))
    elif kind == 1:
        value = rng.choice((float("nan"), float("inf"), -float("inf"), 3e38, 1e-45, -0.0))
        tensor.raw_data = struct.pack("<f", value) * (size // 4)
    elif kind == 2:
        tensor.raw_data = b"".join(struct.pack("<q", rng.choice(NUMBERS)) for _ in range(size // 8))
    else:
        tensor.float_data.extend([1.0, float("nan")] * rng.choice((1, 50)))


def change_integers(model: ModelProto, rng: random.Random) -> None:
    """Change shapes, axes, counts and indices."""
    found = [t for t in list_tensors(model) if t.data_type == TensorProto.INT64]
    if found:
        tensor = rng.choice(found)
        size = len(tensor.raw_data) // 8
        tensor.raw_data = b"".join(struct.pack("<q", rng.choice(NUMBERS)) for _ in range(size))


def move_values_outside(model: ModelProto, rng: random.Random) -> None:
    """Move values of a tensor to external data with a hostile name or offset."""
    tensor = _choose_tensor(model, rng)
    entries = {"location": rng.choice(LOCATIONS)}
    for key in ("offset", "length", "checksum"):
        if rng.random() < 0.4:
            entries[key] = rng.choice((*map(str, NUMBERS), "", "x", "9" * 5000, "1e3", " 4 ", "٣"))
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value.encode("utf-8", "replace").decode())
    tensor.data_location = rng.choice(
        (TensorProto.EXTERNAL, TensorProto.EXTERNAL, TensorProto.DEFAULT)
    )
    if rng.random() < 0.7:
        tensor.ClearField("raw_data")


def add_sparse_tensor(model: ModelProto, rng: random.Random) -> None:
    """Add a sparse initializer with any dims, indices and name."""
    names = [t.name for t in model.graph.initializer] or ["w"]
    part = model.graph.sparse_initializer.add()
    count = rng.choice((0, 1, 3))
    part.dims.extend(
        rng.choice(((8,), (2, 4), (0,), (2**31, 2**31), (-1,), (2**28,), (), (1,) * 70))
    )
    part.values.CopyFrom(
        TensorProto(
            name=rng.choice((*names, "s", "")), data_type=rng.choice(TYPES[:20]), dims=[count]
        )
    )
    part.values.raw_data = rng.randbytes(count * rng.choice((4, 4, 8, 1)))
    shape = rng.choice(((count,), (count, 2), (count, 1), (2**40,), ()))
    part.indices.CopyFrom(TensorProto(data_type=rng.choice((7, 7, 7, 6, 1)), dims=shape))
    part.indices.raw_data = b"".join(
        struct.pack("<q", rng.choice(NUMBERS)) for _ in range(count * rng.choice((1, 2)))
    )
    if rng.random() < 0.5 and names[0] == part.values.name:
        del model.graph.initializer[0]


# Versions and labels


def change_version(model: ModelProto, rng: random.Random) -> None:
    """Change opsets and IR version to old, new, repeated or missing ones."""
    kind = rng.randrange(5)
    if kind == 0:
        model.ir_version = rng.choice((0, 1, 3, 4, 9, 13, 2**40, -1))
    elif kind == 1 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice(
            (-1, 0, 1, 6, 7, 8, 9, 11, 13, 18, 21, 25, 99, 2**40)
        )
    elif kind == 2:
        model.opset_import.add(
            domain=rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "x")), version=7
        )
    elif kind == 3:
        del model.opset_import[:]
    else:
        model.opset_import.extend(list(model.opset_import) * rng.choice((1, 1000)))


def add_labels(model: ModelProto, rng: random.Random) -> None:
    """Add labels of our own files, also twice."""
    for key in ("ltp.format", "ltp.graph", "ltp.values", rng.choice(NAMES)):
        model.metadata_props.add(key=key, value=rng.choice(("packed", "sparse", "int8", *NAMES)))


def change_name(model: ModelProto, rng: random.Random) -> None:
    """Change a name to a long, empty, shared or non-text one."""
    kinds = [m for m in list_messages(model) if "name" in m.DESCRIPTOR.fields_by_name]
    rng.choice(kinds).name = rng.choice(NAMES)
    if rng.random() < 0.3:
        node = rng.choice(
            [m for m in kinds if isinstance(m, NodeProto)] or [NodeProto(output=["y"])]
        )
        if node.output:
            node.output[0] = rng.choice(NAMES)


MESSAGE_MUTANTS: tuple[Mutant, ...] = (
    *(drop_field, repeat_field, change_field, change_field, copy_message),
    *(
        change_dims,
        change_type,
        change_type,
        store_text,
        change_values,
        change_integers,
        change_integers,
    ),
    *(
        move_values_outside,
        move_values_outside,
        add_sparse_tensor,
        change_version,
        add_labels,
        change_name,
    ),
)
