"""The loss: from labels, from the original's outputs, or from both."""

import pytest
import torch

from ltp_pipeline.tasks.losses import relative_error


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_error_of_values_does_not_depend_on_their_unit(scale: float):
    values, taught = (
        torch.randn(16, 4, dtype=torch.float64),
        torch.randn(16, 4, dtype=torch.float64),
    )
    assert relative_error(scale * values, scale * taught).item() == pytest.approx(
        relative_error(values, taught).item()
    )


def test_outputs_that_never_vary_give_a_finite_error():
    assert torch.isfinite(relative_error(torch.zeros(4, 2), torch.zeros(4, 2)))
