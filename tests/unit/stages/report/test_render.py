"""Pages of a report: complete, harmless, the same bytes every time."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ltp_pipeline.results.schema import Report
from ltp_pipeline.stages.report import render, run_plots, svg
from tests.support.sample_report import (
    HOSTILE,
    in_celsius,
    one_point,
    report_of,
    sample,
    with_bounded_gain,
)

SECTIONS = ["plots", "layers", "gates", "data", "environment", "timings", "settings", "files"]
PLOTS = ["tradeoff", "sizes", "thresholds", "training", "histograms", "scatter", "densities"]
NO_PLOTS: dict[str, Any] = {"trail": [], "sizes": {}, "histograms": [], "scatter": None}
MASK = {"stored": {"type": "bool", "shape": [None], "range": [0, 1]}, "type": "int64"}
HEADER = re.compile("<header>.*</header>", re.DOTALL)


class Page(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def list_ids(self, *tags: str) -> list[str | None]:
        return [a["id"] for tag, a in self.tags if "id" in a and (not tags or tag in tags)]


def render_html(content: dict[str, Any], log: run_plots.TrainingLog = ()) -> str:
    return render.render_html(report_of(content), log)


def render_header(content: dict[str, Any]) -> str:
    """Return the top of report.html; plots, which take time, are left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svg, "draw_svg", lambda *_: "<svg></svg>")
        match = HEADER.search(render_html(content))
    assert match is not None
    return match[0]


def render_pages(content: dict[str, Any]) -> list[str]:
    """Return report.md, the top of report.html, and the summary on the console."""
    report = report_of(content)
    pages = [render.render_markdown(report), render.render_summary(report, (), ())]
    return [*pages, render_header(content)]


@pytest.fixture(scope="module")
def page() -> str:
    content, log = sample()
    return render_html(content, log)


@pytest.fixture
def report() -> dict[str, Any]:
    return sample()[0]


@pytest.fixture
def recurrent(report: dict[str, Any]) -> dict[str, Any]:
    """A report of a model with 192 layer weights among 30,144 weights."""
    report["model"] |= {"layer_elements": 192, "float_elements": 30_144}
    for network in ("pruned", "baseline"):
        report[network] |= {"compression": 5.05, "model_compression": 1.0052}
    return report


# ---- All pages ---------------------------------------------------------------------------------


def test_all_pages_have_compression_drop_and_interval(report: dict[str, Any]) -> None:
    for page in render_pages(report):
        for text in ("8.36×", "7.87×", "91.32", "0.45", "−0.04 to 0.94", "131"):
            assert text in page


def test_all_pages_have_the_comparison_with_the_baseline(report: dict[str, Any]) -> None:
    for page in render_pages(report):
        for text in ("90.41 %", "0.35 to 1.47", "4.43×", "3.20× and 5.10×", "1.89 times fewer"):
            assert text in page


def test_all_pages_without_baseline_name_only_ltp() -> None:
    for page in render_pages(sample(baseline=False)[0]):
        assert "global magnitude" not in page
        assert "LTP" in page


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gain": 2.6134, "gain_bound": "at least"}, "at least 2.61 times fewer"),
        ({"gain": 0.5, "gain_bound": "at most"}, "at least 2 times as many"),
        ({"gain": 0.8, "compression_at_equal_accuracy": 5.1}, "1.25 times as many"),
        ({"gain": 1.0, "compression_at_equal_accuracy": 5.1}, "the same number of weights"),
    ],
)
def test_all_pages_state_the_gain_in_weights(
    report: dict[str, Any], changes: dict[str, Any], expected: str
) -> None:
    report["baseline"] |= changes
    for page in render_pages(report):
        assert expected in page


def test_all_pages_better_baseline_comes_first(report: dict[str, Any]) -> None:
    report["difference"] = {"value": -0.005, "interval": [-0.011, 0.001]}
    for page in render_pages(report):
        ahead, compared = page.index("baseline is better"), page.index("90.41 %: LTP is 0.50")
        assert ahead < compared
        assert "--network baseline" not in page  # the test split chooses no network
        assert "due to chance" in page
    report["difference"]["interval"] = [-0.008, -0.002]
    assert not any("due to chance" in page for page in render_pages(report))


def test_all_pages_smaller_baseline_comes_first(report: dict[str, Any]) -> None:
    for page in render_pages(with_bounded_gain(report, "at most", 0.5)):
        assert page.index("baseline needs fewer weights") < page.index("8.36×, is still as good")


