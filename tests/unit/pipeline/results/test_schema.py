"""The shipped JSON Schema is the one the models generate, and reports keep to it."""

import json
import re
from importlib import resources
from typing import Any

import pytest
from pydantic import ValidationError

from ltp_pipeline.results.read_write import to_json
from ltp_pipeline.results.schema import FileResult, Report, make_json_schema
from tests.support.sample_report import report_of, sample

SENTENCES = r"([A-Z0-9w`].*[.])+"


def test_shipped_schema_is_generated() -> None:
    shipped = (
        resources.files("ltp_pipeline").joinpath("report.schema.json").read_text(encoding="utf-8")
    )
    assert shipped == make_json_schema(), (
        "run: python -m ltp_pipeline.results.schema > pipeline/report.schema.json"
    )


def holds(whole: Any, part: Any) -> bool:
    """Whether JSON has all that another has, and maybe more keys."""
    if isinstance(part, dict):
        return all(key in whole and holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(holds, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("baseline", [True, False])
def test_written_report_has_every_key(baseline: bool) -> None:
    content = sample(baseline)[0]
    written = to_json(report_of(content))
    assert holds(written, content)
    assert list(to_json(Report())) == list(written)
    assert to_json(Report())["schema"] == "ltp-report/1"
    assert to_json(Report())["pruned"]["drop"] is None


def test_report_further_keys_are_accepted() -> None:
    report: dict[str, Any] = sample()[0] | {"later": 1}
    assert to_json(report_of(report))["later"] == 1


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"status": "perhaps"}, "status"),
        ({"pruned": {"drop": "0.1"}}, "pruned.drop"),
        ({"pruned": {"drop_interval": [0.1]}}, "pruned.drop_interval.1"),
        ({"pruned": {"files": [{"bytes": -1}]}}, "pruned.files.0.bytes"),
        ({"baseline": {"gain_bound": "about"}}, "baseline.gain_bound"),
        ({"gates": [{"limit": []}]}, "gates.0.limit"),
    ],
)
def test_report_wrong_value_names_its_key(change: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        report_of(change)
    assert ".".join(map(str, caught.value.errors()[0]["loc"])).startswith(key)


def test_report_nan_is_rejected() -> None:
    report = sample()[0]
    report["pruned"]["drop"] = float("nan")
    with pytest.raises(ValidationError):
        report_of(report)


def test_report_integers_stay_integers() -> None:
    report = report_of(
        {"gates": [{"limit": 1_310_720, "value": 2}, {"limit": True}, {"limit": 0.5}]}
    )
    assert [repr(gate.limit) for gate in report.gates] == ["1310720", "True", "0.5"]
    stored = {"stored": {"range": [0, 2**63 - 1]}}
    report = report_of({"data": {"inputs": {"x": {"preprocessing": stored}}}})
    stored = to_json(report)["data"]["inputs"]["x"]["preprocessing"]["stored"]
    assert repr(stored["range"]) == f"[0, {2**63 - 1}]"


@pytest.mark.parametrize(
    ("graph", "encoding", "values", "name", "label"),
    [
        ("original", "packed", "exact", "packed", "packed"),
        ("original", "packed", "int8", "packed", "packed, int8"),
        ("deploy", "sparse", "exact", "deploy-sparse", "deploy-sparse"),
    ],
)
def test_report_file_has_the_name_of_its_format(
    graph: str, encoding: str, values: str, name: str, label: str
) -> None:
    file = FileResult(graph=graph, encoding=encoding, weight_storage=values)
    assert (file.name, file.label) == (name, label)


def test_report_file_with_external_data_has_two_hashes() -> None:
    assert FileResult(path="m.onnx", sha256="a").hashes == {"m.onnx": "a"}
    assert FileResult(path="m.onnx", sha256="a", data_sha256="b").hashes == {
        "m.onnx": "a",
        "m.onnx.data": "b",
    }


def test_every_key_has_a_description_that_is_a_sentence() -> None:
    """A key is described by itself, or in the section "Attributes" of its dataclass."""
    schema = json.loads(make_json_schema())
    for name, part in {"Report": schema, **schema["$defs"]}.items():
        for key, value in part.get("properties", {}).items():
            if "Attributes:" in part["description"]:
                assert re.search(rf"^    {key}: [A-Z]", part["description"], re.MULTILINE), name
            elif name not in {"PairedCounts", "ExtraMetric"}:
                assert re.fullmatch(SENTENCES, value.get("description", "")), f"{name}.{key}"
