"""What learning thresholds costs: one LTP step / one plain fine-tuning step of the same network on the same batch.

    python -m benchmarks.step_overhead [--quick] [--json] [--out FILE]

Steps are measured in turns in one process; the ratio of medians is printed last. Solving for λ,
which happens 200 times in a phase however long it is, is measured by itself. Peak memory is that of
one process for each kind of step, and one more process takes plain steps without
`keep_freed_memory`. Each network has the optimizer that it has by default. Bars: 1.05 on ResNet-50
size (batch 16, 224 px) and BERT-base size (16 × 128 tokens), 1.10 on the small ResNet (batch 128);
peak memory 1.25 × plain.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch

from benchmarks.contexts import start
from benchmarks.small_networks import resnet
from benchmarks.transformer import VOCABULARY, encoder
from ltp_pipeline.data.dataset import (
    TARGET,
    ArraySamples,
    ClassNumbers,
    DatasetSplits,
    Split,
    SplitInput,
)
from ltp_pipeline.results.schema_parts import InputRecipe
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.finetune import MaskedTrainingPhase
from ltp_pipeline.stages.import_model import import_model
from ltp_pipeline.stages.learn_thresholds import make_pruning_method
from ltp_pipeline.stages.learn_thresholds.phase import ThresholdLearningPhase
from ltp_pipeline.stages.train import loop
from ltp_pipeline.stages.train.batches import TensorBatch
from ltp_pipeline.stages.train.context import to_device
from ltp_pipeline.stages.train.distributed import wrap_forward
from ltp_pipeline.stages.train.memory import keep_freed_memory
from ltp_pipeline.stages.train.optimizer import make_optimizer
from ltp_pipeline.stages.train.phase import Phase, StepPosition
from ltp_pipeline.system.files import write_json

LR = 1e-4  # too small to change how many weights are pruned within the measured steps
# Of the phase that the measured steps stand in the middle of; none of them solves for λ
STEPS = 1_000_000
KINDS = ("plain", "ltp")
GIVING_BACK = "plain, giving memory back"


def resnet50() -> onnx.ModelProto:
    """Made when it is asked for: its builder is not needed for the small one."""
    from benchmarks.import_model import ResNet50, as_onnx

    return as_onnx(ResNet50())


class Case(NamedTuple):
    """A network, the shape of its batch, and how many steps are measured."""

    make: Callable[[], onnx.ModelProto]
    shape: tuple[int, ...]
    rounds: int
    vocabulary: int | None = None  # of tokens; None: the samples are floats

    def samples(self) -> np.ndarray:
        """Random ones."""
        rng = np.random.default_rng(0)
        if self.vocabulary is not None:
            return rng.integers(0, self.vocabulary, self.shape)
        return rng.normal(size=self.shape).astype(np.float32)


CASES = {
    "small ResNet, batch 128, 28 px": Case(resnet, (128, 1, 28, 28), 40),
    "ResNet-50, batch 16, 224 px": Case(resnet50, (16, 3, 224, 224), 10),
    "BERT-base size, 16 × 128 tokens": Case(encoder, (16, 128), 10, VOCABULARY),
}


class Steps:
    """A network in the middle of learning, and both kinds of step on one batch."""

    def __init__(self, case: Case, scratch: Path) -> None:
        network, state = import_model(case.make())
        settings = Settings.model_validate({"budget": {"target_compression": 10}})
        x = case.samples()
        inputs = {
            network.file.inputs[0].name: SplitInput(ArraySamples(x), InputRecipe(type=x.dtype.name))
        }
        split = Split(
            "train", inputs, {TARGET: ClassNumbers(np.arange(len(x)) % 10)}, np.arange(len(x))
        )
        self.context = start(network, DatasetSplits(split, split, split, 10, ""), settings, scratch)
        live = loop._copy_to_device(self.context, state)
        parameters = {name: live[name] for name in network.forward.weight_names}
        self.forward = wrap_forward(network.forward, live, parameters)
        masks = {k.name: torch.ones(k.shape, dtype=torch.bool) for k in network.prunable_weights}
        self.method = make_pruning_method(network, live, settings)
        self.phases: dict[str, Phase] = {
            "plain": MaskedTrainingPhase(live, self.context, masks, "plain", "plain"),
            "ltp": ThresholdLearningPhase(live, self.context, self.method),
        }
        self.method.pruned_weights(0.5)  # thresholds as they stand half way
        self.optimizer = make_optimizer(
            network, parameters, self.context.optimizer, settings.train.momentum
        )
        batch = split.read_first(len(x))
        self.batch = TensorBatch(
            *(to_device(arrays, self.context.device) for arrays in (batch.inputs, batch.targets))
        )

    def take(self, kind: str, i: int) -> float:
        """Seconds of one step."""
        begun = time.perf_counter()
        at = StepPosition(0, STEPS // 2 + i, STEPS, lr=LR, threshold_lr=LR)
        loop._train_step(
            self.context, self.forward, self.phases[kind], self.optimizer, at, self.batch, []
        )
        return time.perf_counter() - begun

    def solve(self) -> float:
        """Seconds of solving for λ once."""
        begun = time.perf_counter()
        self.method.pruned_weights(0.5)
        return time.perf_counter() - begun


def measure(name: str) -> dict[str, Any]:
    """Time both kinds of step in turns, and weigh each in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        steps = Steps(CASES[name], Path(scratch))
        rounds = range(CASES[name].rounds + 3)
        taken = np.array([[steps.take(kind, i) for kind in KINDS] for i in rounds])[3:]
        solving = min(steps.solve() for _ in range(3))
    plain, ltp = np.median(taken, axis=0).tolist()
    memory, seconds = zip(*(_alone(kind, name) for kind in (*KINDS, GIVING_BACK)), strict=True)
    return {
        "plain_ms": 1000 * plain,
        "ltp_ms": 1000 * ltp,
        "ratio": ltp / plain,
        "solve_in_plain_steps": solving / plain,
        "peak_mb": dict(zip((*KINDS, GIVING_BACK), memory, strict=True)),
        "memory_ratio": memory[1] / memory[0],
        "giving_back_ratio": seconds[2] / seconds[0],
    }


