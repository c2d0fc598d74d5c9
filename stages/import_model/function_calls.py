"""Functions of a model that call each other in a circle, or make a small file large when they are written out."""

from collections.abc import Iterable
from typing import NamedTuple

from onnx import FunctionProto, ModelProto, NodeProto

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.nodes import iter_nodes, normalize_domain
from ltp_pipeline.system.text import pluralize

DEEPEST = 100  # calls within calls
MOST_NODES = 100_000  # that calling functions again may add to a model
MOST_BYTES = 1 << 26
REMEDY = "export the model without functions, or get it again from where it came from"

Key = tuple[str, str, str]


class Size(NamedTuple):
    """Of a function with everything that it calls written out."""

    nodes: int
    bytes: int


def require_bounded(model: ModelProto) -> None:
    """Refuse what writing out the functions would not end, or would make too large."""
    functions = {_key(f.domain, f.name, f): f for f in model.functions}
    sizes: dict[Key, Size] = {}

    def called(nodes: Iterable[NodeProto], own: Size, above: tuple[Key, ...]) -> Size:
        keys = (_key(n.domain, n.op_type, n) for n in nodes)
        inner = [own, *(size(key, above) for key in keys if key in functions)]
        return Size(sum(s.nodes for s in inner), sum(s.bytes for s in inner))

    def size(key: Key, above: tuple[Key, ...]) -> Size:
        if key in above:
            raise InputError(f"the function '{key[1]}' calls itself", REMEDY)
        if len(above) >= DEEPEST:
            raise InputError(
                f"the function '{key[1]}' is called through more than {DEEPEST} others", REMEDY
            )
        if key not in sizes:
            body = functions[key]
            nodes = list(iter_nodes(body))
            sizes[key] = called(nodes, Size(len(nodes), body.ByteSize()), (*above, key))
        return sizes[key]

    total = called(iter_nodes(model.graph), Size(0, 0), ())
    nodes = total.nodes - sum(1 for f in model.functions for _ in iter_nodes(f))
    size_ = total.bytes - sum(f.ByteSize() for f in model.functions)
    if nodes > MOST_NODES or size_ > MOST_BYTES:
        grown = f"{pluralize(total.nodes, 'node')} and {pluralize(total.bytes, 'byte')}"
        raise InputError(f"the model's functions have {grown} once they are written out", REMEDY)


def _key(domain: str, name: str, held: FunctionProto | NodeProto) -> Key:
    return (
        normalize_domain(domain),
        name,
        getattr(held, "overload", ""),
    )  # which older versions of onnx do not have
