"""What `init` finds: which scale each input wants, and how well the original does, with the user's own task too."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ltp_pipeline import api
from ltp_pipeline.config import load_settings
from ltp_pipeline.errors import InputError
from tests.support import kinds
from tests.support.models import Array, Graph

SAMPLES, CLASSES = 300, 5
BYTE = 1 / 255


def pixels(rng: np.random.Generator, high: int = 255, dtype: Any = np.uint8) -> Array:
    return rng.integers(0, high, (SAMPLES, 3, 8, 8), endpoint=True).astype(dtype)


def image_and_numbers(g: Graph, image: str = "image") -> onnx.ModelProto:
    """Numbers count as much as pixels between 0 and 1."""
    g.random("of_image", 3 * 8 * 8, CLASSES, scale=1.0)
    g.random("of_numbers", 4, CLASSES, scale=8.0)
    of_image = g.add("MatMul", g.add("Flatten", image), "of_image")
    y = g.add("Add", of_image, g.add("MatMul", "numbers", "of_numbers"))
    return g.model({image: ("N", 3, 8, 8), "numbers": ("N", 4)}, [y])


def one_image(bias: float) -> onnx.ModelProto:
    """A classifier whose biases matter only beside small pixels; without any, scales change nothing."""
    g = Graph()
    weight = g.rng.standard_normal((3 * 8 * 8, CLASSES))
    g.tensor("weight", weight - weight.mean(0))
    g.tensor("bias", bias * np.arange(CLASSES))
    y = g.add("Add", g.add("MatMul", g.add("Flatten", "x"), "weight"), "bias")
    return g.model({"x": ("N", 3, 8, 8)}, [y])


def begun(folder: Path, model: onnx.ModelProto, arrays: Mapping[str, Array]) -> tuple[dict[str, Any], str]:
    """The settings that init writes, and what it says."""
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    path, said = api.init(folder / "model.onnx", folder / "data.npz")
    load_settings(folder / "model.onnx")  # it can be read
    return tomllib.loads(path.read_text()), "\n".join(said)


@pytest.mark.parametrize("name", ["image", "serving/image:0", 'a "b"\\c\x7f'])
def test_of_several_inputs_only_the_one_of_pixels_gets_a_scale(tmp_path: Path, name: str) -> None:
    rng, model = np.random.default_rng(0), image_and_numbers(Graph(), name)
    image, numbers = pixels(rng), rng.standard_normal((SAMPLES, 4)).astype(np.float32)
    y = kinds.answers(model, **{name: image.astype(np.float32) / 255, "numbers": numbers}).argmax(1)
    settings, said = begun(tmp_path, model, {name: image, "numbers": numbers, "y": y})
    assert settings["data"]["inputs"] == {name: {"scale": BYTE}}
    assert "scale" not in settings["data"]
    assert "top-1 100.00 %" in said


def test_two_inputs_of_pixels_get_a_scale_each(tmp_path: Path) -> None:
    rng, g = np.random.default_rng(0), Graph()
    g.random("of_left", 192, CLASSES, scale=1.0)
    g.random("of_right", 192, CLASSES, scale=1.0)
    sides = [g.add("MatMul", g.add("Flatten", side), f"of_{side}") for side in ("left", "right")]
    model = g.model(dict.fromkeys(("left", "right"), ("N", 3, 8, 8)), [g.add("Add", *sides)])
    left, right = pixels(rng), pixels(rng, 16)
    y = kinds.answers(model, left=left.astype(np.float32) / 255, right=right.astype(np.float32) / 16).argmax(1)
    settings, _ = begun(tmp_path, model, {"left": left, "right": right, "y": y})
    assert settings["data"]["inputs"]["left"] == {"scale": BYTE}
    assert settings["data"]["inputs"]["right"] == {"scale": 1 / 16}


def test_each_input_of_images_has_a_layout_of_its_own(tmp_path: Path) -> None:
    rng, g = np.random.default_rng(0), Graph()
    for side in ("left", "right"):
        g.random(f"of_{side}", 192, CLASSES, scale=1.0)
    sides = [g.add("MatMul", g.add("Flatten", side), f"of_{side}") for side in ("left", "right")]
    model = g.model(dict.fromkeys(("left", "right"), ("N", 3, 8, 8)), [g.add("Add", *sides)])
    left, right = (rng.standard_normal((SAMPLES, 3, 8, 8)).astype(np.float32) for _ in range(2))
    y = kinds.answers(model, left=left, right=right).argmax(1)
    settings, said = begun(tmp_path, model, {"left": left, "right": np.moveaxis(right, 1, 3), "y": y})
    assert settings["data"]["inputs"] == {"right": {"layout": "NHWC"}}
    assert "top-1 100.00 %" in said


def test_the_scale_of_one_input_stands_under_data(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = pixels(rng)
    y = kinds.answers(model, x=x.astype(np.float32) / 255).argmax(1)
    settings, _ = begun(tmp_path, model, {"x": x, "y": y})
    assert settings["data"]["scale"] == BYTE
    assert "inputs" not in settings["data"]


def test_a_scale_that_changes_nothing_is_not_suggested(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=0)
    x = pixels(rng)
    y = kinds.answers(model, x=x.astype(np.float32)).argmax(1)
    assert "scale" not in begun(tmp_path, model, {"x": x, "y": y})[0]["data"]


def test_a_scale_that_is_better_by_chance_is_not_suggested(tmp_path: Path) -> None:
    """The labels are nearly those of pixels as they are stored; of the others, some fit a scale."""
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = pixels(rng)
    stored, scaled = (kinds.answers(model, x=x.astype(np.float32) * scale).argmax(1) for scale in (1, BYTE))
    mixed = np.where(rng.random(SAMPLES) < 0.47, stored, scaled)
    assert (mixed == scaled).mean() > (mixed == stored).mean()
    assert "scale" not in begun(tmp_path, model, {"x": x, "y": mixed})[0]["data"]


@pytest.mark.parametrize(
    ("high", "dtype", "scaled"),
    [
        (255, np.uint8, True),
        (240, np.uint8, True),
        (16, np.uint8, False),
        (255, np.int32, False),
        (255, np.float32, False),
    ],
)
def test_without_labels_only_bytes_of_the_whole_range_are_scaled(tmp_path: Path, high, dtype, scaled) -> None:
    settings, said = begun(tmp_path, one_image(bias=2.0), {"x": pixels(np.random.default_rng(0), high, dtype)})
    assert settings["data"].get("scale") == (BYTE if scaled else None)
    assert "there are no labels" in said


def test_numbers_with_a_fraction_are_no_pixels_though_the_largest_is_whole(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = rng.uniform(0, 255, (SAMPLES, 3, 8, 8)).astype(np.float32)
    x[:, 0, 0, 0] = 255
    y = kinds.answers(model, x=x / 255).argmax(1)
    assert "scale" not in begun(tmp_path, model, {"x": x, "y": y})[0]["data"]


def test_images_of_nothing_but_zeros_get_no_scale(tmp_path: Path) -> None:
    x, y = np.zeros((SAMPLES, 3, 8, 8), np.uint8), np.arange(SAMPLES) % CLASSES
    assert "scale" not in begun(tmp_path, one_image(bias=2.0), {"x": x, "y": y})[0]["data"]


def test_tokens_out_of_the_vocabulary_are_refused_as_by_run(tmp_path: Path) -> None:
    model, arrays = kinds.positions(np.random.default_rng(0))
    ids = arrays["ids"].copy()
    ids[3] = 99
    with pytest.raises(InputError, match="holds token 99"):
        begun(tmp_path, model, {**arrays, "ids": ids})


class Task:
    """Judged by a mean error in mm, or by what a subclass says."""

    fingerprint = "1"

    def __init__(self, folder: Path, **metric: Any) -> None:
        from ltp_pipeline import Metric

        self.arrays = dict(np.load(folder / "data.npz"))
        self.metric = Metric(**{"name": "MAE", "unit": "mm", "higher_is_better": False, "share": False, **metric})

    def dataset(self, split: str):
        rows = {"train": range(200), "val": range(200, 250), "test": range(250, 300)}[split]
        return [{"x": self.arrays["x"][i], "wanted": self.arrays["y"][i]} for i in rows]

    def loss(self, outputs, batch):
        (y,) = outputs.values()
        return (y - batch["wanted"]).abs().mean()

    def score(self, outputs, batch):
        (y,) = outputs.values()
        return (y - batch["wanted"]).abs().mean(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kinds.write("regress", tmp_path)
    return tmp_path


def test_the_original_is_measured_with_the_users_task(folder: Path) -> None:
    path, said = api.init(folder / "model.onnx", task=Task(folder))
    x, y = (np.load(folder / "data.npz")[name][200:250] for name in ("x", "y"))
    wanted = float(np.abs(kinds.answers(onnx.load(folder / "model.onnx"), x=x) - y).mean())
    text = "\n".join(said)
    assert f"MAE {wanted:.4g} mm" in text
    assert "lower is better" in text
    assert "50 validation samples" in text
    assert "200 train, 50 val, 50 test" in text
    assert tomllib.loads(path.read_text())["data"] == {}


def test_the_budget_of_a_metric_that_is_no_share_is_off_and_tells_its_unit(folder: Path) -> None:
    path, _ = api.init(folder / "model.onnx", task=Task(folder))
    assert tomllib.loads(path.read_text())["budget"] == {}
    _, _, told = path.read_text().partition("# accuracy_budget")
    told = told.partition("target_compression")[0]
    assert "MAE" in told
    assert "in mm" in told
    assert "1 % of the original's" in told


def test_the_budget_of_a_share_is_a_point(folder: Path) -> None:
    shares = Task(folder, name="recall", unit=None, higher_is_better=True, share=True)
    path, _ = api.init(folder / "model.onnx", task=shares)
    assert tomllib.loads(path.read_text())["budget"] == {"accuracy_budget": 0.01}


def test_a_task_without_a_score_says_what_is_measured_instead(folder: Path) -> None:
    class Unscored(Task):
        score = None

    path, said = api.init(folder / "model.onnx", task=Unscored(folder))
    assert any("how near" in line for line in said)
    assert tomllib.loads(path.read_text())["budget"] == {"accuracy_budget": 0.01}


def test_an_error_in_the_users_loss_is_found_and_nothing_is_written(folder: Path) -> None:
    class Wrong(Task):
        def loss(self, outputs, _batch):
            return outputs["nothing"]

    with pytest.raises(InputError, match="loss of the task Wrong failed"):
        api.init(folder / "model.onnx", task=Wrong(folder))
    assert not (folder / "ltp.toml").exists()


@pytest.mark.parametrize("verb", [api.init, api.validate])
def test_a_task_and_data_are_refused_together_as_by_run(folder: Path, verb) -> None:
    with pytest.raises(InputError) as of_run:
        api.run(folder / "model.onnx", data={"path": folder / "data.npz"}, task=Task(folder), out=folder / "out")
    with pytest.raises(InputError) as refused:
        verb(folder / "model.onnx", folder / "data.npz", task=Task(folder))
    assert "both a task" in refused.value.what
    assert (refused.value.what, refused.value.remedy) == (of_run.value.what, of_run.value.remedy)
    assert not (folder / "ltp.toml").exists()