def test_all_pages_budget_names_the_search(report: dict[str, Any]) -> None:
    report["baseline"] |= {"budget": 0.01, "compression_at_equal_accuracy": 5.1, "gain": 1.64}
    report["pruned"]["num_trainings"] = 7
    for page in render_pages(report):
        assert "7 networks" in page
        assert "3 trainings" in page
        assert "ithin the same accuracy budget" in page


def test_all_pages_blocks_name_the_unstructured_baseline(report: dict[str, Any]) -> None:
    point = {"path": "baseline/single/model.packed.onnx", "accuracy": 0.9101, "sha256": "f" * 64}
    report["baseline"] |= {"method": "global-magnitude, in blocks", "unstructured": point}
    for page in render_pages(report):
        assert "in blocks" in page
        assert "91.01 %" in page
    assert point["path"] in render_html(report | NO_PLOTS).split('id="files"')[1]


@pytest.mark.parametrize("missing", ["gain", "curve", "accuracy", "compression_at_equal_accuracy"])
def test_all_pages_missing_value_is_no_error(report: dict[str, Any], missing: str) -> None:
    report["baseline"][missing] = None
    assert all(render_pages(report))


@pytest.mark.parametrize(
    "content",
    [{}, {"pruned": {}, "layers": [{}]}, {"pruned": {"files": []}, "gates": [], "baseline": None}],
)
def test_all_pages_almost_empty_report_is_no_error(content: dict[str, Any]) -> None:
    report = report_of(content)
    assert render.render_summary(report, (), ())
    for page in (render.render_markdown(report), render_html(content)):
        assert "not measured" in page


def test_all_pages_few_layer_weights_are_a_warning(recurrent: dict[str, Any]) -> None:
    markdown, summary, header = render_pages(recurrent)
    warnings = render.list_warnings(report_of(recurrent))
    assert len(warnings) == 1
    for text in (markdown, header, *warnings):
        assert "0.6 %" in text
        assert "1.01×" in text
    assert "30,144" in warnings[0]
    assert "1.01×" in summary
    assert render.list_warnings(report_of(sample()[0])) == []


def test_all_pages_unknown_model_compression_is_no_error(recurrent: dict[str, Any]) -> None:
    del recurrent["pruned"]["model_compression"], recurrent["model"]["float_elements"]
    assert all("5.05×" in page for page in render_pages(recurrent))


def test_list_warnings_has_budget_and_suspicious_improvement(report: dict[str, Any]) -> None:
    report |= {"budget_not_met": "over\nbudget", "suspicious_improvement": "too good"}
    assert render.list_warnings(report_of(report)) == ["over?budget", "too good"]
    assert all("budget is not met" in page for page in render_pages(report)[::2])


@pytest.mark.parametrize("name", ["agreement", "r2_vs_original"])
def test_all_pages_relative_metric_is_not_called_accuracy(
    report: dict[str, Any], name: str
) -> None:
    report |= {"metric": {"name": name}, "budget_not_met": "by a little", "notes": [], "gates": []}
    for page in render_pages(report):
        assert "accura" not in page.lower()
        assert "top-1" not in page.lower()
        assert "original" in page


def test_all_pages_argmax_agreement_is_an_extra_metric(report: dict[str, Any]) -> None:
    report["metric"] = {"name": "r2_vs_original"}
    for part, agreement in (("original", 1.0), ("pruned", 0.9876)):
        report[part]["accuracy"]["argmax_agreement"] = agreement
    for page in render_pages(report):
        assert "argmax agreement" in page
        assert "98.76 %" in page


def test_all_pages_other_metric_has_its_unit_and_direction() -> None:
    for page in render_pages(in_celsius()):
        assert "MAE, lower is better" in page
        assert "MAE rises by 0.0045 °C" in page or "2.587 °C" in page
        assert "LTP is 0.0091 °C better" in page
        assert not re.search("ccuracy|points|top-1", page.replace(">accuracy<", ""))


def test_result_improved_metric_does_not_drop() -> None:
    content = in_celsius()
    content["pruned"] |= {"drop": -0.02, "drop_interval": None}
    assert "MAE drops by 0.02 °C," in render.render_markdown(report_of(content))
    content = sample()[0]
    content["pruned"] |= {"drop": -0.002, "drop_interval": None}
    assert "op-1 accuracy rises by 0.20" in render.render_markdown(report_of(content))


def with_extra_metrics() -> dict[str, Any]:
    """A report in °C with two extra metrics; the name of one of them is hostile."""
    content = in_celsius()
    worst = {"name": "worst | <i>error</i>", "value": 12.3, "unit": "°C"}
    worst |= {"is_fraction": False, "higher_is_better": False}
    extra = [{"name": "R²", "value": 0.9512}, worst]
    for part in ("original", "pruned", "baseline"):
        content[part]["accuracy"]["extra_metrics"] = extra
    return content


