"""Presets have the numbers of the paper, and later sources replace their budget or λ."""

import re
import shlex
from importlib import resources
from pathlib import Path

import pytest
import typer

from ltp_pipeline.cli.app import app
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from tests.support.paths import ROOT

# T0, η_τ/η and λ of the paper's table; epochs of pruning and of fine-tuning.
PAPER = {
    "resnet20-cifar100": (1e-3, 1e-5, 2e-6, 100, 0),
    "alexnet-imagenet": (1e-3, 1e-7, 1e-7, 18, 12),
    "resnet50-imagenet": (1e-3, 1e-7, 3e-7, 18, 12),
    "mobilenetv2-imagenet": (1e-3, 1e-7, 1e-7, 61, 40),
    "efficientnet-b0-imagenet": (1e-3, 5e-7, 1e-6, 31, 21),
    "mixnet-s-imagenet": (1e-3, 1e-5, 5e-8, 17, 8),
}
COMMAND = re.compile(
    r"^    (?:torchrun --standalone --nproc-per-node \d+ -m ltp_pipeline|ltp-pipeline) (.*)$", re.M
)


def test_presets_cover_the_networks_of_the_paper():
    names = {
        f.name.removesuffix(".toml") for f in resources.files("ltp_pipeline.presets").iterdir()
    }
    assert {n for n in names if not n.startswith("__")} == PAPER.keys()


@pytest.mark.parametrize("name", PAPER)
def test_preset_has_the_numbers_of_the_paper(name: str):
    settings = load_settings(None, preset=name)
    method, train = settings.method, settings.train
    numbers = (
        method.t0,
        method.threshold_lr_ratio,
        method.lambda_,
        train.epochs,
        train.finetune_epochs,
    )
    assert numbers == PAPER[name]
    assert settings.budget.requested_compression is None
    assert settings.data.augment
    assert train.batch_size % 8 == 0  # divides among eight processes


@pytest.mark.parametrize("name", [n for n in PAPER if n.endswith("imagenet")])
def test_imagenet_preset_has_the_usual_preprocessing(name: str):
    data = load_settings(None, preset=name).data
    assert (data.resize, data.crop) == ((224, 224), 0.875)
    assert data.scale == 1 / 255
    assert (data.mean, data.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def test_budget_option_replaces_the_lambda_of_a_preset():
    options = {
        "budget": {"target_compression": 9.0, "accuracy_budget": None},
        "method": {"lambda": None},
    }
    settings = load_settings(None, preset="resnet50-imagenet", options=options)
    assert settings.method.lambda_ is None
    assert settings.budget.target_compression == 9
    assert settings.train.epochs == 18


def test_budget_in_ltp_toml_replaces_lambda_and_lambda_option_replaces_the_budget(tmp_path: Path):
    (tmp_path / "ltp.toml").write_text("[budget]\ntarget_sparsity = 0.5\n")
    model = tmp_path / "model.onnx"
    assert load_settings(model, preset="resnet50-imagenet").budget.requested_compression == 2
    settings = load_settings(
        model, preset="resnet50-imagenet", options={"method": {"lambda": 1e-6}}
    )
    assert settings.method.lambda_ == 1e-6
    assert settings.budget.requested_compression is None


def test_options_without_a_budget_leave_the_lambda():
    options = {"budget": {"target_compression": None}, "train": {"epochs": 3}}
    settings = load_settings(None, preset="mixnet-s-imagenet", options=options)
    assert (settings.method.lambda_, settings.train.epochs) == (5e-8, 3)


def test_budget_and_lambda_of_one_source_are_rejected():
    options = {"budget": {"target_compression": 9.0}, "method": {"lambda": 1e-6}}
    with pytest.raises(InputError, match=r"method\.lambda"):
        load_settings(None, preset="resnet50-imagenet", options=options)


def test_commands_in_the_documentation_are_valid_and_show_every_preset():
    commands = typer.main.get_command(app).commands
    lines = [
        shlex.split(line, comments=True)
        for line in COMMAND.findall((ROOT / "docs" / "how-to" / "imagenet.md").read_text())
    ]
    for words in lines:
        options = {name for parameter in commands[words[0]].params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options, words
    assert {words[words.index("--preset") + 1] for words in lines} == PAPER.keys()
