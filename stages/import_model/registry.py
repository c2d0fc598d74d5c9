"""Registry of the functions that run ONNX operators, by name, domain and version.

An operator is a plain function of tensors. Inputs are positional, None for an optional input that
is absent. Attributes are keyword arguments with the standard's defaults. A function may ask for
two more keywords, which the program fills in: `training` (True while the network is trained) and
`n_outputs` (number of outputs of the node). The decorator `op` says what initializers in the
input slots are, so that the roles of a network's tensors follow from the operators that read them.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ltp_pipeline.graph.nodes import normalize_domain
from ltp_pipeline.graph.schemas import get_schema_version

CONTEXT_KEYWORDS = frozenset({"training", "n_outputs"})

OpFunction = Callable[..., Any]
Function = TypeVar("Function", bound=OpFunction)


@dataclass(frozen=True)
class OpImplementation:
    """One implementation of an operator, valid from schema version `since` on.

    Attributes:
        name: Name of the operator.
        since: First schema version that the function runs.
        function: The function.
        weights: Input slots whose initializers are trained whatever their size. In slots that no
            set names, a float tensor of more than one element is a weight.
        constants: Input slots of settings: never trained, and on the CPU wherever the data is.
        statistics: Input slots of buffers that training updates.
        untrained: Input slots of data without a gradient.
        context: Keywords that the program fills in.
        attributes: Attribute names; True if the attribute is required.
        domain: Domain of the operator.
    """

    name: str
    since: int
    function: OpFunction
    weights: frozenset[int]
    constants: frozenset[int]
    statistics: frozenset[int]
    untrained: frozenset[int]
    context: frozenset[str]
    attributes: dict[str, bool]
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
    """Register the decorated function as an operator.

    What is an attribute in old versions and an input in newer ones is a parameter that can be
    passed by position and by name. The arguments are fields of `OpImplementation`.

    Raises:
        ValueError: If the operator is registered twice for a version.
    """

    def register(function: Function) -> Function:
        versions = _OPS.setdefault((domain, name), [])
        if any(other.since == since for other in versions):
            raise ValueError(f"{name} is registered twice for version {since}")
        parameters = inspect.signature(function).parameters.values()
        keywords = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
        context = CONTEXT_KEYWORDS & keywords.keys()
        implementation = OpImplementation(
            name=name,
            since=since,
            function=function,
            weights=frozenset(weights),
            constants=frozenset(constants),
            statistics=frozenset(statistics),
            untrained=frozenset(untrained),
            context=context,
            attributes={n: p.default is p.empty for n, p in keywords.items() if n not in context},
            domain=domain,
        )
        versions.append(implementation)
        versions.sort(key=lambda version: version.since)
        return function

    return register


def find_op(name: str, opset: int, domain: str = "") -> OpImplementation | None:
    """Return the implementation of an operator in a model that imports an opset.

    Returns:
        The newest implementation that is not newer than the operator's schema in this opset, or
        None if there is none.
    """
    domain = normalize_domain(domain)
    version = get_schema_version(name, opset, domain)
    if version is None:
        if domain == "":
            return None
        version = opset
    for implementation in reversed(_OPS.get((domain, name), ())):
        if implementation.since <= version:
            return implementation
    return None


def iter_ops() -> Iterator[OpImplementation]:
    """Yield every implementation, by domain, name and version."""
    for key in sorted(_OPS):
        yield from _OPS[key]
