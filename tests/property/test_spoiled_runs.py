"""Some cases of the fuzzers of run directories and kills, in a process that forks."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.folder_mutants import flip_bit
from tests.support.paths import ROOT

CODE = """
import json, sys, torch
from pathlib import Path
from tests.fuzz import folders, kills
torch.set_num_threads(1)
seed, corrupted, killed = map(int, sys.argv[1:4])
folder = Path(sys.argv[4])
folders.make_runs(folder / "runs")
cases = list(folders.try_cases(seed, range(corrupted), folder / "runs"))
cases += kills.try_cases(seed, range(killed), folder / "kills")
print(json.dumps([f"{c.name}: {c.problem}; {c.ended.said[-900:]}" for c in cases if c.problem]))
"""


@pytest.mark.parametrize(
    ("seed", "corrupted", "killed"),
    [(0, 4, 1), pytest.param(2, 56, 24, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_corrupted_or_killed_run_resumes_bit_identical_or_is_rejected(
    tmp_path: Path, seed: int, corrupted: int, killed: int
):
    command = [sys.executable, "-c", CODE, str(seed), str(corrupted), str(killed), str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == []


def test_same_seed_corrupts_a_run_in_the_same_way(tmp_path: Path):
    cases = []
    for name in ("first", "second"):
        run = tmp_path / name
        (run / "state").mkdir(parents=True)
        for i in range(9):
            (run / "state" / f"{i}.safetensors").write_bytes(bytes(99))
        (run / "manifest.json").write_text("{}")
        case = flip_bit(run, random.Random(5), run)  # noqa: S311 - nothing secret here
        cases.append(
            (case, [path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()])
        )
    assert cases[0] == cases[1]
