"""The loss: from labels, from the original's outputs, or from both."""

import pytest
import torch
import torch.nn.functional as F

from ltp_pipeline.task import LABEL, Output
from ltp_pipeline.tasks import Classification, Imitation
from ltp_pipeline.tasks.losses import divergence, relative_error

SCORE = Output(0, "scores", "scores")
SCORES, LABELS = torch.randn(8, 5), torch.randint(0, 5, (8,))


def test_probabilities_give_the_same_loss_as_the_scores_they_come_from():
    by_scores = Classification(SCORE, 5).loss([SCORES], {LABEL: LABELS}, None)
    by_probabilities = Classification(SCORE, 5, is_probability=True).loss([SCORES.softmax(1)], {LABEL: LABELS}, None)
    assert by_scores.item() == pytest.approx(by_probabilities.item(), rel=1e-5)


def test_distillation_asks_nothing_of_a_student_that_is_its_teacher():
    loss = Classification(SCORE, 5, distill=1.0).loss([SCORES], {LABEL: LABELS}, [SCORES])
    assert loss.item() == pytest.approx(0.0, abs=1e-6)


def test_the_share_of_distillation_mixes_the_two_losses():
    taught = torch.randn(8, 5)
    mixed = Classification(SCORE, 5, distill=0.25).loss([SCORES], {LABEL: LABELS}, [taught])
    expected = 0.75 * F.cross_entropy(SCORES, LABELS) + 0.25 * divergence(SCORES, taught)
    assert mixed.item() == pytest.approx(expected.item(), rel=1e-6)


def test_without_labels_every_output_counts_alike():
    outputs = (Output(0, "class", "scores"), Output(2, "boxes", "values"))
    found = [SCORES, torch.randn(8, 3, 4)]
    taught = [torch.randn(8, 5), torch.randn(8, 3, 4)]
    loss = Imitation(outputs).loss(found, {}, taught)
    expected = (divergence(found[0], taught[0]) + relative_error(found[1], taught[1])) / 2
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_error_of_values_does_not_depend_on_their_unit(scale: float):
    values, taught = torch.randn(16, 4, dtype=torch.float64), torch.randn(16, 4, dtype=torch.float64)
    assert relative_error(scale * values, scale * taught).item() == pytest.approx(relative_error(values, taught).item())


def test_outputs_that_never_vary_give_a_finite_error():
    assert torch.isfinite(relative_error(torch.zeros(4, 2), torch.zeros(4, 2)))
