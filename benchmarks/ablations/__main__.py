"""The paper's ablations on Fashion-MNIST: regulariser, weight gradient, error bars, sensitivity.

    python -m benchmarks.ablations [--quick] [--json] [--out FILE] [names...]

Names are those of plans.py; all without one. Runs that FILE has already are not measured again, so that a long series
can go on. Needs Fashion-MNIST as benchmarks.quality does. `python scripts/write_results.py` makes page and figures.
"""

import argparse
import json
import platform
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch

from benchmarks.ablations.plans import ABLATIONS, AUGMENTED, SAMPLES, Plan
from benchmarks.ablations.runs import dense, judge_start, measure
from benchmarks.quality import DENSE, FASHION_MNIST, VALIDATION_SAMPLES, fashion_mnist
from ltp_pipeline.files import write_json

QUICK = {"epochs": 1, "finetune_epochs": 0}


def main() -> None:
    """Measure the ablations asked for and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(ABLATIONS)}")
    parser.add_argument("--quick", action="store_true", help="the small network only, one epoch, few samples")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path, help="results file to go on with")
    parser.add_argument("--data", type=Path, default=FASHION_MNIST)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "ltp-quality")
    options = parser.parse_args()
    for name in set(options.names) - set(ABLATIONS):
        parser.error(f"there is no ablation {name!r}; there are {', '.join(ABLATIONS)}")
    if not options.data.is_dir():
        print(f"skipped: there is no Fashion-MNIST in {options.data} (Debian: dataset-fashion-mnist; or --data FOLDER)")
        return
    known = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    rows, starts = known.get("rows", []), known.get("starts", [])

    @cache
    def start_of(network: str) -> tuple[Path, Any]:
        samples = 1_000 if options.quick else SAMPLES[network]
        images = fashion_mnist(options.data, options.cache, samples, augment=network in AUGMENTED)
        path = dense(network, images, options.cache)
        if not any(s["network"] == network for s in starts):
            starts.append(judge_start(network, path, images))
        return path, images

    for plan in wanted(options.names or list(ABLATIONS), options.quick):
        if any(plan.items() <= row.items() for row in rows):
            continue
        rows.append({**plan, **measure(plan, *start_of(plan["network"]))})
        print(line(rows[-1]), flush=True)
        if options.out:
            write_json(options.out, {**about(), "starts": starts, "rows": rows})
    if options.json:
        print(json.dumps({**about(), "starts": starts, "rows": rows}, indent=2))
    else:
        print("\n".join(["", *map(line, rows)]))


def wanted(names: list[str], quick: bool) -> list[Plan]:
    """Plans of these ablations; the first two of the small network when it must be quick."""
    plans = [plan for name in names for plan in ABLATIONS[name]()]
    if quick:
        plans = [{**plan, **QUICK} for plan in plans if plan["network"] == "resnet"][:2]
    return plans


def line(row: dict[str, Any]) -> str:
    """A run in short."""
    settings = {k: v for k, v in row.items() if not isinstance(v, dict | list) and k not in ("test", "val", "reached")}
    said = ", ".join(f"{k} {v}" for k, v in settings.items())
    return f"{row['reached']:6.2f}× val {100 * row['val']:.2f} % test {100 * row['test']:.2f} %  ({said})"


def about() -> dict[str, Any]:
    """What the rows were measured on."""
    return {
        "command": "python -m benchmarks.ablations --out benchmarks/results/ablations.json",
        "data": f"Fashion-MNIST, {VALIDATION_SAMPLES} validation, 10000 test samples",
        "settings": "SGD momentum 0.9, one cosine over learning and fine-tuning",
        "dense": DENSE,
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
