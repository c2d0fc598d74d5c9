"""Sections of settings: accepted values, rejected values, and what follows from them."""

import re
import tomllib

import pytest
from pydantic import ValidationError

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import (
    BudgetSettings,
    ExportSettings,
    GateSettings,
    Section,
    Settings,
)
from tests.support.paths import ROOT

SECTIONS = {name: type(field.default) for name, field in Settings.model_fields.items()}


# Settings that request something: without them, nothing is done.
REQUESTS = ("data.path", "method.lambda_", "budget.", "gates.")


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_described_with_its_default(section: str):
    for name, field in SECTIONS[section].model_fields.items():
        description = field.description or ""
        assert re.fullmatch(r"[A-Z].*[.]", description), name
        if field.default is None and not f"{section}.{name}".startswith(REQUESTS):
            assert "Default: " in description, name


def test_settings_in_the_readme_are_accepted():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert Settings.model_validate(tomllib.loads(block)).budget.target_compression == 10


@pytest.mark.parametrize(
    ("value", "expected"), [(0.5, (0.5,)), (2, (2.0,)), ([0.1, 0.2], (0.1, 0.2))]
)
def test_mean_and_std_are_one_number_or_several(value: object, expected: tuple[float, ...]):
    data = load_settings(None, options={"data": {"mean": value, "std": value}}).data
    assert (data.mean, data.std) == (expected, expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scale", 1e39),
        ("mean", [-1e39]),
        ("std", [1e308]),
        ("std", 1e-40),
        ("std", 0),
        ("padding_value", 1e39),
    ],
)
def test_preprocessing_value_beyond_single_precision_is_rejected(key: str, value: object):
    for data in ({key: value}, {"inputs": {"image": {key: value}}}):
        with pytest.raises(InputError, match=key):
            load_settings(None, options={"data": data})


def test_for_input_returns_the_same_after_settings_are_stored_and_read():
    data = {
        "layout": "NHWC",
        "mean": [0.5],
        "inputs": {"a.b": {"scale": 2.0}, "c": {"mean": [], "layout": "NCHW"}},
    }
    settings = Settings.model_validate({"data": data})
    stored = settings.model_dump(mode="json", by_alias=True)
    assert stored["data"]["inputs"] == data["inputs"]
    restored = Settings.model_validate(stored).data
    for name in ("a.b", "c", "d"):
        assert restored.for_input(name) == settings.data.for_input(name)
    assert restored.for_input("a.b").layout == "NHWC"
    assert restored.for_input("a.b").mean == (0.5,)
    assert restored.for_input("c").layout == "NCHW"
    assert restored.for_input("c").mean == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("exact", ()),
        ("int8", ("int8",)),
        (["fp16", "int8"], ("fp16", "int8")),
        (["exact", "fp16"], ("fp16",)),
    ],
)
def test_weight_storage_is_one_word_or_several_without_exact(
    value: object, expected: tuple[str, ...]
):
    assert ExportSettings(weight_storage=value).weight_storage == expected


def test_weight_storage_without_a_packed_file_is_rejected():
    assert ExportSettings(formats=("sparse", "deploy"), weight_storage="int8").weight_storage
    with pytest.raises(ValueError, match="packed"):
        ExportSettings(formats=("sparse", "deploy-dense"), weight_storage="int8")


def test_formats_each_file_is_written_once():
    settings = ExportSettings(
        formats=("deploy", "packed", "deploy-packed"), weight_storage=("int8", "int8")
    )
    assert settings.formats == ("deploy-packed", "packed")
    assert settings.weight_storage == ("int8",)


def test_has_all_files_of_the_same_export_or_fewer():
    settings = ExportSettings(formats=("packed", "deploy", "dense"), weight_storage="int8")
    assert settings.has_all_files(ExportSettings(formats=("deploy-packed",), weight_storage="int8"))
    assert not settings.has_all_files(ExportSettings(formats=("packed",)))
    assert not settings.has_all_files(settings.model_copy(update={"external_data": True}))
    other_graph = ExportSettings(formats=("deploy-dense", "packed"), weight_storage="int8")
    assert not settings.has_all_files(other_graph)


def test_requested_baseline_is_the_curve_if_a_gate_needs_it():
    assert Settings().requested_baseline == "auto"
    assert Settings(gates=GateSettings(min_gain=1.5)).requested_baseline == "curve"


def test_sections_cannot_be_changed_and_have_no_further_keys():
    for section in (*SECTIONS.values(), Settings):
        assert issubclass(section, Section)
        assert section.model_config["frozen"]
        assert section.model_config["extra"] == "forbid"


@pytest.mark.parametrize(
    ("budget", "key"),
    [
        ({}, None),
        ({"target_compression": 5}, None),
        ({"target_macs": 0.1}, "target_macs"),
        ({"target_bytes": 1000}, "target_bytes"),
        ({"target_latency": 0.5}, "target_latency"),
    ],
)
def test_cost_key_is_that_of_a_budget_that_counts_no_weights(budget, key):
    assert BudgetSettings(**budget).cost_key == key


@pytest.mark.parametrize(("target", "expected"), [(0.25, 250), (0.9999, 1000), (1, 1), (800, 800)])
def test_count_bytes_below_one_is_a_fraction_of_the_original(target, expected):
    assert BudgetSettings(target_bytes=target).count_bytes(1001) == expected


@pytest.mark.parametrize("value", [0, -1, True, "many"])
def test_target_bytes_that_is_no_size_is_rejected(value):
    with pytest.raises(ValidationError):
        BudgetSettings(target_bytes=value)


def test_budgets_of_two_costs_contradict_each_other():
    with pytest.raises(ValidationError, match="contradict each other"):
        BudgetSettings(target_bytes=0.5, target_latency=0.5)