def test_all_pages_extra_metrics_are_escaped() -> None:
    markdown, summary, header = render_pages(with_extra_metrics())
    assert "| R² | 95.12 % | 95.12 % |" in markdown
    assert "| worst \\| &lt;i&gt;error&lt;/i&gt;, lower is better | 12.3 °C | 12.3 °C |" in markdown
    assert "worst | &lt;i&gt;error&lt;/i&gt;, lower is better 12.3 °C" in header
    assert "worst | <i>error</i>, lower is better" in summary


@pytest.mark.parametrize("field", ["name", "unit"])
def test_all_pages_name_and_unit_of_the_metric_are_escaped(field: str) -> None:
    content = in_celsius()
    content["metric"][field] = "<script>alert(1)</script> | [x](http://y)\n# z\x07"
    markdown, summary, header = render_pages(content)
    for page in (markdown, header):
        assert "<script>alert" not in page
    assert "](http" not in markdown
    assert "\n# z" not in markdown
    assert "\\| \\[x\\]" in markdown
    assert "\x07" not in summary
    assert "\n# z" not in summary


# ---- report.md ---------------------------------------------------------------------------------


def test_render_markdown_fits_into_a_comment(report: dict[str, Any]) -> None:
    assert len(render.render_markdown(report_of(report))) < 4000


def test_render_markdown_has_table_layers_and_files(report: dict[str, Any]) -> None:
    page = render.render_markdown(report_of(report))
    assert "✅ passed" in page
    assert "| top-1 | 91.77 % | 91.32 % | 90.41 % |" in page
    assert "| compression, full model | 1× | 7.87× | 7.87× |" in page
    assert re.search(r"Most pruned layers: `stage3.block2.conv2.weight` \(4.4 %", page)
    assert re.search(r"Least pruned layers: `stage2.block0.shortcut.weight` \(67.8 %", page)
    assert "`model.sparse.onnx`, `model.packed.onnx`" in page


def test_render_markdown_failed_gates_come_before_the_table(report: dict[str, Any]) -> None:
    report["status"] = "failed"
    report["gates"][0] |= {"passed": False, "limit": 0.001, "advice": "raise the limit"}
    page = render.render_markdown(report_of(report))
    line = next(line for line in page.splitlines() if "**max_drop**" in line)
    for text in ("limit 0.001", "value 0.0045", "raise the limit"):
        assert text in line
    assert page.index(line) < page.index("| top-1")


def test_render_markdown_without_baseline_gives_the_reason() -> None:
    page = render.render_markdown(report_of(sample(baseline=False)[0]))
    assert "| top-1 | 91.77 % | 91.32 % |\n" in page
    assert "not asked for" in page


def test_render_markdown_names_are_no_markup(report: dict[str, Any]) -> None:
    report["model"]["name"] = f"{HOSTILE} | [x](y) @all\n# big"
    report["layers"] = [layer for layer in report["layers"] if layer["name"] == HOSTILE]
    report["layers"][0]["name"] = "a`b\n<img src=x>"
    report["data"]["inputs"] = {"in`put\n# x": {"sample_shape": [3, None]}}
    page = render.render_markdown(report_of(report))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\n# big" not in page
    assert "`a'b <img src=x>`" in page
    assert "`in'put # x` 3×?." in page


# ---- report.html -------------------------------------------------------------------------------


def test_render_html_has_every_section_and_plot(page: str) -> None:
    parsed = Page(page)
    assert parsed.list_ids("section") == SECTIONS
    assert parsed.list_ids("figure") == PLOTS
    assert 'class="no-plot"' not in page
    assert sum(tag == "svg" for tag, _ in parsed.tags) == len(PLOTS)


def test_render_html_ids_are_unique_and_references_resolve(page: str) -> None:
    ids = Page(page).list_ids()
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_render_html_header_has_status_and_baseline(page: str) -> None:
    match = HEADER.search(page)
    assert match is not None
    for text in ("✓ Passed", "1.1 MB", "1.36", "0.81 to 1.91"):
        assert text in match[0]


def test_render_html_failed_gates_are_in_the_header(report: dict[str, Any]) -> None:
    report["status"] = "failed"
    report["gates"][0] |= {"passed": False, "limit": 0.001}
    header = render_header(report)
    assert "✗ Failed" in header
    assert "limit 0.001, value 0.0045" in header


