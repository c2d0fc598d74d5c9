"""Counts of elements and nonzeros, and the ratios that follow from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Sparsity:
    """Number of elements and nonzeros of a set of tensors.

    This class alone defines what sparsity and compression mean. They are computed over all layer
    weights of a model, prunable or not. Over all float weights, the ratio is called model
    compression.
    """

    elements: int
    nonzeros: int

    @classmethod
    def combine(cls, parts: Iterable[Sparsity]) -> Sparsity:
        """Add up the counts of several tensors."""
        elements = 0
        nonzeros = 0
        for part in parts:
            elements += part.elements
            nonzeros += part.nonzeros
        return cls(elements, nonzeros)

    @property
    def sparsity(self) -> float:
        """Fraction of zeros."""
        return 1 - self.nonzeros / self.elements

    @property
    def compression(self) -> float | None:
        """Compression ratio of the paper, elements per nonzero; None without nonzeros."""
        return self.elements / self.nonzeros if self.nonzeros else None
