"""Types that torch and the graph package share."""

from ltp_pipeline.graph.tensors import NUMBER_TYPES
from ltp_pipeline.stages.import_model import network, operators, registry  # noqa: F401 - filled
from ltp_pipeline.stages.import_model.values import TORCH_TYPES


def test_number_types_are_those_of_torch() -> None:
    assert set(TORCH_TYPES) == NUMBER_TYPES
