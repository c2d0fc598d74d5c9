import re
from pathlib import Path

import onnxruntime
import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.exporters.sparse_ops import library


def test_make_build_command_names_every_source():
    words = library.make_build_command(Path("made.so"), "g++ -m64")
    assert words[:2] == ["g++", "-m64"]
    assert {Path(word).name for word in words if word.endswith(".cpp")} == {
        p.name for p in library.SOURCE.glob("*.cpp")
    }


def test_sparse_ops_library_not_built_raises_input_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "FILE_NAME", "nothing.so")
    with pytest.raises(InputError) as error:
        library.sparse_ops_library()
    assert library.BUILD_COMMAND in error.value.hint


def test_build_library_without_compiler_raises_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="'no-such-compiler'"):
        library.build_library(tmp_path / "made.so", "no-such-compiler")


def test_build_library_with_failing_compiler_leaves_no_file(tmp_path: Path):
    with pytest.raises(InputError) as error:
        library.build_library(tmp_path / "made.so", "false")
    assert "GCC" in error.value.hint
    assert list(tmp_path.iterdir()) == []


def test_query_of_text_file_raises_input_error(tmp_path: Path):
    (tmp_path / "made.so").write_text("no library")
    with pytest.raises(InputError, match=r"made\.so"):
        library.query_instruction_sets(tmp_path / "made.so")


def test_query_of_other_library_raises_input_error():
    with pytest.raises(InputError, match="ltp_kernels_sources"):
        library.query_instruction_sets(Path(onnxruntime.capi.onnxruntime_pybind11_state.__file__))


def test_query_of_truncated_library_raises_input_error(kernels: Path, tmp_path: Path):
    cut = tmp_path / kernels.name
    cut.write_bytes(kernels.read_bytes()[:20000])
    with pytest.raises(InputError, match=re.escape(str(cut))):
        library.query_instruction_sets(cut)


def test_query_of_library_of_other_sources_raises_input_error(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(library, "hash_sources", lambda: "another")
    with pytest.raises(InputError, match=r"\bsources\b") as error:
        library.query_instruction_sets(kernels)
    assert library.BUILD_COMMAND in error.value.hint


def test_hash_sources_depends_on_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("a.cpp", "b.h"):
        (tmp_path / name).write_text("int x;")
    monkeypatch.setattr(library, "SOURCE", tmp_path)
    result = {library.hash_sources()}
    for name in ("a.cpp", "b.h"):
        (tmp_path / name).write_text("int y;")
        result.add(library.hash_sources())
    assert len(result) == 3


def test_build_library_in_unwritable_folder_raises_input_error(tmp_path: Path):
    with pytest.raises(InputError, match="nowhere"):
        library.build_library(tmp_path / "nowhere" / "made.so", "true")


def test_query_returns_instruction_set_of_processor(kernels: Path):
    result = library.query_instruction_sets(kernels)
    assert result.chosen in ("avx512", "avx2", "neon", "portable")
    assert "portable" not in result.rejected


def test_query_uses_instruction_set_of_environment(kernels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(library.INSTRUCTION_SET_VARIABLE, "portable")
    assert library.query_instruction_sets(kernels).chosen == "portable"


def test_query_ignores_empty_environment_variable(kernels: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(library.INSTRUCTION_SET_VARIABLE, raising=False)
    best = library.query_instruction_sets(kernels)
    monkeypatch.setenv(library.INSTRUCTION_SET_VARIABLE, "")
    assert library.query_instruction_sets(kernels) == best


def test_query_of_unknown_instruction_set_raises_input_error(
    kernels: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(library.INSTRUCTION_SET_VARIABLE, "unknown")
    with pytest.raises(InputError, match="'unknown'") as error:
        library.query_instruction_sets(kernels)
    assert library.INSTRUCTION_SET_VARIABLE in error.value.message
    assert error.value.hint.endswith("portable")
