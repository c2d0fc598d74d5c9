"""report.html: complete, harmless, the same bytes every time."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from ltp_pipeline.stages.report import html, plots
from tests.support.sample_report import HOSTILE, one_point, report_of, sample

SECTIONS = ["pictures", "layers", "gates", "data", "settings", "environment", "timings", "files"]
PICTURES = [
    "curve",
    "trail",
    "sizes",
    "thresholds",
    "training",
    "histograms",
    "scatter",
    "layers-picture",
]


NO_PICTURES: dict[str, Any] = {
    "trail": [],
    "sizes": {},
    "histograms": [],
    "scatter": None,
}  # saves time

MASK = {"stored": {"type": "bool", "shape": [None], "range": [0, 1]}, "type": "int64"}


class Page(HTMLParser):
    """Collects tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def ids(self, *tags: str) -> list[str | None]:
        return [a["id"] for t, a in self.tags if "id" in a and (not tags or t in tags)]


def render(content: dict[str, Any], log: plots.Log) -> str:
    return html.render(report_of(content), log)


@pytest.fixture(scope="module")
def page() -> str:
    return render(*sample())


def test_every_section_and_picture_is_there(page: str) -> None:
    parsed = Page(page)
    assert parsed.ids("section") == SECTIONS
    assert parsed.ids("figure") == PICTURES
    assert "Left out" not in page
    assert sum(tag == "svg" for tag, _ in parsed.tags) == len(PICTURES)


def in_8_bits(bits: int = 7, **how: Any) -> str:
    """The page of a run whose second file computes in 8 bits."""
    content = sample()[0] | NO_PICTURES
    given = {
        "method": "entropy",
        "weight_bits": bits,
        "samples": 256,
        "num_layers": 9,
        "validation_drop": 0.0012,
        **how,
    }
    content["pruned"]["files"][1] |= {"graph": "int8", "quantization": given}
    content["environment"]["processor"] = "Some <b>processor</b>"
    return render(content, [])


def test_how_a_file_came_to_8_bits_is_told_in_a_section_of_its_own() -> None:
    page = in_8_bits(float_layers={HOSTILE: "in 8 bits it costs too much accuracy"})
    assert Page(page).ids("section") == [*SECTIONS[:3], "int8", *SECTIONS[3:]]
    cells = dict(re.findall("<tr><td>(LTP: .*?|latency was.*?)</td><td>(.*?)</td></tr>", page))
    assert cells == {
        "LTP: ranges of activations": "entropy, on 256 training samples",
        "LTP: weights": "7 bits: sums cannot overflow",
        "LTP: kernels in 8 bits": "9",
        "LTP: drop against the float file, validation split": "0.12 points",
        "LTP: trained in 8 bits": "no",
        "LTP: still float: &lt;script&gt;alert(1)&lt;/script&gt;": "in 8 bits it costs too much accuracy",
        "latency was measured on": "Some &lt;b&gt;processor&lt;/b&gt;",
    }


def test_ranges_found_at_every_run_eight_bits_and_training_are_told() -> None:
    page = in_8_bits(8, method="dynamic", samples=None, trained_epochs=3)
    assert "<td>found at every run</td>" in page
    assert "8 bits: sums may overflow on x86 without VNNI" in page
    assert "<td>3 epochs</td>" in page


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    ids = Page(page).ids()
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', page)) <= set(ids)


def test_the_top_has_what_decides(page: str) -> None:
    top = page[page.index("<header>") : page.index("</header>")]
    for told in (
        "✓ Passed",
        "8.36× / 7.87×",
        "0.45 points",
        "−0.04 to 0.94",
        "1.1 MB",
        "131 kB",
        "1.36 points",
        "0.81 to 1.91",
    ):
        assert told in top


def test_failing_gates_stand_at_the_top() -> None:
    report, _ = sample()
    report["status"] = "failed"
    report["gates"][0] |= {"passed": False, "limit": 0.001}
    top = render(report | NO_PICTURES, []).split("</header>")[0]
    assert "✗ Failed" in top
    assert "limit 0.001, value 0.0045" in top


def test_text_is_escaped_everywhere() -> None:
    report, log = sample()
    hostile = f"{HOSTILE}\" onload='x' $\\frac$"
    report["model"]["name"] = report["model"]["path"] = hostile
    report["notes"] = report["data"]["notes"] = [hostile]
    report["settings"] = {hostile: {hostile: hostile}}
    report["timings"] = {hostile: 1.0}
    report["environment"]["platform"] = hostile
    report["gates"][0] |= {"name": hostile, "detail": hostile, "passed": False}
    report["pruned"]["files"][0]["path"] = hostile.replace("\\", "")
    report["pruned"]["reasons"] = {hostile: hostile}
    report["data"]["inputs"] = {
        hostile: {"preprocessing_steps": [hostile], "preprocessing": MASK | {"mask_of": hostile}}
    }
    report["scatter"]["name"] = report["histograms"][0]["name"] = hostile
    report["trail"][0]["file"] = hostile.replace("\\", "")
    for layer in report["layers"]:
        layer["name"] = layer["op"] = layer["reason"] = hostile
    for line in log:
        if "thresholds" in line:
            line["thresholds"] = {hostile: 1e-4 * (line["step"] + 1)}
    text = render(report, log)
    parsed = Page(text)
    assert [attrs for tag, attrs in parsed.tags if tag == "script"] == [{}]
    assert not any(name.startswith("on") for _, attrs in parsed.tags for name in attrs)
    assert "&lt;script&gt;alert(1)" in text


