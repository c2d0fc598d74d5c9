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
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from tests.support import kinds
from tests.support.cli import invoke
from tests.support.models import Array, Graph, run_onnxruntime, two_outputs

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


def run_init(
    folder: Path, model: onnx.ModelProto, arrays: Mapping[str, Array], **settings: Any
) -> tuple[dict[str, Any], str]:
    """The settings that init writes, and what it says."""
    onnx.save(model, folder / "model.onnx")
    np.savez(folder / "data.npz", **arrays)
    path, console = api.init(folder / "model.onnx", folder / "data.npz", settings=settings)
    load_settings(folder / "model.onnx")  # it can be read
    return tomllib.loads(path.read_text()), "\n".join(console)


@pytest.mark.parametrize("name", ["image", "serving/image:0", 'a "b"\\c\x7f'])
def test_init_several_inputs_only_pixels_get_a_scale(tmp_path: Path, name: str) -> None:
    rng, model = np.random.default_rng(0), image_and_numbers(Graph(), name)
    image, numbers = pixels(rng), rng.standard_normal((SAMPLES, 4)).astype(np.float32)
    y = kinds.compute_answers(
        model, **{name: image.astype(np.float32) / 255, "numbers": numbers}
    ).argmax(1)
    settings, console = run_init(tmp_path, model, {name: image, "numbers": numbers, "y": y})
    assert settings["data"]["inputs"] == {name: {"scale": BYTE}}
    assert "scale" not in settings["data"]
    assert "top-1 100.00 %" in console


def test_init_two_inputs_of_pixels_each_gets_its_scale(tmp_path: Path) -> None:
    rng, g = np.random.default_rng(0), Graph()
    g.random("of_left", 192, CLASSES, scale=1.0)
    g.random("of_right", 192, CLASSES, scale=1.0)
    sides = [g.add("MatMul", g.add("Flatten", side), f"of_{side}") for side in ("left", "right")]
    model = g.model(dict.fromkeys(("left", "right"), ("N", 3, 8, 8)), [g.add("Add", *sides)])
    left, right = pixels(rng), pixels(rng, 16)
    y = kinds.compute_answers(
        model, left=left.astype(np.float32) / 255, right=right.astype(np.float32) / 16
    ).argmax(1)
    settings, _ = run_init(tmp_path, model, {"left": left, "right": right, "y": y})
    assert settings["data"]["inputs"]["left"] == {"scale": BYTE}
    assert settings["data"]["inputs"]["right"] == {"scale": 1 / 16}


def test_init_one_transposed_input_only_it_gets_a_layout(tmp_path: Path) -> None:
    rng, g = np.random.default_rng(0), Graph()
    for side in ("left", "right"):
        g.random(f"of_{side}", 192, CLASSES, scale=1.0)
    sides = [g.add("MatMul", g.add("Flatten", side), f"of_{side}") for side in ("left", "right")]
    model = g.model(dict.fromkeys(("left", "right"), ("N", 3, 8, 8)), [g.add("Add", *sides)])
    left, right = (rng.standard_normal((SAMPLES, 3, 8, 8)).astype(np.float32) for _ in range(2))
    y = kinds.compute_answers(model, left=left, right=right).argmax(1)
    settings, console = run_init(
        tmp_path, model, {"left": left, "right": np.moveaxis(right, 1, 3), "y": y}
    )
    assert settings["data"]["inputs"] == {"right": {"layout": "NHWC"}}
    assert "top-1 100.00 %" in console


