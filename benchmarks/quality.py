"""Accuracy at equal compression, epochs, batches and loss, on Fashion-MNIST.

    python -m benchmarks.quality [--quick] [--json] [--out FILE]

Rows that FILE has already are not measured again, so that a long series can go on. Needs Debian's package
dataset-fashion-mnist, or its four IDX files in a folder given by --data.
"""

import argparse
import itertools
import json
import platform
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.competitors import GradualMagnitude, SoftThreshold
from benchmarks.jobs import final_numbers, learn, start, train_dense
from benchmarks.small_networks import NETWORKS
from ltp_pipeline import exporters, import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.data import Data, open_data
from ltp_pipeline.files import write_json
from ltp_pipeline.graph import read
from ltp_pipeline.records import Pruned, State, TrailEntry, finetune_key
from ltp_pipeline.stages import baseline, finetune
from ltp_pipeline.stages.learn_thresholds import make_method
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.learn_thresholds.method import Method
from ltp_pipeline.stages.lower import file_names, lift
from ltp_pipeline.stages.prune import masks_of
from ltp_pipeline.stages.train import Job

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
COMPETITORS = {"gradual": GradualMagnitude, "str": SoftThreshold, "str-finetuned": SoftThreshold}
METHODS = ("one-shot", "gradual", "str", "str-finetuned", "ltp-paper", "ltp-budget")
COMPRESSIONS = (5, 10, 20, 30, 50)
SEEDS = (0, 1, 2)
EPOCHS, FINETUNE_EPOCHS = 6, 3
TRAIN_SAMPLES, VALIDATION_SAMPLES = 20_000, 5_000
PAPER_STRENGTH = {"resnet": 0.2 / 3**2.7, "mobilenet": 1.0}  # of λ: the one thing that had to be found for each network
DENSE = {"epochs": 12, "lr": 0.1, "weight_decay": 5e-4}


