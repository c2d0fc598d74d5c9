"""Registered operators: versions, attributes and defaults."""

import inspect

import pytest
from onnx import defs, helper

from ltp_pipeline.graph.schemas import get_schema_version
from ltp_pipeline.stages.import_model import network, registry  # noqa: F401 - fills the registry
from ltp_pipeline.stages.import_model.registry import (
    CONTEXT_KEYWORDS,
    OpImplementation,
    find_op,
    iter_ops,
    op,
)
from ltp_pipeline.stages.import_model.unsupported import OLDEST_OPSET


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove what a test registers."""
    monkeypatch.setattr(
        registry, "_OPS", {key: list(versions) for key, versions in registry._OPS.items()}
    )


def test_second_registration_is_rejected() -> None:
    with pytest.raises(ValueError, match="Relu"):
        op("Relu")(lambda x: x)


def test_two_versions_are_registered() -> None:
    op("Relu", since=14)(lambda x: x)
    assert [o.since for o in iter_ops() if o.name == "Relu"] == [1, 14]


@pytest.mark.parametrize(
    ("name", "opset", "since"),
    [
        ("Clip", 7, 1),
        ("Clip", 10, 1),
        ("Clip", 11, 11),
        ("Clip", 13, 11),
        ("Softmax", 12, 1),
        ("Softmax", 13, 13),
        ("ReduceMean", 17, 1),
        ("ReduceMean", 18, 1),
        ("Resize", 10, 1),
        ("Resize", 19, 11),
        ("DFT", 19, 1),
        ("DFT", 20, 20),
        ("RoiAlign", 15, 1),
        ("RoiAlign", 16, 16),
        ("GridSample", 16, 1),
        ("GridSample", 20, 20),
    ],
)
def test_find_op_returns_the_newest_version_of_the_schema(
    name: str, opset: int, since: int
) -> None:
    implementation = find_op(name, opset)
    assert implementation is not None
    assert implementation.since == since


def test_find_op_returns_none_before_the_first_version() -> None:
    assert get_schema_version("Gelu", 19) is None
    assert find_op("Gelu", 19) is None
    assert find_op("Gelu", 20) is not None


def test_find_op_returns_none_for_an_unknown_operator() -> None:
    assert find_op("NoSuchOperator", 17) is None
    assert find_op("Relu", 17, "com.example") is None


def test_find_op_accepts_both_spellings_of_the_standard_domain() -> None:
    assert find_op("Relu", 17, "ai.onnx") is find_op("Relu", 17)


def test_context_keywords_are_not_attributes() -> None:
    implementation = find_op("BatchNormalization", 14)
    assert implementation is not None
    assert implementation.context == {"training", "n_outputs"}
    assert not CONTEXT_KEYWORDS & implementation.attributes.keys()


def _schemas(implementation: OpImplementation) -> list[defs.OpSchema]:
    """Return the versions of the standard that an implementation runs."""
    history = [
        s
        for s in defs.get_all_schemas_with_history()
        if s.name == implementation.name and s.domain == ""
    ]
    newest_old = max(
        (s.since_version for s in history if s.since_version <= OLDEST_OPSET), default=0
    )
    candidates = [s for s in history if s.since_version >= newest_old]
    return [s for s in candidates if find_op(s.name, s.since_version) is implementation]


# onnx has no schema of what onnxruntime adds to the standard domain.
STANDARD = [o for o in iter_ops() if o.domain == "" and o.name != "SimplifiedLayerNormalization"]


@pytest.mark.parametrize("implementation", STANDARD, ids=lambda o: f"{o.name}-{o.since}")
def test_attributes_and_defaults_equal_the_standard(implementation: OpImplementation) -> None:
    schemas = _schemas(implementation)
    assert schemas, "no model can mean this version"
    keywords = inspect.signature(implementation.function).parameters
    names = {name for schema in schemas for name in schema.attributes}
    assert implementation.attributes.keys() <= names
    for schema in schemas:
        for name, attribute in schema.attributes.items():
            assert name in keywords, f"version {schema.since_version} has the attribute {name}"
            actual = keywords[name].default
            if attribute.required:
                assert actual is inspect.Parameter.empty or len(schemas) > 1
            elif attribute.default_value.name:
                default = helper.get_attribute_value(attribute.default_value)
                if isinstance(default, bytes):
                    default = default.decode()
                elif isinstance(default, list):
                    default = [d.decode() if isinstance(d, bytes) else d for d in default]
                    actual = list(actual)
                assert actual == pytest.approx(default), name
            else:
                assert actual is not inspect.Parameter.empty, f"{name} is optional"