def test_init_single_input_has_its_scale_in_data(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = pixels(rng)
    y = kinds.compute_answers(model, x=x.astype(np.float32) / 255).argmax(1)
    settings, _ = run_init(tmp_path, model, {"x": x, "y": y})
    assert settings["data"]["scale"] == BYTE
    assert "inputs" not in settings["data"]


def test_init_scale_without_effect_is_not_suggested(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=0)
    x = pixels(rng, dtype=np.int32)
    y = kinds.compute_answers(model, x=x.astype(np.float32)).argmax(1)
    assert "scale" not in run_init(tmp_path, model, {"x": x, "y": y})[0]["data"]


def test_init_scale_better_by_chance_is_not_suggested(tmp_path: Path) -> None:
    """The labels are nearly those of pixels as they are stored; of the others, some fit a scale."""
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = pixels(rng, dtype=np.int32)
    stored, scaled = (
        kinds.compute_answers(model, x=x.astype(np.float32) * scale).argmax(1)
        for scale in (1, BYTE)
    )
    mixed = np.where(rng.random(SAMPLES) < 0.47, stored, scaled)
    assert (mixed == scaled).mean() > (mixed == stored).mean()
    assert "scale" not in run_init(tmp_path, model, {"x": x, "y": mixed})[0]["data"]


def test_init_bytes_of_full_range_are_scaled_without_effect(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=0)
    x = pixels(rng)
    y = kinds.compute_answers(model, x=x.astype(np.float32)).argmax(1)
    assert run_init(tmp_path, model, {"x": x, "y": y})[0]["data"]["scale"] == BYTE
    line = next(
        line
        for line in (tmp_path / "ltp.toml").read_text().splitlines()
        if line.startswith("scale")
    )
    assert line.count("100.00 %") == 2


def test_init_bytes_clearly_better_unscaled_have_an_unused_scale(
    tmp_path: Path,
) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = pixels(rng)
    y = kinds.compute_answers(model, x=x.astype(np.float32)).argmax(1)
    assert "scale" not in run_init(tmp_path, model, {"x": x, "y": y})[0]["data"]
    line = next(
        line
        for line in (tmp_path / "ltp.toml").read_text().splitlines()
        if line.startswith("# scale = ")
    )
    assert "62.96 %" in line
    assert "100.00 %" in line


def test_init_passed_scale_is_kept_and_no_other_tried(tmp_path: Path) -> None:
    model, x = one_image(bias=2.0), pixels(np.random.default_rng(0))
    y = kinds.compute_answers(model, x=x.astype(np.float32) / 255).argmax(1)
    settings, console = run_init(tmp_path, model, {"x": x, "y": y}, data={"scale": 0.5, "mean": 3})
    assert settings["data"] == {"path": "data.npz", "scale": 0.5, "mean": [3.0]}
    assert "top-1 100.00 %" not in console


def test_init_passed_layout_is_kept_and_no_other_tried(tmp_path: Path) -> None:
    x, y = np.moveaxis(pixels(np.random.default_rng(0)), 1, 3), np.arange(SAMPLES) % CLASSES
    with pytest.raises(InputError, match="8×8×3"):
        run_init(tmp_path, one_image(bias=2.0), {"x": x, "y": y}, data={"layout": "NCHW"})
    settings, _ = run_init(tmp_path, one_image(bias=2.0), {"x": x, "y": y}, data={"layout": "NHWC"})
    assert settings["data"]["layout"] == "NHWC"


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
def test_init_no_labels_only_bytes_of_full_range_are_scaled(
    tmp_path: Path, high, dtype, scaled
) -> None:
    settings, console = run_init(
        tmp_path, one_image(bias=2.0), {"x": pixels(np.random.default_rng(0), high, dtype)}
    )
    assert settings["data"].get("scale") == (BYTE if scaled else None)
    assert settings["task"]["kind"] == "distillation"
    assert "without labels" in console


def test_init_fractions_with_integer_maximum_get_no_scale(tmp_path: Path) -> None:
    rng, model = np.random.default_rng(0), one_image(bias=2.0)
    x = rng.uniform(0, 255, (SAMPLES, 3, 8, 8)).astype(np.float32)
    x[:, 0, 0, 0] = 255
    y = kinds.compute_answers(model, x=x / 255).argmax(1)
    assert "scale" not in run_init(tmp_path, model, {"x": x, "y": y})[0]["data"]


def test_init_images_of_zeros_get_no_scale(tmp_path: Path) -> None:
    x, y = np.zeros((SAMPLES, 3, 8, 8), np.uint8), np.arange(SAMPLES) % CLASSES
    assert "scale" not in run_init(tmp_path, one_image(bias=2.0), {"x": x, "y": y})[0]["data"]


def test_init_token_outside_vocabulary_raises(tmp_path: Path) -> None:
    model, arrays = kinds.positions(np.random.default_rng(0))
    ids = arrays["ids"].copy()
    ids[3] = 99
    with pytest.raises(InputError, match=r"'ids'.*\b99\b"):
        run_init(tmp_path, model, {**arrays, "ids": ids})


def numbers() -> Array:
    return np.random.default_rng(0).standard_normal((SAMPLES, 8)).astype(np.float32)


def counts() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one number, and whole numbers: classes or values, nothing tells."""
    g = Graph()
    g.random("weight", 8, 1, scale=1.0)
    model = g.model({"x": ("N", 8)}, [g.add("MatMul", "x", "weight")])
    x = numbers()
    return model, {
        "x": x,
        "y": np.clip(np.rint(kinds.compute_answers(model, x=x)[:, 0] + 3), 0, 9).astype(np.int64)
        % 2,
    }


def test_init_passed_settings_are_written_in_all_sections(tmp_path: Path) -> None:
    model, arrays = counts()
    with pytest.raises(InputError) as refused:
        run_init(tmp_path, model, arrays)
    assert "kind" in refused.value.hint
    options = {
        "task": {"kind": "regression"},
        "train": {"epochs": 3},
        "method": {"lambda": 1e-6},
        "log": {},
    }
    settings, _ = run_init(tmp_path, model, arrays, **options)
    assert settings["task"]["kind"] == "regression"
    assert settings["train"] == {"seed": 0, "epochs": 3}
    assert settings["method"] == {"lambda": 1e-6}
    assert settings["budget"] == {}  # lambda decides


def test_init_unknown_setting_raises_and_writes_nothing(tmp_path: Path) -> None:
    model, arrays = counts()
    with pytest.raises(InputError, match=r"\btask\.sort\b"):
        run_init(tmp_path, model, arrays, task={"sort": "regression"})
    assert not (tmp_path / "ltp.toml").exists()


def test_init_set_option_decides_the_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, arrays = counts()
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", **arrays)
    command = (
        "init",
        tmp_path / "model.onnx",
        "--data",
        tmp_path / "data.npz",
        "--set",
        "task.kind=regression",
    )
    result = invoke(capsys, *command)
    assert result.code == 0, result.err
    assert "task: regression;" in result.out


def test_init_force_keeps_data_and_task_of_the_old_file(tmp_path: Path) -> None:
    model, arrays = counts()
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", **arrays)
    before = (
        '[data]\npath = "data.npz"\nscale = 2\n[task]\nkind = "regression"\n[train]\nepochs = 3\n'
    )
    (tmp_path / "ltp.toml").write_text(before)
    path, _ = api.init(tmp_path / "model.onnx", force=True, settings={"data": {"scale": 4}})
    settings = tomllib.loads(path.read_text())
    assert settings["data"] == {"path": "data.npz", "scale": 4.0}
    assert settings["task"]["kind"] == "regression"
    assert settings["train"] == {"seed": 0}


@pytest.mark.parametrize("label", [255, -1])
def test_init_label_without_class_becomes_the_ignored_label(tmp_path: Path, label: int) -> None:
    model, arrays = kinds.segment(np.random.default_rng(0))
    y = arrays["y"].astype(np.int16)
    y[:, 0] = label
    settings, console = run_init(tmp_path, model, {**arrays, "y": y})
    assert settings["task"]["ignore_index"] == label
    assert f"ignore_index = {label}" in console


def test_init_label_without_class_raises_if_one_class_would_remain(
    tmp_path: Path,
) -> None:
    """Masks of 0 and 255: the second is a class."""
    model, arrays = kinds.masks(np.random.default_rng(0))
    with pytest.raises(InputError, match=r"\b255\b"):
        run_init(tmp_path, model, {**arrays, "y": arrays["y"].astype(np.uint8) * 255})


def test_init_label_out_of_range_raises(tmp_path: Path) -> None:
    model, arrays = kinds.segment(np.random.default_rng(0))
    y = arrays["y"].astype(np.int16)
    y[:, 0] = 77
    with pytest.raises(InputError, match=r"\b77\b"):
        run_init(tmp_path, model, {**arrays, "y": y})


def test_init_single_unused_array_becomes_the_target(tmp_path: Path) -> None:
    model, arrays = kinds.regress(np.random.default_rng(0))
    settings, console = run_init(tmp_path, model, {"x": arrays["x"], "price": arrays["y"]})
    assert settings["task"]["target"] == "price"
    assert 'target = "price"' in console


def test_init_two_unused_arrays_raises(tmp_path: Path) -> None:
    model, arrays = kinds.regress(np.random.default_rng(0))
    with pytest.raises(InputError, match="'price', 'size'"):
        run_init(tmp_path, model, {"x": arrays["x"], "price": arrays["y"], "size": arrays["y"]})


def test_init_unused_array_next_to_labels_raises(tmp_path: Path) -> None:
    model, arrays = kinds.regress(np.random.default_rng(0))
    with pytest.raises(InputError, match="'price'"):
        run_init(tmp_path, model, {**arrays, "price": arrays["y"]})


def test_init_unfit_unused_array_raises_with_its_name(
    tmp_path: Path,
) -> None:
    model, arrays = kinds.regress(np.random.default_rng(0))
    with pytest.raises(InputError, match=r"\b77\b.*'price'"):
        run_init(tmp_path, model, {"x": arrays["x"], "price": np.zeros((len(arrays["x"]), 77))})


def test_init_no_layout_fits_raises_error_of_the_furthest(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = np.moveaxis(pixels(rng), 1, 3), np.full(SAMPLES, CLASSES + 2)
    with pytest.raises(InputError, match=r"\b7\b.*\b5 classes\b"):
        run_init(tmp_path, one_image(bias=2.0), {"x": x, "y": y})


OUTPUTS = ("shape", "colour")


@pytest.mark.parametrize("meant", [0, 1])
def test_init_two_fitting_outputs_the_better_is_chosen(tmp_path: Path, meant: int) -> None:
    model, x = two_outputs(CLASSES), numbers()
    y = run_onnxruntime(model, {"x": x})[meant].argmax(1)
    settings, console = run_init(tmp_path, model, {"x": x, "y": y})
    assert settings["task"]["output"] == OUTPUTS[meant]
    assert f"the output {OUTPUTS[1 - meant]}," in (tmp_path / "ltp.toml").read_text()
    assert "top-1 100.00 %" in console


def test_init_two_equal_outputs_the_first_is_chosen(tmp_path: Path) -> None:
    settings, console = run_init(
        tmp_path, two_outputs(CLASSES), {"x": numbers(), "y": np.arange(SAMPLES) % CLASSES}
    )
    assert settings["task"]["output"] == OUTPUTS[0]
    assert "Check " in console
    assert "the output" in console


def test_init_passed_output_is_kept(tmp_path: Path) -> None:
    model, x = two_outputs(CLASSES), numbers()
    y = run_onnxruntime(model, {"x": x})[0].argmax(1)
    settings, _ = run_init(tmp_path, model, {"x": x, "y": y}, task={"output": OUTPUTS[1]})
    assert settings["task"]["output"] == OUTPUTS[1]


def test_init_no_labels_sets_no_output(tmp_path: Path) -> None:
    settings, _ = run_init(tmp_path, two_outputs(CLASSES), {"x": numbers()})
    assert settings["task"] == {"kind": "distillation"}


@pytest.mark.parametrize(
    ("name", "marked"), [("tokens_mask", "values"), ("padding_mask", "no values")]
)
def test_init_computed_mask_is_described(tmp_path: Path, name: str, marked: str) -> None:
    g, rng = Graph(), np.random.default_rng(0)
    g.random("of_tokens", 1, CLASSES, scale=1.0)
    sums = g.add(
        "ReduceSum", g.add("Mul", "tokens", name), g.tensor("axes", [1], np.int64), keepdims=1
    )
    model = g.model({"tokens": ("N", "T"), name: ("N", "T")}, [g.add("MatMul", sums, "of_tokens")])
    lengths = rng.integers(1, 6, SAMPLES)
    tokens = rng.standard_normal(lengths.sum()).astype(np.float32)
    arrays = {
        "tokens": tokens,
        "tokens_offsets": np.cumsum([0, *lengths]),
        "y": rng.integers(0, CLASSES, SAMPLES),
    }
    console = run_init(tmp_path, model, arrays)[1]
    assert f"{name}: a mask that is computed, 1 where tokens has {marked}\n" in console


class Task:
    """Judged by a mean error in mm, or by what a subclass says."""

    fingerprint = "1"

    def __init__(self, folder: Path, **metric: Any) -> None:
        from ltp_pipeline.results.metric import Metric

        self.arrays = dict(np.load(folder / "data.npz"))
        self.metric = Metric(
            **{
                "name": "MAE",
                "unit": "mm",
                "higher_is_better": False,
                "is_fraction": False,
                **metric,
            }
        )

    def dataset(self, split: str):
        rows = {"train": range(200), "val": range(200, 250), "test": range(250, 300)}[split]
        return [{"x": self.arrays["x"][i], "target": self.arrays["y"][i]} for i in rows]

    def loss(self, outputs, batch):
        (y,) = outputs.values()
        return (y - batch["target"]).abs().mean()

    def score(self, outputs, batch):
        (y,) = outputs.values()
        return (y - batch["target"]).abs().mean(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kinds.write_kind("regression", tmp_path)
    return tmp_path


def test_init_custom_task_measures_the_original(folder: Path) -> None:
    path, console = api.init(folder / "model.onnx", task=Task(folder))
    x, y = (np.load(folder / "data.npz")[name][200:250] for name in ("x", "y"))
    expected = float(
        np.abs(kinds.compute_answers(onnx.load(folder / "model.onnx"), x=x) - y).mean()
    )
    text = "\n".join(console)
    assert f"MAE {expected:.4g} mm" in text
    assert "lower is better" in text
    assert "50 validation samples" in text
    assert "200 train, 50 val, 50 test" in text
    assert tomllib.loads(path.read_text())["data"] == {}


def test_init_metric_with_unit_has_an_unused_budget_in_it(folder: Path) -> None:
    path, _ = api.init(folder / "model.onnx", task=Task(folder))
    assert tomllib.loads(path.read_text())["budget"] == {}
    lines = path.read_text().splitlines()
    (budget,) = [line for line in lines if line.startswith("# accuracy_budget = ")]
    assert "MAE" in budget
    assert "in mm" in budget


def test_init_fraction_metric_has_a_budget_of_one_point(folder: Path) -> None:
    shares = Task(folder, name="recall", unit=None, higher_is_better=True, is_fraction=True)
    path, _ = api.init(folder / "model.onnx", task=shares)
    assert tomllib.loads(path.read_text())["budget"] == {"accuracy_budget": 0.01}


def test_init_hostile_metric_stays_in_comments(folder: Path) -> None:
    hostile = "mm\n[train]\nepochs = 9"
    path, console = api.init(folder / "model.onnx", task=Task(folder, name=hostile, unit=hostile))
    assert tomllib.loads(path.read_text())["train"] == {"seed": 0}
    assert "epochs = 9" not in console


def test_init_task_without_score_has_a_note(folder: Path) -> None:
    class Unscored(Task):
        score = None

    path, console = api.init(folder / "model.onnx", task=Unscored(folder))
    assert any("compares a pruned network with the original" in line for line in console)
    assert tomllib.loads(path.read_text())["budget"] == {"accuracy_budget": 0.01}


def test_init_failing_loss_raises_and_writes_nothing(folder: Path) -> None:
    class Wrong(Task):
        def loss(self, outputs, _batch):
            return outputs["nothing"]

    with pytest.raises(InputError, match=r"\bloss\b.*\bWrong\b"):
        api.init(folder / "model.onnx", task=Wrong(folder))
    assert not (folder / "ltp.toml").exists()


@pytest.mark.parametrize("verb", [api.init, api.validate])
def test_init_task_and_data_raise_the_error_of_run(folder: Path, verb) -> None:
    with pytest.raises(InputError) as of_run:
        api.run(
            folder / "model.onnx",
            data={"path": folder / "data.npz"},
            task=Task(folder),
            out=folder / "out",
        )
    with pytest.raises(InputError) as refused:
        verb(folder / "model.onnx", folder / "data.npz", task=Task(folder))
    assert "--task" in refused.value.hint
    assert "--data" in refused.value.hint
    assert (refused.value.message, refused.value.hint) == (of_run.value.message, of_run.value.hint)
    assert not (folder / "ltp.toml").exists()


def test_init_classes_in_another_order_are_suggested(tmp_path: Path) -> None:
    model, x = two_outputs(CLASSES), numbers()
    y = run_onnxruntime(model, {"x": x})[0].argmax(1)
    _, console = run_init(
        tmp_path, model, {"x": x, "y": (y + 1) % CLASSES}, task={"output": OUTPUTS[0]}
    )
    assert "set classes = { 0 = 4, 1 = 0, 2 = 1, 3 = 2, 4 = 3 } in [data]" in console
