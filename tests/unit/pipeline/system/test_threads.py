"""How many threads compute, and how they wait."""

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch

from ltp_pipeline.errors import InputError
from ltp_pipeline.stages.import_model import onnxruntime_child
from ltp_pipeline.stages.measure.session import Session
from ltp_pipeline.system import threads
from tests.support.models import mlp

MINE = len(os.sched_getaffinity(0))


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the control groups, beside the file that says which are this process's."""
    monkeypatch.setattr(threads, "_CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(threads, "_OWN_CGROUPS", tmp_path / "own")
    return tmp_path / "groups"


def write_groups(groups: Path, own: str, **files: str) -> None:
    """Write a tree of control groups; `a__b` stands for a/b."""
    for name, text in files.items():
        name = name.replace("__", "/").replace("_cpuacct", ",cpuacct").replace("DOT", ".")
        (groups / name).parent.mkdir(parents=True, exist_ok=True)
        (groups / name).write_text(text)
    (groups.parent / "own").write_text(own)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpuDOTmax": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpuDOTmax": "max 100000\n"}, None),
        (
            "0::/pod/box\n",
            {"pod__cpuDOTmax": "200000 100000", "pod__box__cpuDOTmax": "max 100000"},
            2.0,
        ),
        (
            "0::/pod/box\n",
            {"pod__cpuDOTmax": "400000 100000", "pod__box__cpuDOTmax": "50000 100000"},
            0.5,
        ),
        ("0::/not/here\n", {"cpuDOTmax": "300000 100000\n"}, 3.0),
        (
            "4:memory:/\n3:cpu,cpuacct:/box\n",
            {
                "cpu_cpuacct__box__cpuDOTcfs_quota_us": "250000",
                "cpu_cpuacct__box__cpuDOTcfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            "1:cpu:/docker/ab\n",
            {"cpu__cpuDOTcfs_quota_us": "100000", "cpu__cpuDOTcfs_period_us": "50000"},
            2.0,
        ),
        (
            "1:cpu:/\n0::/\n",
            {"cpu__cpuDOTcfs_quota_us": "-1", "cpu__cpuDOTcfs_period_us": "100000"},
            None,
        ),
        (
            "1:cpuset:/\n",
            {"cpu__cpuDOTcfs_quota_us": "100000", "cpu__cpuDOTcfs_period_us": "100000"},
            None,
        ),
        ("0::/\n", {"cpuDOTmax": "what is this"}, None),
        ("0::/\n", {"cpuDOTmax": "100000 0"}, None),
        ("nonsense\n\n", {"cpuDOTmax": "100000 100000"}, None),
    ],
)
def test_read_cpu_quota_of_both_control_group_versions(
    groups: Path, own: str, files: dict[str, str], expected
):
    write_groups(groups, own, **files)
    assert threads.read_cpu_quota() == expected


@pytest.mark.usefixtures("groups")
def test_read_cpu_quota_without_control_groups_is_none():
    assert threads.read_cpu_quota() is None


@pytest.mark.parametrize(
    ("allowed", "cores"), [("50000 100000", 1), ("max 100000", MINE), ("9900000 100000", MINE)]
)
def test_count_usable_cores_respects_quota_and_affinity(groups: Path, allowed: str, cores: int):
    write_groups(groups, "0::/\n", cpuDOTmax=allowed)
    assert threads.count_usable_cores() == cores


def test_count_usable_cores_respects_affinity(groups: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5})
    assert threads.count_usable_cores() == 3
    write_groups(groups, "0::/\n", cpuDOTmax="290000 100000")
    assert threads.count_usable_cores() == 2


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "OMP_NUM_THREADS": "1",
}


