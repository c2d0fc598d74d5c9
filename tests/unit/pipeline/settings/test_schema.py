"""Settings: where they come from, what is taken and what is refused."""

import re
import tomllib
from pathlib import Path

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.load import load_settings
from ltp_pipeline.settings.schema import ExportSettings, Settings
from tests.support.paths import ROOT


def test_settings_shown_in_the_readme_are_valid():
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert Settings.model_validate(tomllib.loads(block)).budget.target_compression == 10


def test_an_unknown_format_is_told_once():
    with pytest.raises(InputError) as told:
        load_settings(None, options={"export": {"formats": ["foo"]}})
    assert "at least 1 item" not in told.value.message


@pytest.mark.parametrize(("given", "kept"), [(0.5, (0.5,)), (2, (2.0,)), ([0.1, 0.2], (0.1, 0.2))])
def test_mean_and_std_are_one_number_or_several(given: object, kept: tuple[float, ...]):
    data = load_settings(None, options={"data": {"mean": given, "std": given}}).data
    assert (data.mean, data.std) == (kept, kept)


@pytest.mark.parametrize(
    "beyond",
    [
        {"scale": 1e39},
        {"mean": [-1e39]},
        {"std": [1e308]},
        {"std": 1e-40},
        {"std": 0},
        {"padding_value": 1e39},
    ],
)
def test_what_single_precision_does_not_hold_is_refused(beyond: dict[str, object]):
    for data in (beyond, {"inputs": {"image": beyond}}):
        with pytest.raises(InputError, match=r"should be (less|greater) than"):
            load_settings(None, options={"data": data})


def test_values_are_given_as_a_word_or_several_and_exact_is_always_there():
    given = ("exact", "int8", ["fp16", "int8"], ["exact", "fp16"])
    kept = ((), ("int8",), ("fp16", "int8"), ("fp16",))
    assert tuple(ExportSettings(weight_storage=v).weight_storage for v in given) == kept


def test_rounding_without_a_packed_file_is_refused():
    with pytest.raises(ValueError, match="packed"):
        Settings(export={"formats": ["sparse"], "weight_storage": "int8"})


def test_settings_of_an_input_say_the_same_when_they_are_read_again():
    data = {
        "layout": "NHWC",
        "mean": [0.5],
        "inputs": {"a.b": {"scale": 2.0}, "c": {"mean": [], "layout": "NCHW"}},
    }
    settings = Settings.model_validate({"data": data})
    kept = settings.model_dump(mode="json", by_alias=True)
    assert kept["data"]["inputs"] == data["inputs"]
    again = Settings.model_validate(kept).data
    for name in ("a.b", "c", "d"):
        assert again.for_input(name) == settings.data.for_input(name)
    assert (again.for_input("a.b").layout, again.for_input("a.b").mean) == ("NHWC", (0.5,))
    assert (again.for_input("c").layout, again.for_input("c").mean) == ("NCHW", ())


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("[data.inputs.a.b]\nscale = 1.0", '[data.inputs."a.b"]'),
        ("[data.inputs.a.b.c]\nscale = 1.0", '[data.inputs."a.b.c"]'),
        ("[data.inputs.a.b.c.d]", '[data.inputs."a.b.c.d"]'),
        ("[data]\ninputs.a.b.scale = 1.0", '[data.inputs."a.b"]'),
        ("[data.inputs.input:0]\nscale = 1.0", '[data.inputs."input:0"]'),
        (
            "[train]\nseed = 1\n[data.inputs.model/in:0] # the first\nscale = 1.0",
            '[data.inputs."model/in:0"]',
        ),
        ("[data.inputs.a[0]]", '[data.inputs."a[0]"]'),
        ("[data.inputs]\ninput:0 = { scale = 1.0 }", '"input:0" = …'),
    ],
)
def test_a_name_of_an_input_that_needs_quotes_is_shown_with_them(
    tmp_path: Path, text: str, section: str
) -> None:
    (tmp_path / "ltp.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        load_settings(None, tmp_path / "ltp.toml")
    said = f"{caught.value.message}; {caught.value.hint}"
    assert "must be quoted" in said
    assert section in said


@pytest.mark.parametrize(
    "text", ['[data.inputs."input:0]', "[data\nscale = 1.0", "[data]\nscale = 1.0.0"]
)
def test_other_mistakes_in_toml_are_not_told_as_missing_quotes(tmp_path: Path, text: str) -> None:
    (tmp_path / "ltp.toml").write_text(text)
    with pytest.raises(InputError, match="not valid TOML") as caught:
        load_settings(None, tmp_path / "ltp.toml")
    assert "quoted" not in caught.value.hint
