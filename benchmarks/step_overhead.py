"""What learning thresholds costs: one LTP step / one plain fine-tuning step of the same module on the same batch.

    python -m benchmarks.step_overhead [--quick] [--json]

Steps are measured in turns in one process; the ratio of medians is printed last. Bars: 1.05 on ResNet-50 size (batch
16, 224 px), 1.10 on the small ResNet (batch 128); peak memory 1.25 × plain.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from benchmarks.small_networks import resnet
from ltp_pipeline import import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.stages.finetune import Masked
from ltp_pipeline.stages.learn_thresholds import make_method
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.training import Progress, Training
from ltp_pipeline.workspace import Workspace

STEPS = 1000  # of the phase that the measured steps stand in: λ is solved in one step of five


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small network only")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cases: dict[str, tuple[Callable[[], onnx.ModelProto], tuple[int, ...], int]] = {
        "small ResNet, batch 128, 28 px": (resnet, (128, 1, 28, 28), 40),
    }
    if not options.quick:
        from benchmarks.import_model import ResNet50, as_onnx

        cases["ResNet-50, batch 16, 224 px"] = (lambda: as_onnx(ResNet50()), (16, 3, 224, 224), 10)
    results = {name: measure(make(), shape, rounds) for name, (make, shape, rounds) in cases.items()}
    print(json.dumps(results, indent=2) if options.json else "")
    for name, found in results.items():
        print(f"{name}: LTP step / plain step = {found['ratio']:.3f}")


def measure(model: onnx.ModelProto, shape: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Time both kinds of step in turns."""
    imported = import_model(model)
    settings = Settings.model_validate({"budget": {"target_compression": 10}})
    with tempfile.TemporaryDirectory() as scratch:
        # Single steps are given their batch, so there is no data set.
        training = Training(imported, None, settings.train, Workspace(Path(scratch)), torch.device("cpu"))  # type: ignore[arg-type]
        masks = {k.name: torch.ones(k.shape, dtype=torch.bool) for k in imported.prunable}
        phases = {
            "plain": Masked(training, masks, "plain", "plain"),
            "ltp": Learning(training, make_method(imported, settings), 1),
        }
        optimizer = torch.optim.SGD(imported.module.parameters(), lr=0.001, momentum=0.9)
        x, y = torch.randn(shape), torch.randint(0, 10, shape[:1])
        taken: dict[str, list[float]] = {"plain": [], "ltp": []}
        for i in range(rounds + 3):
            for name, phase in phases.items():
                begun = time.perf_counter()
                training._step(phase, optimizer, Progress(0, STEPS // 2 + i, STEPS, lr=0.001), x, y)
                taken[name].append(time.perf_counter() - begun)
    plain, ltp = (float(np.median(taken[n][3:])) for n in ("plain", "ltp"))
    return {"plain_ms": 1000 * plain, "ltp_ms": 1000 * ltp, "ratio": ltp / plain}


if __name__ == "__main__":
    main()
