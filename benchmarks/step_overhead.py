"""Compare a step of learning thresholds with a fine-tuning step of the same network and batch.

    python -m benchmarks.step_overhead [--quick] [--json] [--out FILE]

Both kinds of step alternate in one process, and the ratio of medians is printed last. Solving for λ
is measured separately, because it happens 200 times in a phase of any length. Peak memory is that
of a process for each kind of step. A further process measures plain steps without
`keep_freed_memory`. Each network has its default optimizer. The limits are 1.05 for ResNet-50
(batch 16, 224 px) and for the size of BERT-base (16 × 128 tokens), 1.10 for the small ResNet (batch
128), and 1.25 for peak memory.
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

from benchmarks.contexts import start_context
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

LR = 1e-4  # so small that the measured steps prune no further weights
# Steps of the phase; the measured ones are in its middle, where none of them solves for λ.
STEPS = 1_000_000
KINDS = ("plain", "ltp")
GIVING_BACK = "plain, giving memory back"


def make_resnet50() -> onnx.ModelProto:
    """Return ResNet-50 as an ONNX model; other cases do not import its module."""
    from benchmarks.networks import ResNet50, as_onnx

    return as_onnx(ResNet50())


class Case(NamedTuple):
    """A network, the shape of its batch, and the number of measured steps."""

    make: Callable[[], onnx.ModelProto]
    shape: tuple[int, ...]
    rounds: int
    vocabulary: int | None = None  # number of tokens; None for samples of floats

    def make_samples(self) -> np.ndarray:
        """Return a batch of random samples."""
        rng = np.random.default_rng(0)
        if self.vocabulary is not None:
            return rng.integers(0, self.vocabulary, self.shape)
        return rng.normal(size=self.shape).astype(np.float32)


CASES = {
    "small ResNet, batch 128, 28 px": Case(resnet, (128, 1, 28, 28), 40),
    "ResNet-50, batch 16, 224 px": Case(make_resnet50, (16, 3, 224, 224), 10),
    "BERT-base size, 16 × 128 tokens": Case(encoder, (16, 128), 10, VOCABULARY),
}


class StepTimer:
    """Takes and times both kinds of step of a network in the middle of learning."""

    def __init__(self, case: Case, scratch: Path) -> None:
        network, state = import_model(case.make())
        settings = Settings.model_validate({"budget": {"target_compression": 10}})
        x = case.make_samples()
        inputs = {
            network.file.inputs[0].name: SplitInput(ArraySamples(x), InputRecipe(type=x.dtype.name))
        }
        split = Split(
            "train", inputs, {TARGET: ClassNumbers(np.arange(len(x)) % 10)}, np.arange(len(x))
        )
        self.context = start_context(
            network, DatasetSplits(split, split, split, 10, ""), settings, scratch
        )
        live = loop._copy_to_device(self.context, state)
        parameters = {name: live[name] for name in network.forward.weight_names}
        self.forward = wrap_forward(network.forward, live, parameters)
        masks = {k.name: torch.ones(k.shape, dtype=torch.bool) for k in network.prunable_weights}
        self.method = make_pruning_method(network, live, settings)
        self.phases: dict[str, Phase] = {
            "plain": MaskedTrainingPhase(live, self.context, masks, "plain", "plain"),
            "ltp": ThresholdLearningPhase(live, self.context, self.method),
        }
        self.method.pruned_weights(0.5)  # the thresholds in the middle of the phase
        self.optimizer = make_optimizer(
            network, parameters, self.context.optimizer, settings.train.momentum
        )
        batch = split.read_first(len(x))
        self.batch = TensorBatch(
            *(to_device(arrays, self.context.device) for arrays in (batch.inputs, batch.targets))
        )

    def time_step(self, kind: str, i: int) -> float:
        """Return the seconds of a step."""
        begin = time.perf_counter()
        position = StepPosition(0, STEPS // 2 + i, STEPS, lr=LR, threshold_lr=LR)
        loop._train_step(
            self.context, self.forward, self.phases[kind], self.optimizer, position, self.batch, []
        )
        return time.perf_counter() - begin

    def time_solving(self) -> float:
        """Return the seconds of solving for λ."""
        begin = time.perf_counter()
        self.method.pruned_weights(0.5)
        return time.perf_counter() - begin


def measure_case(name: str) -> dict[str, Any]:
    """Return times of both kinds of step, and the peak memory of a process for each."""
    with tempfile.TemporaryDirectory() as scratch:
        steps = StepTimer(CASES[name], Path(scratch))
        rounds = range(CASES[name].rounds + 3)
        times = np.array([[steps.time_step(kind, i) for kind in KINDS] for i in rounds])[3:]
        solving = min(steps.time_solving() for _ in range(3))
    plain, ltp = np.median(times, axis=0).tolist()
    processes = [_run_process(kind, name) for kind in (*KINDS, GIVING_BACK)]
    memory, seconds = zip(*processes, strict=True)
    return {
        "plain_ms": 1000 * plain,
        "ltp_ms": 1000 * ltp,
        "ratio": ltp / plain,
        "solve_in_plain_steps": solving / plain,
        "peak_mb": dict(zip((*KINDS, GIVING_BACK), memory, strict=True)),
        "memory_ratio": memory[1] / memory[0],
        "giving_back_ratio": seconds[2] / seconds[0],
    }


def _run_process(kind: str, name: str) -> tuple[float, float]:
    """Return peak memory in MB and seconds of a step of a new process with one kind of step."""
    command = [sys.executable, "-m", "benchmarks.step_overhead", "--alone", kind, name]
    peak, seconds = subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.split()[-2:]
    return float(peak), float(seconds)


def _print_process(kind: str, name: str) -> None:
    """Print peak memory in MB and seconds of a step of this process, for one kind of step."""
    if kind != GIVING_BACK:
        keep_freed_memory()
    with tempfile.TemporaryDirectory() as scratch:
        steps = StepTimer(CASES[name], Path(scratch))
        phase = "ltp" if kind == "ltp" else "plain"
        times = [steps.time_step(phase, i) for i in range(CASES[name].rounds)]
    print(read_peak_mb(), np.median(times[2:]))


def read_peak_mb() -> float:
    """Return the peak memory of this process; getrusage would include that of its parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    """Measure the selected cases and print their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure only the small network")
    parser.add_argument("--only", choices=list(CASES), help="measure only this case")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)  # for _run_process
    options = parser.parse_args()
    if options.alone:
        _print_process(*options.alone)
        return
    keep_freed_memory()
    names = [options.only] if options.only else list(CASES)[: 1 if options.quick else None]
    results = {name: measure_case(name) for name in names}
    threads = torch.get_num_threads()
    about = {
        "command": "python -m benchmarks.step_overhead --out benchmarks/results/step_overhead.json",
        "machine": f"{platform.machine()}, {threads} threads, torch {torch.__version__}",
    }
    if options.out:
        write_json(options.out, {**about, "cases": results})
    print(json.dumps({**about, "cases": results}, indent=2) if options.json else "")
    for name, result in results.items():
        ratio, memory_ratio = result["ratio"], result["memory_ratio"]
        print(f"{name}: LTP step / plain step = {ratio:.3f}, memory {memory_ratio:.2f}")
        ratio = result["giving_back_ratio"]
        print(f"{name}: plain step that gives memory back / one that keeps it = {ratio:.2f}")


if __name__ == "__main__":
    main()
