"""The paper's six networks at full size go from import to proven files, in little memory."""

import json
from pathlib import Path

import onnx
import pytest

from benchmarks.networks import NETWORKS, as_onnx, build_network
from benchmarks.six_networks import COMPRESSIONS, MEMORY_LIMIT, measure_network, write_images
from tests.support.cli import invoke

ELEMENTS = {
    "resnet20": (20, 268_336),
    "alexnet": (8, 61_090_496),
    "resnet50": (54, 25_502_912),
    "mobilenetv2": (53, 3_469_760),
    "efficientnet-b0": (82, 5_236_192),
    "mixnet-s": (124, 4_094_488),
}


@pytest.mark.long
@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_network_goes_all_the_way(name: str):
    row = measure_network(name, train=8, val=4, batch=4)
    assert row["image"] == NETWORKS[name].size
    assert (row["kernels"], row["elements"]) == ELEMENTS[name]
    assert row["compression"] == pytest.approx(COMPRESSIONS[name], rel=1e-3)
    assert row["stages"].keys() >= {"import", "learn", "finetune", "export", "validate"}
    assert row["bytes"]["packed"] < row["bytes"]["sparse"] < row["bytes"]["original"]
    assert all(difference < 0.01 for difference in row["parity_max_abs"].values())
    assert 0 < row["peak_memory_bytes"] < MEMORY_LIMIT


@pytest.mark.long
def test_a_preset_runs_as_it_is_but_for_its_length(tmp_path: Path, capsys):
    model = tmp_path / "mobilenetv2.onnx"
    onnx.save(as_onnx(build_network("mobilenetv2")), model)
    write_images(tmp_path / "images", 224, train=8, val=4)
    short = (
        "--epochs",
        1,
        "--finetune-epochs",
        1,
        "--batch-size",
        4,
        "--no-baseline",
        "--set",
        "data.num_workers=1",
    )
    given = ("--data", tmp_path / "images", "--skip-label-check")  # the network was never trained
    options = ("--preset", "mobilenetv2-imagenet", *given, "--out", tmp_path / "run", *short)
    result = invoke(capsys, "run", model, *options, "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    assert report["settings"]["method"]["lambda"] == 1e-7
    (fed,) = report["data"]["inputs"].values()
    assert fed["sample_shape"] == [3, 224, 224]
    assert any("0.875 of the shorter side" in note for note in report["data"]["notes"])
