"""What training with restored BatchNormalization is worth, for a file from which it was folded away.

    python -m benchmarks.restore_bn [--quick] [--json] [--out FILE]

The small BN ResNet of benchmarks/quality.py, trained on Fashion-MNIST, pruned in budget mode in three forms: folded, as
most exporters write it; folded, with norms restored for training; and the file that still has its norms. A network
without norms bears less of a learning rate, so that one is given three. Rows that FILE has already are not measured
again.
"""

import argparse
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, helper, numpy_helper

from benchmarks import quality
from benchmarks.jobs import final_numbers, learn, start
from ltp_pipeline import import_model
from ltp_pipeline.config import Settings
from ltp_pipeline.data import Data
from ltp_pipeline.errors import TrainingFailed
from ltp_pipeline.files import write_json
from ltp_pipeline.stages import select_entry
from ltp_pipeline.stages.import_model import restore_bn
from ltp_pipeline.stages.learn_thresholds import make_method
from ltp_pipeline.stages.learn_thresholds.learning import Learning
from ltp_pipeline.stages.train import pick_device
from ltp_pipeline.stages.train.evaluate import accuracy

LEARNING_RATES = {"folded": (0.03, 0.01, 0.003), "restored": (0.03,), "never folded": (0.03,)}
COMPRESSIONS = (10, 20)
EPSILON = 1e-5  # BatchNormalization's own default


def main() -> None:
    """Measure the rows asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one compression, one seed, few samples")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="results file to go on with")
    parser.add_argument("--data", type=Path, default=quality.FASHION_MNIST)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ltp-quality")
    parser.add_argument("--forms", nargs="*", default=list(LEARNING_RATES))
    parser.add_argument("--rates", nargs="*", type=float, help="only these learning rates")
    parser.add_argument("--compressions", nargs="*", type=float, default=list(COMPRESSIONS))
    parser.add_argument("--seeds", nargs="*", type=int, default=list(quality.SEEDS))
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: there is no Fashion-MNIST in {options.data} (Debian: dataset-fashion-mnist; or --data FOLDER)")
        return
    samples = quality.TRAIN_SAMPLES
    if options.quick:
        options.compressions, options.seeds, samples = [20.0], [0], 4_000
    rows = json.loads(options.out.read_text())["rows"] if options.out and options.out.is_file() else []
    data = quality.fashion_mnist(options.data, options.cache, samples)
    dense = onnx.load(quality.dense("resnet", data, options.cache, samples))
    forms = [(f, lr) for f in options.forms for lr in LEARNING_RATES[f] if not options.rates or lr in options.rates]
    for seed, compression, (form, lr) in itertools.product(options.seeds, options.compressions, forms):
        key = {"form": form, "lr": lr, "compression": compression, "seed": seed}
        if any(key.items() <= row.items() for row in rows):
            continue
        rows.append({**key, **measure(dense, form, lr, compression, seed, data)})
        print(json.dumps(rows[-1]), flush=True)
        if options.out:
            write_json(options.out, {**about(samples), "rows": rows})
    if options.json:
        print(json.dumps({**about(samples), "rows": rows}, indent=2))
    else:
        print(table(rows))


def about(samples: int) -> dict[str, Any]:
    """What the rows were measured on."""
    command = "python -m benchmarks.restore_bn --out benchmarks/results/restore_bn.json"
    return {**quality.about(samples), "command": command, "settings": "batch 128, SGD momentum 0.9, one cosine"}


def measure(dense: ModelProto, form: str, lr: float, compression: float, seed: int, data: Data) -> dict[str, Any]:
    """Prune the network once in budget mode; accuracies after fine-tuning, or why there are none."""
    train = {"epochs": quality.EPOCHS, "finetune_epochs": quality.FINETUNE_EPOCHS, "seed": seed, "lr": lr}
    settings = Settings.model_validate({"train": train, "budget": {"target_compression": compression}})
    begun = time.monotonic()
    network, state = import_model(dense if form == "never folded" else folded(dense))
    if form == "restored":
        network, state = restore_bn.run(network, state, data.train, settings.train.batch_size, pick_device("cpu"))
    with tempfile.TemporaryDirectory() as scratch:
        job = start(network, data, settings, Path(scratch))
        original = accuracy(job, state, data.test)
        try:
            entry = learn(job, state, lambda live: Learning(live, job, make_method(network, live, settings)))
            state = select_entry.finish(job, entry).state
        except TrainingFailed as error:
            return {"test": None, "original": original, "failed": str(error)}
        found = final_numbers(job, state)
    return {**found, "original": original, "seconds": round(time.monotonic() - begun, 1)}


def folded(model: ModelProto) -> ModelProto:
    """A copy with every BatchNormalization folded into the Conv before it, as most exporters do."""
    copy = ModelProto()
    copy.CopyFrom(model)
    tensors = {t.name: numpy_helper.to_array(t) for t in copy.graph.initializer}
    convs = {n.output[0]: n for n in copy.graph.node if n.op_type == "Conv"}
    kept = []
    for node in copy.graph.node:
        conv = convs.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if conv is None:
            kept.append(node)
            continue
        scale, bias, mean, variance = (tensors.pop(name) for name in node.input[1:])
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), EPSILON)
        factor = scale / np.sqrt(variance + epsilon)
        kernel = tensors[conv.input[1]]
        tensors[conv.input[1]] = kernel * factor.reshape(-1, *[1] * (kernel.ndim - 1))
        tensors[node.input[2]] = bias - mean * factor
        conv.input.append(node.input[2])
        conv.output[0] = node.output[0]
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in tensors.items()]
    graph = helper.make_graph(kept, copy.graph.name, copy.graph.input, copy.graph.output, initializers)
    copy.graph.CopyFrom(graph)
    return copy


def table(rows: list[dict[str, Any]]) -> str:
    """Mean ± standard deviation of the test accuracy over seeds, and what restoring gains at its best."""
    compressions = sorted({r["compression"] for r in rows})
    lines = ["test top-1 in %", f"{'':20}" + "".join(f"{c:>25g}×" for c in compressions)]
    best: dict[tuple[str, float], float] = {}
    for form, lr in dict.fromkeys((r["form"], r["lr"]) for r in rows):
        cells = []
        for compression in compressions:
            key = {"form": form, "lr": lr, "compression": compression}
            found = [r["test"] for r in rows if key.items() <= r.items()]
            values = 100 * np.array([v for v in found if v is not None])
            failed = f" ({len(found) - values.size} failed)" if values.size < len(found) else ""
            cells.append((f"{values.mean():.2f} ± {values.std():.2f}" if values.size else "") + failed)
            if values.size and not failed:
                best[form, compression] = max(values.mean(), best.get((form, compression), 0.0))
        lines.append(f"{form:>12} lr {lr:<5g}" + "".join(f"{c:>26}" for c in cells))
    for compression in compressions:
        if ("folded", compression) in best and ("restored", compression) in best:
            gain = best["restored", compression] - best["folded", compression]
            lines.append(f"restored - folded at {compression:g}×, each at its best learning rate: {gain:+.2f} points")
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