def quantize(content: dict[str, Any], bits: int = 7, **changes: Any) -> str:
    """Return the page of a run with an int8 file."""
    quantization = {"method": "entropy", "weight_bits": bits, "samples": 256, "num_layers": 9}
    quantization |= {"validation_drop": 0.0012, **changes}
    content["pruned"]["files"][1] |= {"graph": "int8", "quantization": quantization}
    content["environment"]["processor"] = "Some <b>processor</b>"
    return render_html(content | NO_PLOTS)


def test_render_html_int8_file_has_a_section(report: dict[str, Any]) -> None:
    page = quantize(report, float_layers={HOSTILE: "in 8 bits it costs too much accuracy"})
    assert Page(page).list_ids("section") == [*SECTIONS[:3], "int8", *SECTIONS[3:]]
    section = page.split('id="int8"')[1].split("</section>")[0]
    cells = re.findall("(?s)<tr><td>(.*?)</td>\\s*<td>(.*?)</td>\\s*</tr>", section)
    values = dict(cells)
    assert values["ranges of activations"] == "entropy, on 256 training samples"
    assert values["layers in 8 bits"] == "9"
    assert values["latency was measured on"] == "Some &lt;b&gt;processor&lt;/b&gt;"
    assert values["weights"].startswith("7 bits")
    assert "<code>&lt;script&gt;" in values["layers in float"]


def test_render_html_dynamic_int8_with_training(report: dict[str, Any]) -> None:
    page = quantize(report, 8, method="dynamic", samples=None, trained_epochs=3)
    assert "8 bits: sums may overflow" in page
    assert "training samples" not in page
    assert "<td>3</td>" in page


def test_render_html_text_is_escaped_everywhere(report: dict[str, Any]) -> None:
    _, log = sample()
    hostile = f"{HOSTILE}\" onload='x' $\\frac$"
    report["model"]["name"] = report["model"]["path"] = hostile
    report["notes"] = report["data"]["notes"] = [hostile]
    report["settings"] = {hostile: {hostile: hostile}}
    report["timings"] = {hostile: 1.0}
    report["environment"]["platform"] = hostile
    report["gates"][0] |= {"name": hostile, "detail": hostile, "passed": False}
    report["pruned"]["files"][0]["path"] = hostile.replace("\\", "")
    report["pruned"]["reasons"] = {hostile: hostile}
    preprocessing = MASK | {"mask_of": hostile}
    report["data"]["inputs"] = {
        hostile: {"preprocessing_steps": [hostile], "preprocessing": preprocessing}
    }
    report["scatter"]["name"] = report["histograms"][0]["name"] = hostile
    report["trail"][0]["file"] = hostile.replace("\\", "")
    for number, layer in enumerate(report["layers"]):
        layer["name"] = f"{hostile}{number}"
        layer["op"] = layer["reason"] = hostile
    for line in log:
        if "thresholds" in line:
            line["thresholds"] = {hostile: 1e-4 * (line["step"] + 1)}
    page = render_html(report, log)
    parsed = Page(page)
    assert [attrs for tag, attrs in parsed.tags if tag == "script"] == [{}]
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)
    assert "&lt;script&gt;alert(1)" in page


def test_render_html_data_section_describes_each_input(report: dict[str, Any]) -> None:
    ids = {"type": "int32", "shape": [None], "range": [3, 9], "lengths": [2, 6]}
    image = {"type": "uint8", "shape": [4, 5], "range": [0, 255]}
    steps = {"scale": 0.5, "mean": [1.0, 2.0], "std": [3.0]}
    report["data"]["inputs"] = {
        "ids": {"preprocessing_steps": ["pad"], "preprocessing": {"stored": ids, "pad": 0}},
        "mask": {"preprocessing_steps": [], "preprocessing": MASK | {"mask_of": "ids"}},
        "pixels": {
            "preprocessing": {"stored": image, "image": {"mode": "L", "size": [4, 5]}} | steps
        },
        "unknown": {"sample_shape": [None, 7]},
    }
    page = render_html(report | NO_PLOTS)
    section = page[page.index('<section id="data">') :].partition("</section>")[0]
    assert "<td>samples for test</td><td>10\u202f000</td>" in section
    rows = dict(re.findall("(?s)<tr><td>input (.*?)</td><td>(.*?)</td></tr>", section))
    assert "2 to 6 <code>int32</code>, values 3 to 9" in rows["ids"]
    assert "<li>pad</li>" in rows["ids"]
    assert "1 at values of <code>ids</code> and 0 at its padding" in rows["mask"]
    assert "image files" in rows["pixels"]
    assert "<code>4×5</code>" in rows["pixels"]
    for number in ("0.5", "1, 2, one per channel", "deviation 3<"):
        assert number in rows["pixels"]
    assert "?×7" in rows["unknown"]


