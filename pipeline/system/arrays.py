"""Type aliases for NumPy arrays and for state dicts of torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Array: TypeAlias = np.ndarray[Any, Any]
# Trained tensors by name: weights and running statistics, those of restored normalization layers
# too
StateDict: TypeAlias = "dict[str, Tensor]"
