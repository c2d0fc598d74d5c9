"""Run all fuzzers, two at a time, and write one results file: `make campaign`.

    python -m tests.fuzz [--seed N] [--share 0.01] [--out FILE]

Exits with 1 if anything failed. `--share` tries a fraction of the cases of each class.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.series import commit
from ltp_pipeline.stages.report.environment import find_processor
from ltp_pipeline.system.files import write_json

AT_A_TIME = 2
# Cases of each class; every tenth model goes on from `inspect` to the import.
COUNTS = {"models": 10_000, "reports": 2_000, "data": 500, "folders": 150, "kills": 60}


def main() -> None:
    """Run the fuzzers and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--share", type=float, default=1.0, help="of the cases of each class")
    parser.add_argument("--out", type=Path, help="where to write the results")
    asked = parser.parse_args()
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        counts = {name: max(1, round(asked.share * count)) for name, count in COUNTS.items()}
        classes = list(pool.map(lambda name: _run_class(name, asked.seed, counts[name]), counts))
    findings = sum(len(found["findings"]) for found in classes)
    results = {
        "command": f"python -m tests.fuzz --seed {asked.seed}",
        "commit": commit(),
        "processor": find_processor(),
        "cases": sum(found["cases"] for found in classes),
        "findings": findings,
        "classes": classes,
    }
    if asked.out is not None:
        write_json(asked.out, results)
    print(f"{results['cases']} cases, {findings} findings")
    sys.exit(bool(findings))


def _run_class(name: str, seed: int, count: int) -> dict:
    """Run one fuzzer in a child process; one that ends without results is a failure."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ltp-campaign-") as folder:
        out = Path(folder, "results.json")
        command = [
            sys.executable,
            "-m",
            f"tests.fuzz.{name}",
            "--seed",
            str(seed),
            "--count",
            str(count),
        ]
        code = subprocess.run([*command, "--out", str(out)], check=False).returncode
        none = {
            "class": name,
            "seed": seed,
            "cases": 0,
            "findings": [f"it ended with {code} and no results"],
        }
        results = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else none
    return {**results, "seconds": round(time.monotonic() - begun)}


if __name__ == "__main__":
    main()
