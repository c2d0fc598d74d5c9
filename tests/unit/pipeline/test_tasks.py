"""Which task a model and its data ask for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ltp_pipeline.errors import InputError
from ltp_pipeline.tasks import find_task
from tests.support.models import one_node_each


def test_labels_ask_for_class_scores():
    with pytest.raises(InputError, match="no class score"):
        find_task(SimpleNamespace(classes=3), one_node_each("Gemm"), [(2, 1)], 2)
