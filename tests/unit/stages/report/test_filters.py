"""Numbers, sizes and names as templates show them."""

from typing import Any

import pytest
from markupsafe import Markup

from ltp_pipeline.results.metric import Metric
from ltp_pipeline.results.schema import NetworkResult
from ltp_pipeline.stages.report import filters
from tests.support.sample_report import report_of, sample

CELSIUS = Metric("MAE", "°C", higher_is_better=False, is_fraction=False)


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (filters.format_percent, 0.9132, "91.32 %"),
        (filters.format_factor, 1.888, "1.89"),
        (filters.format_factor, 1234.5, "1234"),
        (filters.format_size, 131_072, "131 kB"),
        (filters.format_size, 2.5e9, "2.5 GB"),
        (filters.format_count, 432_400, "432\u202f400"),
        (filters.format_cell, True, "yes"),
        (filters.format_cell, (1, 0.5), "1, 0.5"),
        (filters.format_cell, [], "–"),
    ],
)
def test_format_value_gives_text(function: Any, value: Any, expected: str) -> None:
    assert function(value) == expected


@pytest.mark.parametrize(
    "function",
    [
        filters.format_percent,
        filters.format_size,
        filters.format_count,
        filters.format_cell,
        lambda value: filters.format_value(value, CELSIUS),
        lambda value: filters.format_drop(value, CELSIUS),
        lambda value: filters.format_interval(value, CELSIUS),
    ],
)
def test_format_none_gives_a_dash(function: Any) -> None:
    assert function(None) == "–"


@pytest.mark.parametrize(
    ("bounds", "dtype", "expected"),
    [
        ((0, 255), "uint8", "0 to 255"),
        ((0, 1), "bool", "False or True"),
        ((-0.123456789, 1), "float32", "-0.123457 to 1"),
    ],
)
def test_format_range_depends_on_the_type(
    bounds: tuple[float, float], dtype: str, expected: str
) -> None:
    assert filters.format_range(bounds, dtype) == expected


def test_flatten_settings_nested_keys_are_dotted() -> None:
    rows = filters.flatten_settings({"train": {"lr": 0.1, "seed": None}, "x": 1})
    assert rows == [("train.lr", "0.1"), ("train.seed", "–"), ("x", "1")]


def test_capitalize_phrase_keeps_words_with_capitals() -> None:
    assert filters.capitalize_phrase("mean average precision") == "Mean average precision"
    assert [filters.capitalize_phrase(name) for name in ("mIoU", "R²", "")] == ["mIoU", "R²", ""]


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        (Metric(), "top-1 accuracy, %"),
        (CELSIUS, "MAE, °C (lower is better)"),
        (Metric("log-likelihood", is_fraction=False), "log-likelihood"),
        (Metric("error rate", higher_is_better=False), "error rate, % (lower is better)"),
    ],
)
def test_label_axis_has_metric_unit_and_direction(metric: Metric, label: str) -> None:
    assert filters.label_axis(metric) == label


@pytest.mark.parametrize(
    ("method", "in_name", "not_in_name"),
    [
        ("global-magnitude", "global magnitude", "blocks"),
        ("global-magnitude, in blocks", "in blocks", "classifier"),
        ("global-magnitude, in blocks, classifier excluded", "classifier", "LTP"),
        ("ltp", "LTP", "magnitude"),
    ],
)
def test_name_network_says_how_it_was_pruned(method: str, in_name: str, not_in_name: str) -> None:
    name = filters.name_network(NetworkResult(method=method))
    assert in_name in name
    assert not_in_name not in name


def test_list_extra_labels_names_each_metric_once() -> None:
    content = sample()[0]
    content["original"]["accuracy"]["argmax_agreement"] = 1.0
    extra = [{"name": "R²", "value": 0.9512}]
    for part in ("original", "pruned"):
        content[part]["accuracy"]["extra_metrics"] = extra
    report = report_of(content)
    parts = [report.original, report.pruned]
    assert filters.list_extra_labels(parts) == [filters.ARGMAX_AGREEMENT, "R²"]
    assert filters.format_extra_metric(report.pruned, "R²") == "95.12 %"
    assert filters.format_extra_metric(report.pruned, filters.ARGMAX_AGREEMENT) == "–"


def test_join_lines_keeps_the_type_and_narrow_spaces() -> None:
    joined = filters.join_lines(Markup("\n one\u202f000\n  two \n"))
    assert joined == "one\u202f000 two"
    assert isinstance(joined, Markup)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("top-1 of max_drop", "top-1 of max_drop"),
        ("a | b\n# c", "a \\| b \\# c"),
        ("- item", "\\- item"),
        ("__init__ --flag", "\\_\\_init\\_\\_ \\-\\-flag"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("[x](y) `z` @all", "\\[x\\]\\(y\\) \\`z\\` \\@all"),
        (10, "10"),
    ],
)
def test_escape_markdown_leaves_no_markup(value: Any, expected: str) -> None:
    assert filters.escape_markdown(value) == expected


def test_to_code_span_has_no_backtick_and_no_line_break() -> None:
    assert filters.to_code_span("a`b\n<img src=x>") == "`a'b <img src=x>`"
