"""The loss of outputs that are values."""

import pytest
import torch

from ltp_pipeline.tasks.losses import relative_error


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_relative_error_does_not_depend_on_the_unit(scale: float):
    values = torch.randn(16, 4, dtype=torch.float64)
    teacher_values = torch.randn(16, 4, dtype=torch.float64)
    expected = relative_error(values, teacher_values).item()
    actual = relative_error(scale * values, scale * teacher_values).item()
    assert actual == pytest.approx(expected)


def test_relative_error_of_constant_outputs_is_finite():
    assert torch.isfinite(relative_error(torch.zeros(4, 2), torch.zeros(4, 2)))
