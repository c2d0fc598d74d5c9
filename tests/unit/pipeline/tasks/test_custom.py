"""Custom tasks that are loaded from files and objects."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.results.metric import Metric
from ltp_pipeline.tasks.custom import CustomTask


def write_file(folder: Path, text: str) -> Path:
    path = folder / "my_task.py"
    path.write_text(text)
    return path


def test_load_fingerprint_of_a_file_changes_with_its_content(tmp_path: Path):
    first = CustomTask.load(write_file(tmp_path, "def dataset(split): return [1]")).fingerprint
    second = CustomTask.load(write_file(tmp_path, "def dataset(split): return [2]")).fingerprint
    assert first != second


def test_load_file_may_contain_an_object(tmp_path: Path):
    path = write_file(tmp_path, "class T:\n    def dataset(self, split): ...\ntask = T()\n")
    assert CustomTask.load(path).has_function("dataset")


def test_load_random_numbers_of_a_file_repeat(tmp_path: Path):
    text = "import numpy as np\ntable = np.random.rand(3)\ndef dataset(split): return table\n"
    path = write_file(tmp_path, text)
    first, second = (CustomTask.load(path).code.table for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("def dataset(split: return 1", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
        ("x = 1", "dataset"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("raise SystemExit", "SystemExit"),
    ],
)
def test_load_unusable_file_raises_input_error(tmp_path: Path, text: str, part: str):
    with pytest.raises(InputError) as caught:
        CustomTask.load(write_file(tmp_path, text))
    assert "my_task.py" in caught.value.message
    assert caught.value.message.endswith(part) or part in caught.value.message


@pytest.mark.parametrize("name", ["missing.py", "folder"])
def test_load_path_that_is_not_a_file_names_the_option(tmp_path: Path, name: str):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError) as caught:
        CustomTask.load(tmp_path / name)
    assert "--task" in caught.value.hint


def test_load_object_without_dataset_raises_input_error():
    with pytest.raises(InputError) as caught:
        CustomTask.load(SimpleNamespace(loss=len))
    assert "dataset(split)" in caught.value.hint


@pytest.mark.parametrize(
    ("parts", "name", "kind"),
    [
        ({"metric": "WER"}, "metric", "text"),
        ({"metric": Metric}, "metric", "the class Metric"),
        ({"loss": "mse"}, "loss", "text"),
    ],
)
def test_load_part_of_another_kind_names_it(parts: Any, name: str, kind: str):
    with pytest.raises(InputError) as caught:
        CustomTask.load(SimpleNamespace(dataset=len, **parts))
    assert re.search(rf"\b{name}\b.*\bSimpleNamespace\b.*\b{kind}", caught.value.message)
    assert name in caught.value.hint


def test_load_class_suggests_an_object():
    class Mine:
        def dataset(self, split: str) -> Any: ...

    with pytest.raises(InputError) as caught:
        CustomTask.load(Mine)
    assert "Mine()" in caught.value.hint
