"""The page in a real browser."""

import base64
import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ltp_pipeline.stages.report.render import render_html
from tests.support.sample_report import HOSTILE, report_of, sample

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]


def page() -> str:
    content, log = sample()
    return render_html(report_of(content), log)


def browse(folder: Path, page: str, script: str = "", width: int = 1280) -> tuple[str, str]:
    """Load the page, run a script in it, and return the document and what the console said."""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        page = page.replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
        page = page.replace("</body>", f"<script>{script}</script></body>")
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    options = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --enable-logging=stderr"
    command = [
        str(CHROMIUM),
        *options.split(),
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def test_report_loads_without_console_errors(tmp_path: Path) -> None:
    document, console = browse(tmp_path, page())
    assert console == ""
    assert HOSTILE not in document


def test_console_errors_are_noticed(tmp_path: Path) -> None:
    _, console = browse(tmp_path, page(), "missing()")
    assert "missing is not defined" in console


@pytest.mark.parametrize(
    ("column", "clicks", "first"),
    [
        ("Density", 1, "stage3.block2.conv2.weight"),
        ("Density", 2, "stem.conv.weight"),
        ("Weights", 2, "stage3.block1.conv1.weight"),
        ("Layer", 1, HOSTILE),
        ("Threshold", 1, "stage1.block2.conv1.weight"),
        ("#", 1, "head.fc.weight"),
    ],
)
def test_report_layers_can_be_sorted(tmp_path: Path, column: str, clicks: int, first: str) -> None:
    script = (
        f"const b = [...document.querySelectorAll('th button')].find(x => x.textContent.startsWith('{column}'));"
        f"for (let i = 0; i < {clicks}; i++) b.click();"
        "const t = b.closest('table');"
        "document.title = JSON.stringify([t.tBodies[0].rows[0].cells[1].dataset.value, t.tBodies[0].rows.length]);"
    )
    document, console = browse(tmp_path, page(), script)
    title = re.search(r"<title>(.*?)</title>", document)
    assert console == ""
    assert title is not None
    shown = first.replace("<", "&lt;").replace(">", "&gt;")
    assert title[1] == f'["{shown}",{len(sample()[0]["layers"])}]'


@pytest.mark.parametrize("width", [500, 800, 1280])
def test_report_fits_into_the_window(tmp_path: Path, width: int) -> None:
    script = (
        "document.title = document.documentElement.scrollWidth <= innerWidth ? 'fits' : 'too wide'"
    )
    document, _ = browse(tmp_path, page(), script, width)
    assert "<title>fits</title>" in document
