"""A few cases of tests/fuzz/folders.py and kills.py, in a process that forks: one that has started nothing else."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.folder_mutants import flipped
from tests.support.paths import ROOT

CODE = """
import json, sys, torch
from pathlib import Path
from tests.fuzz import folders, kills
torch.set_num_threads(1)
seed, spoiled, killed, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
folders.lay_out(folder / "runs")
found = [*folders.tried(seed, range(spoiled), folder / "runs"), *kills.tried(seed, range(killed), folder / "kills")]
print(json.dumps([f"{case.name}: {case.problem}; {case.ended.said[-900:]}" for case in found if case.problem]))
"""


@pytest.mark.parametrize(
    ("seed", "spoiled", "killed"),
    [(0, 4, 1), pytest.param(2, 56, 24, marks=pytest.mark.slow)],
    ids=["few", "many"],
)
def test_a_spoiled_or_killed_run_ends_with_the_same_bytes_or_is_refused(
    tmp_path: Path, seed: int, spoiled: int, killed: int
):
    command = [sys.executable, "-c", CODE, str(seed), str(spoiled), str(killed), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def test_the_same_seed_spoils_a_run_in_the_same_way(tmp_path: Path):
    found = []
    for name in ("first", "second"):
        run = tmp_path / name
        (run / "state").mkdir(parents=True)
        for i in range(9):
            (run / "state" / f"{i}.safetensors").write_bytes(bytes(99))
        (run / "manifest.json").write_text("{}")
        case = flipped(run, random.Random(5), run)  # noqa: S311 - nothing secret here
        found.append(
            (case, [path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()])
        )
    assert found[0] == found[1]
