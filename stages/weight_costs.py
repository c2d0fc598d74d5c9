"""WeightCosts: what a weight of each layer costs, for budgets that do not count weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from ltp_pipeline.errors import InputError
from ltp_pipeline.graph.layer_weights import LayerWeight
from ltp_pipeline.settings.schema import CostKind
from ltp_pipeline.stages.multiply_adds import count_cost

Masks = Mapping[str, Tensor]
# Returns masks of prunable layers whose weights cost at most a budget.
MakeMasks = Callable[[int], Masks]
# Returns the budget of prunable layers at which their masks meet the target of the run. Its
# arguments are a function that makes masks, and the budget to begin with.
MeetTarget = Callable[[MakeMasks, int], int]


@dataclass(frozen=True)
class WeightCosts:
    """What a weight of each layer costs, and what all kept weights may cost together.

    Attributes:
        kind: What the costs add up to.
        per_weight: κ, the cost of one weight, by name of the layer.
        total: Cost of all elements of all layers.
        budget: What the kept weights of all layers may cost.
        meet_target: Corrects the budget for masks whose cost is measured and not added up; None if
            costs add up exactly.
        predict: Returns the measured quantity that nonzeros of layers lead us to expect; None if
            nothing is predicted.
    """

    kind: CostKind
    per_weight: Mapping[str, int]
    total: int
    budget: int
    meet_target: MeetTarget | None = field(default=None, repr=False, compare=False)
    predict: Callable[[Mapping[str, int]], float] | None = field(
        default=None, repr=False, compare=False
    )

    @property
    def reduction(self) -> float:
        """Cost of all elements / cost of the weights to keep."""
        return self.total / max(self.budget, 1)


class ReachableCosts(NamedTuple):
    """Costs of the prunable layers between which their budget must lie.

    Attributes:
        excluded: Cost of the nonzeros of layers that are excluded from pruning.
        least: Cost of the fewest weights that the other layers keep.
        present: Cost of the nonzeros that the other layers have at present.
    """

    excluded: int
    least: int
    present: int


def find_reachable(
    layers: Sequence[LayerWeight],
    nonzeros: Mapping[str, int],
    lowest: Mapping[str, int],
    costs: Mapping[str, int],
) -> ReachableCosts:
    """Return what the weights of prunable layers cost at least and at most.

    Args:
        layers: All layer weights of the network.
        nonzeros: Number of nonzeros of each layer at present.
        lowest: The smallest number of weights that each prunable layer keeps.
        costs: Cost of one weight of each layer.
    """
    excluded = {layer.name: nonzeros[layer.name] for layer in layers if not layer.is_prunable}
    others = {layer.name: nonzeros[layer.name] for layer in layers if layer.is_prunable}
    return ReachableCosts(
        count_cost(excluded, costs), count_cost(lowest, costs), count_cost(others, costs)
    )


def count_multiply_add_costs(
    layers: Sequence[LayerWeight], uses: Mapping[str, int], fraction: float
) -> WeightCosts:
    """Return costs in multiply-adds, of which a fraction may be left.

    Args:
        layers: All layer weights of the network.
        uses: How often a weight of each layer is multiplied in one sample.
        fraction: The fraction that may be left.

    Raises:
        InputError: The uses of a layer are unknown.
    """
    for layer in layers:
        if layer.name not in uses:
            raise InputError(
                f"budget.target_macs needs the multiply-adds of all layers, and those of"
                f" {layer.name!r} cannot be counted: it is used inside the body of another node",
                "set a budget that counts weights, such as --target-compression",
            )
    per_weight = {layer.name: uses[layer.name] for layer in layers}
    total = count_cost({layer.name: layer.elements for layer in layers}, per_weight)
    # A product may have been rounded down before.
    budget = math.floor(total * fraction * (1 + 1e-12))
    return WeightCosts("multiply-adds", per_weight, total, budget)