@pytest.mark.parametrize(
    ("given", "environ", "expected"),
    [
        ({"asked": 3, "kept": 2}, {"OMP_NUM_THREADS": "5"}, 3),
        ({"kept": 16}, {"OMP_NUM_THREADS": "5"}, 16),
        ({"default": 5}, {"OMP_NUM_THREADS": "5"}, 5),
        ({"default": 32, "cores": 2}, {}, 2),
        ({"default": 1, "cores": 4}, {}, 1),
        ({"default": 1, "cores": 8}, TORCHRUN, 4),
        ({"default": 1, "cores": 1}, TORCHRUN, 1),
        ({"default": 3, "cores": 8}, {**TORCHRUN, "OMP_NUM_THREADS": "3"}, 3),
        ({"asked": 2, "cores": 8}, TORCHRUN, 2),
    ],
)
def test_choose_thread_count_known_values(
    given: dict[str, int], environ: dict[str, str], expected: int, monkeypatch
):
    for name in (*TORCHRUN, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    complete = {"asked": None, "kept": None, "default": 4, "cores": 4} | given
    assert threads.choose_thread_count(**complete) == expected


def test_use_threads_sets_and_restores_torch():
    before = torch.get_num_threads()
    with threads.use_threads(before + 1, None, print):
        assert torch.get_num_threads() == threads.current_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("counts", [(4096, None), (None, 4096)])
def test_use_threads_thousands_raise(counts: tuple[int | None, int | None]):
    with (
        pytest.raises(InputError, match=r"\b4096\b") as caught,
        threads.use_threads(*counts, say=print),
    ):
        pass
    assert "train.threads" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "earlier", "numbers"),
    [(None, None, []), (2, None, []), (2, 2, []), (None, 3, ["3"]), (2, 3, ["2", "3"])],
)
def test_use_threads_of_resumed_run_announces_other_numbers(
    asked: int | None, earlier: int | None, numbers: list[str]
):
    lines: list[str] = []
    with threads.use_threads(asked, earlier, lines.append):
        assert threads.current_threads() == (asked or earlier or torch.get_num_threads())
    assert re.findall(r"\d+", " ".join(lines)) == numbers


def python(code: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "KMP_", "GOMP_"))}
    command = [sys.executable, "-W", "always", "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, env=clean | environ, timeout=120, check=True
    )


@pytest.mark.parametrize(
    "entry", ["ltp_pipeline", "ltp_pipeline.cli.app", "ltp_pipeline.system.child_process"]
)
def test_entry_points_let_waiting_threads_sleep(entry: str):
    code = f"import sys, {entry}, os; print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    assert python(code).stdout.split() == ["PASSIVE", "False"]


def test_torch_reads_the_wait_policy():
    """Its OpenMP library shows the settings that it took over when it is loaded."""
    code = "import ltp_pipeline, torch; torch.ones(9).sum()"
    shown = python(code, OMP_DISPLAY_ENV="true").stderr
    if "OMP_WAIT_POLICY" not in shown:
        pytest.skip("this torch has another OpenMP library, which does not tell")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_wait_policy_of_the_user_is_preserved(name: str):
    code = "import ltp_pipeline, os; print({k for k in os.environ if k.startswith(('OMP_', 'KMP_', 'GOMP_'))})"
    assert python(code, **{name: "7"}).stdout.strip() == f"{{'{name}'}}"


@pytest.mark.parametrize(
    ("first", "count", "times"),
    [
        ("torch, ltp_pipeline", 2, 1),
        pytest.param("ltp_pipeline, torch", 2, 0, marks=pytest.mark.slow),
        pytest.param("torch, ltp_pipeline", 1, 0, marks=pytest.mark.slow),
    ],
)
def test_torch_loaded_early_warns_once(first: str, count: int, times: int):
    code = f"""
import {first}
from ltp_pipeline.system import threads
for _ in range(2):
    with threads.use_threads({count}, None, print):
        pass
"""
    assert python(code).stderr.count("torch was loaded before ltp_pipeline") == times


def test_onnxruntime_uses_the_same_threads(tmp_path: Path):
    onnx.save(mlp(), tmp_path / "model.onnx")
    onnxruntime_child.load_session(str(tmp_path / "model.onnx"), "BASIC", 3)
    assert onnxruntime_child._session is not None
    with threads.use_threads(3, None, print):
        sessions = [onnxruntime_child._session[1], Session(tmp_path / "model.onnx").session]
    for session in sessions:
        options = session.get_session_options()
        assert options.intra_op_num_threads == 3
        assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
