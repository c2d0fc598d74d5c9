"""Whether reading tokens from disk keeps training fed: the share of the time that steps wait for their batch.

    python -m benchmarks.token_feed [--quick] [--out FILE]

A million sequences of uneven length, as a folder of `.npy` files and as one npz file, and a small
transformer: its steps are short, so that reading has little time. The order is drawn at random, as
in training. The bar is 3 %.
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
from benchmarks.series import versions
from benchmarks.transformer import encoder
from ltp_pipeline.settings.schema import Settings
from ltp_pipeline.stages.train.batches import epoch_batches
from ltp_pipeline.stages.train.context import RunContext
from ltp_pipeline.system.files import write_json

SAMPLES, QUICK_SAMPLES = 1_000_000, 20_000
LENGTH, VOCABULARY, CLASSES = 32, 1_000, 4
STEPS, QUICK_STEPS = 300, 20
FORMS = ("npy folder", "npz")


def write(folder: Path, form: str, samples: int) -> Path:
    """Random sequences of 8 to 32 tokens, and random classes."""
    rng, sizes = np.random.default_rng(0), {"train": samples, "val": 100, "test": 100}
    arrays: dict[str, np.ndarray] = {}
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


def waiting(context: RunContext, state: Any, steps: int) -> float:
    """The share of the time of some steps, forwards and backwards, that passes before their batch is there."""
    weights = [state[name].requires_grad_() for name in context.network.forward.weight_names]
    waited, begun = 0.0, time.perf_counter()
    batches = islice(epoch_batches(context, "feed", 0, 0), steps)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        waited += time.perf_counter() - asked
        if batch is None:
            return waited / (time.perf_counter() - begun)
        outputs = context.network.forward(batch.inputs, state, training=True)
        sum(y.float().square().mean() for y in outputs).backward()
        for weight in weights:
            weight.grad = None


def measure(form: str, quick: bool) -> dict[str, Any]:
    """One form of the data."""
    make = partial(encoder, 2, 64, 4, LENGTH, VOCABULARY, CLASSES)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        path = write(folder, form, QUICK_SAMPLES if quick else SAMPLES)
        begun = time.perf_counter()
        given = {
            "data": {"path": path},
            "budget": {"target_compression": 3},
            "train": {"skip_label_check": True},
        }
        settings = Settings.model_validate(given)
        context, state = prepared(make(), settings, folder)
        opened = time.perf_counter() - begun
        steps = QUICK_STEPS if quick else STEPS
        share = waiting(context, state, steps)
    return {
        "form": form,
        "samples": len(context.data.train),
        "steps": steps,
        "waiting": share,
        "opening_s": opened,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples and steps")
    parser.add_argument("--out", type=Path, help="results file")
    options = parser.parse_args()
    rows = [measure(form, options.quick) for form in FORMS]
    about = {
        "command": "python -m benchmarks.token_feed --out benchmarks/results/token_feed.json",
        **versions(),
    }
    if options.out:
        write_json(options.out, {**about, "rows": rows})
    for row in rows:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
