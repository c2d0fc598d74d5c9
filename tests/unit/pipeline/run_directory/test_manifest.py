"""The manifest: any change of its content is found before it is believed."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.run_directory.manifest import (
    Manifest,
    ManifestFile,
    ReportInputs,
    RunIdentity,
    RunInputs,
    add_hash,
)
from ltp_pipeline.settings.schema import BaselineSettings, ExportSettings, MethodSettings, Settings

SETTINGS = Settings(method=MethodSettings.model_validate({"lambda": 0.1}))


def full() -> Manifest:
    return Manifest(
        identity=RunIdentity(model="a", data="b", settings={"train": {"lr": -0.0}}, entry=3),
        inputs=RunInputs(model="/model.onnx", settings=SETTINGS),
        metric=Metric("MAE", "°C", higher_is_better=False, is_fraction=False),
        threads=2,
        rules={"distillation_weight": 0.5},
        timings={"learn": 1.25},
        proof=ReportInputs(export=ExportSettings(), baseline=BaselineSettings(mode="quick")),
        files={"state/learn.safetensors": "0" * 64},
    )


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = ManifestFile(tmp_path)
    file.create(RunIdentity())
    file._content = full()
    file.write()
    return tmp_path / "manifest.json"


def read(path: Path) -> Manifest:
    return ManifestFile(path.parent).read()


def test_manifest_is_restored(written: Path):
    assert read(written) == full()


def test_manifest_hash_is_the_last_key(written: Path):
    assert list(json.loads(written.read_text()))[-1] == "sha256"


def test_manifest_flipped_bit_is_rejected(written: Path):
    content = written.read_bytes()
    for at in range(0, len(content), 41):
        for bit in (1, 32):
            written.write_bytes(content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :])
            with suppress(InputError):
                assert (
                    read(written) == full()
                )  # only white space between keys may change without a change of content
                assert content[at : at + 1].isspace()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[1, 2",
        "[]",
        "3",
        "null",
        "{}",
        '{"sha256": 3}',
        "[" * 100_000,
        "\x00",
        '{"a": 1, "a": 2}',
    ],
)
def test_manifest_other_content_is_rejected(written: Path, content: str):
    written.write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json") as caught:
        read(written)
    assert "--fresh" in caught.value.hint


def test_manifest_bytes_that_are_not_utf8_are_rejected(written: Path):
    written.write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="UTF-8"):
        read(written)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3) | st.floats(-2, 2),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=40, deadline=None)
@given(key=st.sampled_from([*Manifest.model_fields, "other"]), value=ANYTHING)
def test_manifest_wrong_value_with_matching_hash_is_rejected(
    tmp_path_factory: pytest.TempPathFactory, key: str, value: Any
):
    path = tmp_path_factory.getbasetemp() / "manifest.json"
    path.write_text(
        json.dumps(add_hash({**full().model_dump(mode="json", by_alias=True), key: value}))
    )
    with suppress(InputError):
        assert isinstance(read(path), Manifest)
