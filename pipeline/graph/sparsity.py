"""Counts of elements and nonzeros, and the ratios that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sparsity:
    """Counted over all kernels of a model, prunable or not, or over all its float weights (exporters/weights.py).

    The one definition of these words; over all float weights, compression is called model compression.
    """

    elements: int
    nonzeros: int

    @classmethod
    def combine(cls, parts: Iterable[Sparsity]) -> Sparsity:
        """Several tensors counted as one."""
        listed = list(parts)
        return cls(sum(p.elements for p in listed), sum(p.nonzeros for p in listed))

    @property
    def sparsity(self) -> float:
        """Share of zeros."""
        return 1 - self.nonzeros / self.elements

    @property
    def compression(self) -> float | None:
        """The paper's rate; None when nothing is left."""
        return self.elements / self.nonzeros if self.nonzeros else None
