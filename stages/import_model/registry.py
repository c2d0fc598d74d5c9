"""Which function runs which ONNX operator, in which version.

An operator is a plain function of tensors: inputs by position (an absent optional input is None), attributes as
keyword arguments with the standard's defaults. Two keywords are filled in by the walker when a function asks for them:
`training` (module mode) and `n_outputs` (how many outputs the node has).
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ltp_pipeline.graph.nodes import normalize_domain
from ltp_pipeline.graph.schemas import signature

CONTEXT_KEYWORDS = frozenset({"training", "n_outputs"})

OpFunction = Callable[..., Any]
Function = TypeVar("Function", bound=OpFunction)


@dataclass(frozen=True)
class OpImplementation:
    """One implementation of an operator, valid from schema version `since` on.

    The sets say what an initializer in an input slot is: `weights` are trained whatever their size, `constants` are
    settings, never trained and left on the CPU when the data is elsewhere, `untrained` is data without a gradient,
    `statistics` are buffers that training updates. In the other slots a float tensor of more than one element is a
    weight.
    """

    name: str
    since: int
    function: OpFunction
    weights: frozenset[int]
    constants: frozenset[int]
    statistics: frozenset[int]
    untrained: frozenset[int]
    context: frozenset[str]
    attributes: dict[str, bool]  # name → whether it must be given
    domain: str


_OPS: dict[tuple[str, str], list[OpImplementation]] = {}


def op(
    name: str,
    since: int = 1,
    *,
    weights: tuple[int, ...] = (),
    constants: tuple[int, ...] = (),
    statistics: tuple[int, ...] = (),
    untrained: tuple[int, ...] = (),
    domain: str = "",
) -> Callable[[Function], Function]:
    """Register the decorated function as operator `name` from schema version `since` on."""

    def register(function: Function) -> Function:
        versions = _OPS.setdefault((domain, name), [])
        if any(other.since == since for other in versions):
            raise ValueError(f"{name} is registered twice for version {since}")
        keywords = [
            p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        wanted = CONTEXT_KEYWORDS & {p.name for p in keywords}
        attributes = {p.name: p.default is p.empty for p in keywords if p.name not in wanted}
        slots = (
            frozenset(weights),
            frozenset(constants),
            frozenset(statistics),
            frozenset(untrained),
        )
        versions.append(OpImplementation(name, since, function, *slots, wanted, attributes, domain))
        versions.sort(key=lambda o: o.since)
        return function

    return register


def find_op(name: str, opset: int, domain: str = "") -> OpImplementation | None:
    """Newest implementation that is not newer than the model's schema of this operator."""
    domain = normalize_domain(domain)
    known = signature(name, opset, domain)
    if known is None and domain == "":
        return None
    version = opset if known is None else known.since
    return next((o for o in reversed(_OPS.get((domain, name), ())) if o.since <= version), None)


def iter_ops() -> Iterator[OpImplementation]:
    """Every implementation, by domain, name and version."""
    for key in sorted(_OPS):
        yield from _OPS[key]