def test_every_input_is_told_with_what_it_is_made_of() -> None:
    report, log = sample()
    ids = {"type": "int32", "shape": [None], "range": [3, 9], "lengths": [2, 6]}
    report["data"]["inputs"] = {
        "ids": {
            "sample_shape": [None],
            "preprocessing_steps": ["fill up"],
            "preprocessing": {"stored": ids, "pad": 0},
        },
        "mask": {
            "sample_shape": [None],
            "preprocessing_steps": [],
            "preprocessing": MASK | {"mask_of": "ids"},
        },
    }
    text = render(report | NO_PICTURES, log)
    section = text[text.index('<section id="data">') :].partition("</section>")[0]
    assert "<td>samples for test</td><td>10\u202f000</td>" in section
    assert (
        "<td>input ids</td><td>sequences of 2 to 6 int32, values from 3 to 9; fill up; taken as ?</td>"
        in section
    )
    assert (
        "<td>input mask</td><td>made, not stored: 1 where sequences of ids have values" in section
    )


def test_needs_no_network(page: str) -> None:
    assert len(page.encode()) < 3_000_000
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\"'<> ]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


@pytest.mark.slow
def test_same_bytes_in_another_process(page: str) -> None:
    code = "from tests.unit.stages.report.test_html import render, sample; import sys; "
    code += "sys.stdout.buffer.write(render(*sample()).encode())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert other.stdout == page.encode()


def test_user_style_has_no_say(page: str) -> None:
    from matplotlib import rc_context

    with rc_context({"font.size": 30, "lines.linewidth": 9}):
        assert render(*sample()) == page


def test_colours_follow_the_page(page: str) -> None:
    svg = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert "var(--learned)" in svg
    assert "#000000" not in svg
    assert not re.search(r"#0[1-5]0[1-5]0[1-5]", svg)


def test_a_picture_without_data_says_why() -> None:
    text = render(one_point(sample()[0]) | NO_PICTURES | {"layers": []}, [])
    assert Page(text).ids("figure") == []
    for sentence in (
        "the run kept no trail",
        "no file sizes are known",
        "no histograms were taken",
        "no weights were sampled",
        "no layer was counted",
        "the log holds no losses",
        "the log holds no thresholds",
    ):
        assert f"Left out: {sentence}." in text


def test_without_a_baseline() -> None:
    assert "no baseline: not asked for" in render(sample(baseline=False)[0] | NO_PICTURES, [])


@pytest.mark.parametrize(
    "report", [{}, {"status": "no-gates", "pruned": {}, "baseline": None, "layers": [{}]}]
)
def test_an_almost_empty_report_is_rendered(report: dict[str, Any]) -> None:
    assert "not measured completely" in render(report, [])


def test_what_was_not_measured_has_its_reason() -> None:
    report = sample()[0] | NO_PICTURES
    for part in ("original", "pruned"):
        report[part]["reasons"] = {"accuracy.top5": "there are five classes or fewer"}
    report["baseline"]["reasons"] = {
        "curve": "one point was measured",
        "gain": "one point was measured",
    }
    page = render(report, [])
    assert "accuracy.top5 (original, LTP) not measured: there are five classes or fewer" in page
    assert "curve, gain (global magnitude) not measured: one point was measured" in page


@pytest.mark.slow
def test_a_large_network_stays_small() -> None:
    report, log = sample()
    layer = report["layers"][5]
    report["layers"] = [layer | {"name": f"layer{i}.weight"} for i in range(400)]
    log = [
        line | {"step": i, "thresholds": {f"l{k}": 1e-4 for k in range(100)}}
        for i, line in enumerate(log * 10)
    ]
    assert len(render(report, log)) < 3_000_000


def test_unusual_values_are_drawn() -> None:
    report, log = sample()
    report["scatter"] |= {"before": [0.0, 1e-3, 1e-3], "after": [0.0, 0.0, 2e-3], "threshold": None}
    report["layers"][3] |= {"nonzeros": 0, "baseline_nonzeros": 0, "name": "层"}
    report["trail"] = report["trail"][:1]
    for line in log:
        line["loss"] = None
    assert "层" in render(report, log)


def test_layers_in_blocks_are_marked_and_pictures_say_what_the_threshold_is_on(monkeypatch) -> None:
    monkeypatch.setattr(plots, "svg", lambda *_: "<svg></svg>")
    report, log = sample(baseline=False)
    assert "In blocks" not in render(report, log)
    report["layers"][1]["block"] = "4x1"
    page = render(report, log)
    assert page.count("pruned in 4x1 blocks") == 1
    assert page.count("In blocks, the mean of their squares counts.") == 3
