"""The wheel holds the package and nothing else, and works far from the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ltp_pipeline.exporters.sparse_ops import library
from tests.support.paths import ROOT


@pytest.mark.long
def test_wheel_holds_only_the_package_and_runs(tmp_path: Path):
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    assert {n.split("/")[0].split("-")[0] for n in names} == {"ltp_pipeline"}
    assert {"ltp_pipeline/demo/model.onnx", "ltp_pipeline/py.typed"} <= set(names)
    assert "ltp_pipeline/exporters/sparse_ops/source/ops.cpp" in names
    pages = {"macros.j2", "report.html.j2", "report.css", "report.js"}
    assert {f"ltp_pipeline/stages/report/{name}" for name in pages} <= set(names)
    templates = {"handoff/HANDOFF.md.j2", "tools/ltp.toml.j2", "tools/init.txt.j2"}
    assert {f"ltp_pipeline/stages/{name}" for name in templates} <= set(names)
    if shutil.which("c++"):
        assert f"ltp_pipeline/exporters/sparse_ops/{library.FILE_NAME}" in names
        assert "-py3-none-" in wheel.name
        assert not wheel.name.endswith("-any.whl")
    code = (
        f"import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import ltp_pipeline.cli.app\n"
        f"assert ltp_pipeline.__file__.startswith({str(tmp_path)!r}), ltp_pipeline.__file__\n"
        "sys.argv = ['ltp-pipeline', 'inspect', 'example/model.onnx', '--json']\n"
        "from ltp_pipeline.demo import copy_example; from pathlib import Path; copy_example(Path('example'))\n"
        "ltp_pipeline.cli.app.main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert '"layer_elements": 77072' in result.stdout


@pytest.mark.long
def test_wheel_without_compiler_is_for_every_platform(
    tmp_path: Path,
):
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(
        build, check=True, capture_output=True, text=True, env={**os.environ, "CXX": "no-compiler"}
    )
    assert "sparse operators" in done.stdout + done.stderr
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert not [n for n in archive.namelist() if n.endswith(library.FILE_NAME)]
        archive.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
        f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import ltp_pipeline.cli.app; sys.argv = ['ltp-pipeline', 'sparse-ops']; ltp_pipeline.cli.app.main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 3
    assert library.BUILD_COMMAND in result.stderr