def test_render_html_loads_nothing(page: str) -> None:
    assert len(page.encode()) < 3_000_000
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "@import" not in page
    assert "default-src 'none'" in page
    spaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) <= spaces


@pytest.mark.slow
def test_render_html_another_process_gives_the_same_bytes(page: str) -> None:
    code = (
        "from ltp_pipeline.stages.report.render import render_html; import sys; "
        "from tests.support.sample_report import report_of, sample; content, log = sample(); "
        "sys.stdout.buffer.write(render_html(report_of(content), log).encode())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert other.stdout == page.encode()


def test_render_html_missing_plots_give_reasons(report: dict[str, Any]) -> None:
    report["pruned"]["compression"] = None
    page = render_html(one_point(report) | NO_PLOTS | {"layers": [], "baseline": None})
    assert Page(page).list_ids("figure") == []
    assert page.count('class="no-plot"') == len(PLOTS)


def test_render_html_null_values_have_reasons(report: dict[str, Any]) -> None:
    for part in ("original", "pruned"):
        report[part]["reasons"] = {"accuracy.top5": "there are five classes or fewer"}
    header = render_header(report)
    assert "accuracy.top5 (original, LTP): there are five classes or fewer" in header


@pytest.mark.slow
def test_render_html_large_network_stays_small(report: dict[str, Any]) -> None:
    _, log = sample()
    layer = report["layers"][5]
    report["layers"] = [layer | {"name": f"layer{i}.weight"} for i in range(400)]
    thresholds = {f"l{number}": 1e-4 for number in range(100)}
    log = [line | {"step": i, "thresholds": thresholds} for i, line in enumerate(log * 10)]
    assert len(render_html(report, log)) < 3_000_000


def test_render_html_unusual_values_are_no_error(report: dict[str, Any]) -> None:
    _, log = sample()
    report["layers"][3] |= {"nonzeros": 0, "baseline_nonzeros": 0, "name": "层"}
    report["trail"] = report["trail"][:1]
    for line in log:
        line["loss"] = None
    assert "层" in render_html(report, log)


def test_render_html_blocks_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "draw_svg", lambda *_: "<svg></svg>")
    content, log = sample(baseline=False)
    assert "In blocks" not in render_html(content, log)
    content["layers"][1]["block"] = "4x1"
    page = render_html(content, log)
    assert page.count("pruned in 4x1 blocks") == 1
    assert page.count("In blocks") == 3


# ---- Summary -----------------------------------------------------------------------------------


def test_render_summary_lists_gates_reasons_and_paths(report: dict[str, Any]) -> None:
    report["pruned"]["reasons"] = {"files.int8": "no layer can be quantized"}
    content: Report = report_of(report)
    lines = render.render_summary(content, content.gates, [Path("run/a.onnx")]).splitlines()
    assert "run/a.onnx" in lines
    assert any(line.startswith("passed  max_drop") for line in lines)
    assert any("int8" in line and "no layer can be quantized" in line for line in lines)


def test_render_summary_without_gates_lists_none(report: dict[str, Any]) -> None:
    assert "max_drop" not in render.render_summary(report_of(report), (), ())


def test_render_summary_columns_are_aligned(report: dict[str, Any]) -> None:
    lines = render.render_summary(report_of(report), (), ()).split("\n\n")[0].splitlines()
    assert len({len(line) for line in lines}) == 1


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"kind": "multiply-adds", "requested": 0.1, "measured": 0.099, "is_met": True}, "9.9 %"),
        (
            {"kind": "bytes", "requested": 20000.0, "measured": 19999.0, "is_met": True},
            "19",
        ),
        (
            {
                "kind": "latency",
                "requested": 0.5,
                "predicted": 0.495,
                "measured": 0.56,
                "measured_quartiles": [0.52, 0.6],
                "is_met": False,
            },
            "between 0.52 and 0.6), and 0.495 was predicted",
        ),
        ({"kind": "latency", "requested": 0.5}, "was not measured"),
    ],
)
def test_all_pages_tell_whether_a_cost_budget_is_met(
    report: dict[str, Any], budget: dict[str, Any], expected: str
) -> None:
    for page in render_pages(report | {"cost_budget": budget}):
        text = " ".join(page.split(" "))
        assert expected in text
        if not budget.get("is_met", True):
            assert "is not met" in text
