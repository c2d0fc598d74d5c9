"""Measure the fraction of the time that training steps wait for tokens from disk.

    python -m benchmarks.token_feed [--quick] [--out FILE]

The data are a million sequences of different lengths, as a folder of `.npy` files and as one npz
file. The network is a small transformer with short steps, which leave little time for reading. The
order is random, as in training. The limit is 3 %.
"""

import argparse
import json
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contexts import prepared
from benchmarks.series import describe_machine
from benchmarks.transformer import encoder
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.train.batches import epoch_batches
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.files import write_json

SAMPLES, QUICK_SAMPLES = 1_000_000, 20_000
LENGTH, VOCABULARY, CLASSES = 32, 1_000, 4
STEPS, QUICK_STEPS = 300, 20
FORMS = ("npy folder", "npz")


def write_sequences(folder: Path, form: str, samples: int) -> Path:
    """Write random sequences of 8 to 32 tokens with random classes, and return their path.

    Args:
        folder: Folder for the data.
        form: One of FORMS.
        samples: Number of training samples.
    """
    rng, sizes = np.random.default_rng(0), {"train": samples, "val": 100, "test": 100}
    arrays: dict[str, Any] = {}
    for split, count in sizes.items():
        lengths = rng.integers(LENGTH // 4, LENGTH + 1, count)
        arrays[f"tokens_{split}"] = rng.integers(1, VOCABULARY, lengths.sum())
        arrays[f"tokens_{split}_offsets"] = np.concatenate([[0], np.cumsum(lengths)])
        arrays[f"y_{split}"] = rng.integers(0, CLASSES, count)
    if form == "npz":
        np.savez(folder / "data.npz", **arrays)
        return folder / "data.npz"
    (folder / "data").mkdir()
    for name, array in arrays.items():
        np.save(folder / "data" / f"{name}.npy", array)
    return folder / "data"


def measure_waiting(context: RunContext, state: Any, steps: int) -> float:
    """Return the fraction of the time of training steps that they wait for their batch.

    Args:
        context: The run.
        state: Tensors of the network.
        steps: Number of steps.
    """
    weights = [state[name].requires_grad_() for name in context.network.forward.weight_names]
    waiting, begin = 0.0, time.perf_counter()
    batches = islice(epoch_batches(context, "feed", 0, 0), steps)
    while True:
        request = time.perf_counter()
        batch = next(batches, None)
        waiting += time.perf_counter() - request
        if batch is None:
            return waiting / (time.perf_counter() - begin)
        outputs = context.network.forward(batch.inputs, state, training=True)
        sum(y.float().square().mean() for y in outputs).backward()
        for weight in weights:
            weight.grad = None


def measure_form(form: str, quick: bool) -> dict[str, Any]:
    """Return the row of a form of the data."""
    make = partial(encoder, 2, 64, 4, LENGTH, VOCABULARY, CLASSES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = write_sequences(folder, form, QUICK_SAMPLES if quick else SAMPLES)
        begin = time.perf_counter()
        sections = {
            "data": {"path": path},
            "budget": {"target_compression": 3},
            "train": {"skip_label_check": True},
        }
        settings = Settings.model_validate(sections)
        context, state = prepared(make(), settings, folder)
        opening_seconds = time.perf_counter() - begin
        steps = QUICK_STEPS if quick else STEPS
        fraction = measure_waiting(context, state, steps)
    return {
        "form": form,
        "samples": len(context.data.train),
        "steps": steps,
        "waiting": fraction,
        "opening_s": opening_seconds,
    }


def main() -> None:
    """Measure all forms of the data and print a row of each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="measure with fewer samples and steps")
    parser.add_argument("--out", type=Path, help="write the results to this file")
    options = parser.parse_args()
    rows = [measure_form(form, options.quick) for form in FORMS]
    about = {
        "command": "python -m benchmarks.token_feed --out benchmarks/results/token_feed.json",
        **describe_machine(),
    }
    if options.out:
        write_json(options.out, {**about, "rows": rows})
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