def _alone(kind: str, name: str) -> tuple[float, float]:
    command = [sys.executable, "-m", "benchmarks.step_overhead", "--alone", kind, name]
    peak, seconds = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.split()[-2:]
    return float(peak), float(seconds)


def _print_alone(kind: str, name: str) -> None:
    """Peak memory in MB, and seconds of a step, of a process that takes no other."""
    if kind != GIVING_BACK:
        keep_freed_memory()
    with tempfile.TemporaryDirectory() as scratch:
        steps = Steps(CASES[name], Path(scratch))
        taken = [
            steps.take("ltp" if kind == "ltp" else "plain", i) for i in range(CASES[name].rounds)
        ]
    print(peak_mb(), np.median(taken[2:]))


def peak_mb() -> float:
    """Most memory that this process had; what getrusage says would include its parent's."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small network only")
    parser.add_argument("--only", choices=list(CASES), help="one case")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="results file")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        _print_alone(*options.alone)
        return
    keep_freed_memory()
    names = [options.only] if options.only else list(CASES)[: 1 if options.quick else None]
    results = {name: measure(name) for name in names}
    about = {
        "command": "python -m benchmarks.step_overhead --out benchmarks/results/step_overhead.json",
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }
    if options.out:
        write_json(options.out, {**about, "cases": results})
    print(json.dumps({**about, "cases": results}, indent=2) if options.json else "")
    for name, found in results.items():
        print(
            f"{name}: LTP step / plain step = {found['ratio']:.3f}, memory {found['memory_ratio']:.2f}; "
            f"plain step that gives memory back / one that keeps it = {found['giving_back_ratio']:.2f}"
        )


if __name__ == "__main__":
    main()
