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
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.competitors import GradualMagnitude, SoftThreshold
from benchmarks.small_networks import NETWORKS
from ltp_pipeline import exporters, import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.data import Data, open_data
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.files import write_json
from ltp_pipeline.records import ImportedModel, PrunedModel
from ltp_pipeline.stages import baseline, choose, export, finetune
from ltp_pipeline.stages.learn_thresholds import make_method, trail
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.training import Training, pick_device
from ltp_pipeline.workspace import Workspace

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
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
    return open_data(settings.data, import_model(NETWORKS["resnet"]()).file.inputs[0], seed=0)


def dense(network: str, data: Data, cache: Path, samples: int) -> Path:
    """The trained network to start from; the same for all methods and seeds."""
    path = cache / f"{network}-{samples}.onnx"
    if not path.is_file():
        imported = import_model(NETWORKS[network]())
        settings = Settings.model_validate({"train": DENSE})
        with tempfile.TemporaryDirectory() as scratch:
            training = start(imported, data, settings, Path(scratch))
            finetune.run(PrunedModel({}, {}, {}), training, DENSE["epochs"])
        exporters.save(exporters.with_tensors(imported.proto, export.live_arrays(imported)), path)
    return path


def start(imported: ImportedModel, data: Data, settings: Settings, folder: Path) -> Training:
    """A training in a scratch run directory."""
    workspace = Workspace(folder / "run")
    workspace.open({})
    return Training(imported, data, settings.train, workspace, pick_device("cpu"))


def measure(
    network: str, method: str, compression: float, seed: int, data: Data, cache: Path, samples: int
) -> dict[str, Any]:
    """Prune one network once; accuracies after fine-tuning."""
    imported = import_model(dense(network, data, cache, samples))
    train = {"epochs": EPOCHS, "finetune_epochs": FINETUNE_EPOCHS, "seed": seed}
    settings = Settings.model_validate({"train": train, "budget": {"target_compression": compression}})
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        training = start(imported, data, settings, Path(scratch))
        elements = sum(k.elements for k in imported.kernels)
        count = int(elements / compression)
        if method == "one-shot":
            baseline.run(count, EPOCHS + FINETUNE_EPOCHS, training)
        else:
            tensors = imported.module.tensors()
            live = {k.name: tensors[k.name] for k in imported.prunable}
            makers = {
                "gradual": lambda: GradualMagnitude(live, count),
                "str": lambda: SoftThreshold(live, count),
                "str-finetuned": lambda: SoftThreshold(live, count),
                "ltp-paper": lambda: make_method(imported, paper_settings(settings, network, elements, compression)),
                "ltp-budget": lambda: make_method(imported, settings),
            }
            after = 0 if method == "str" else FINETUNE_EPOCHS  # as published, its thresholds move to the end
            epochs = EPOCHS + FINETUNE_EPOCHS - after
            training.run(Learning(training, makers[method](), epochs), epochs, after=after)
            finish(training, epochs, after)
        nonzeros = sum(int(imported.module.tensors()[k.name].count_nonzero()) for k in imported.kernels)
        return {
            "test": training.accuracy(data.test),
            "val": training.accuracy(data.val),
            "reached": elements / nonzeros,
            "seconds": round(time.monotonic() - begun, 1),
        }


def finish(training: Training, epochs: int, after: int) -> None:
    """Prune to the last network of the trail and fine-tune it; methods without floors may have lost whole layers."""
    entry = trail.read(training.workspace)[-1]
    try:
        choose.finish(entry, training, after)
    except TrainingFailed:  # a product must not ship that; here it counts as the method's result
        tensors = training.imported.module.tensors()
        masks = {k.name: tensors[k.name].detach() != 0 for k in training.imported.prunable}
        pruned = PrunedModel(masks, {}, {"prune": epochs, "finetune": 0})
        finetune.run(pruned, training, after, key=finetune.key_of(entry), before=epochs)


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