def main() -> None:
    """Measure the rows asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one network, one compression, one seed, few samples")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="results file to go on with")
    parser.add_argument("--data", type=Path, default=FASHION_MNIST)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ltp-quality")
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--compressions", nargs="*", type=float, default=list(COMPRESSIONS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(SEEDS))
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: there is no Fashion-MNIST in {options.data} (Debian: dataset-fashion-mnist; or --data FOLDER)")
        return
    samples = TRAIN_SAMPLES
    if options.quick:
        options.networks, options.compressions, options.seeds, samples = ["resnet"], [20.0], [0], 4_000
    rows = json.loads(options.out.read_text())["rows"] if options.out and options.out.is_file() else []
    data = fashion_mnist(options.data, options.cache, samples)
    wanted = itertools.product(options.compressions, options.networks, options.seeds, options.methods)
    for compression, network, seed, method in wanted:
        key = {"network": network, "method": method, "compression": compression, "seed": seed}
        if any(key.items() <= row.items() for row in rows):
            continue
        rows.append({**key, **measure(network, method, compression, seed, data, options.cache, samples)})
        print(json.dumps(rows[-1]), flush=True)
        if options.out:
            write_json(options.out, {**about(samples), "rows": rows})
    if options.json:
        print(json.dumps({**about(samples), "rows": rows}, indent=2))
    else:
        print(table(rows))


def about(samples: int) -> dict[str, Any]:
    """What the rows were measured on."""
    return {
        "command": "python -m benchmarks.quality --out benchmarks/results/quality.json",
        "data": f"Fashion-MNIST, {samples} training, {VALIDATION_SAMPLES} validation, 10000 test samples",
        "epochs": {"prune": EPOCHS, "finetune": FINETUNE_EPOCHS},
        "settings": "batch 128, SGD momentum 0.9, lr 0.03, one cosine",
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}",
    }


def fashion_mnist(folder: Path, cache: Path, samples: int, augment: bool = False) -> Data:
    """The subset, as any user would give it: an npz file."""
    path = cache / f"fashion-{samples}.npz"
    if not path.is_file():
        from ltp_pipeline.data import idx
        from ltp_pipeline.data.samples import Wanted

        parts = idx.read(folder, Wanted(None, None)).parts
        cut = {"train": slice(0, samples), "val": slice(50_000, 50_000 + VALIDATION_SAMPLES)}
        images, labels = parts["train"].samples.take(np.arange(60_000)), parts["train"].labels
        arrays = {f"{n}_{s}": a[cut[s]] for s in cut for n, a in (("x", images), ("y", labels))}
        test = parts["test"]
        arrays |= {"x_test": test.samples.take(np.arange(10_000)), "y_test": test.labels}
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(path, **arrays)
    given = {"path": path, "scale": 1 / 255, "mean": [0.286], "std": [0.353], "augment": augment}
    settings = Settings.model_validate({"data": given})
    network, _ = import_model(NETWORKS["resnet"]())
    return open_data(settings.data, network.file.inputs[0], seed=0)


def dense(network: str, data: Data, cache: Path, samples: int) -> Path:
    """The trained network to start from; the same for all methods and seeds."""
    path = cache / f"{network}-{samples}.onnx"
    if not path.is_file():
        train_dense(*import_model(NETWORKS[network]()), data, Settings.model_validate({"train": DENSE}), path)
    return path


def measure(
    name: str, method: str, compression: float, seed: int, data: Data, cache: Path, samples: int
) -> dict[str, Any]:
    """Prune one network once; accuracies after fine-tuning."""
    network, state = import_model(dense(name, data, cache, samples))
    after = 0 if method == "str" else FINETUNE_EPOCHS  # as published, its thresholds move to the end
    train = {"epochs": EPOCHS + FINETUNE_EPOCHS - after, "finetune_epochs": after, "seed": seed}
    settings = Settings.model_validate({"train": train, "budget": {"target_compression": compression}})
    elements = sum(k.elements for k in network.kernels)
    count = int(elements / compression)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        job = start(network, data, settings, Path(scratch))

        def make(live: Mapping[str, Tensor]) -> Method:
            if method in COMPETITORS:
                return COMPETITORS[method]({k.name: live[k.name] for k in network.prunable}, count)
            paper = paper_settings(settings, name, elements, compression)
            return make_method(network, live, paper if method == "ltp-paper" else settings)

        if method == "one-shot":
            state = baseline.run(job, state, count, EPOCHS + FINETUNE_EPOCHS).state
        else:
            state = finish(job, learn(job, state, lambda live: Learning(live, job, make(live))))
        return {**final_numbers(job, state), "seconds": round(time.monotonic() - begun, 1)}


def finish(job: Job, entry: TrailEntry) -> State:
    """Prune to a network of the trail and fine-tune it, even where a method without floors has lost a whole layer.

    A product must not ship that, so `prune` refuses it; here it counts as the method's result.
    """
    model = read(job.workspace.trail_path(entry.entry))
    state = lift(job, exporters.read_tensors(model, file_names(job.network)))
    pruned = Pruned(state, masks_of(job.network, state), 0, {})
    return finetune.run(job, pruned, job.finetune_epochs, key=finetune_key(entry.entry), before=job.epochs).state


def paper_settings(settings: Settings, network: str, elements: int, compression: float) -> Settings:
    """Paper mode: λ in natural units (λ · N) grows with the wish, fitted by eye; the outcome is what it is."""
    lam = PAPER_STRENGTH[network] * compression**2.7 / elements
    method = {"lambda": lam, "threshold_lr_ratio": 1e-4, "t0": 1e-2}
    plain = settings.model_dump(by_alias=True)
    return Settings.model_validate({**plain, "budget": {}, "method": {**plain["method"], **method}})


def table(rows: list[dict[str, Any]]) -> str:
    """Mean ± standard deviation of the test accuracy over seeds."""
    lines = []
    for network in dict.fromkeys(r["network"] for r in rows):
        lines += [f"\n{network}: test top-1 in %", "compression  " + "  ".join(f"{m:>16}" for m in METHODS)]
        for compression in sorted({r["compression"] for r in rows}):
            cells = []
            for method in METHODS:
                key = {"network": network, "method": method, "compression": compression}
                found = [r for r in rows if key.items() <= r.items()]
                values = [100 * r["test"] for r in found]
                reached = np.mean([r["reached"] for r in found]) if found else 0
                note = f" @{reached:.1f}×" if method == "ltp-paper" and found else ""
                cells.append(f"{np.mean(values):.2f} ± {np.std(values):.2f}{note}" if values else "–")
            lines.append(f"{compression:>10g}×  " + "  ".join(f"{c:>16}" for c in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
