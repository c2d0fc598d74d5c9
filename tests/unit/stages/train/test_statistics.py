"""Running statistics are measured anew."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.restore_bn import folded
from ltp_pipeline.records import State
from ltp_pipeline.stages.train import Job, batching
from ltp_pipeline.stages.train.statistics import refreshed
from tests.support.models import conv_bn_classifier
from tests.support.restored import job_of, restored
from tests.support.samples import only


def test_refreshed_statistics_are_the_mean_over_batches(started: tuple[Job, State]):
    """The first BatchNormalization sees the stem's output: its statistics can be computed by hand."""
    job, state = started
    state = {**state, "stem.bn.mean": torch.full((16,), 7.0), "stem.bn.var": torch.full((16,), 9.0)}
    found = refreshed(job, state)
    rng = np.random.default_rng(batching.seed_of(job.settings.train.seed, "statistics"))
    rows = rng.permutation(len(job.data.train))[: len(job.data.train) // 128 * 128]
    y = F.conv2d(torch.from_numpy(only(job.data.train.read(rows))), state["stem.weight"], padding=1)
    assert torch.allclose(found["stem.bn.mean"], y.mean((0, 2, 3)), atol=1e-4)
    by_batch = torch.stack([b.var((0, 2, 3)) for b in y.split(128)]).mean(0)
    assert torch.allclose(found["stem.bn.var"], by_batch, rtol=1e-3, atol=1e-5)
    assert state["stem.bn.mean"].eq(7.0).all()


def test_running_statistics_are_refreshed_as_those_of_any_norm(tmp_path: Path):
    network, state = restored(folded(conv_bn_classifier()))
    norm = network.norms[0]
    spoiled = {**state, norm.mean: state[norm.mean] + 1, norm.variance: state[norm.variance] * 2}
    found = refreshed(job_of(network, tmp_path), spoiled)
    assert torch.allclose(found[norm.mean], state[norm.mean], atol=1e-5)
    assert torch.allclose(found[norm.variance], state[norm.variance], rtol=0.02)
