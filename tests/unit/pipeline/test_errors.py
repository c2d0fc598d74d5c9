"""Errors: what they keep across processes, and how long their messages are."""

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ltp_pipeline.data.matching import UnusedColumnError
from ltp_pipeline.errors import (
    GateFailed,
    InputError,
    LtpError,
    TaskFailed,
    UnsupportedModel,
    summarize_error,
)
from ltp_pipeline.results.consistency import ContradictionError

# Arguments of the classes that do not take a message and a hint alone.
ARGUMENTS: dict[type[LtpError], tuple[Any, ...]] = {
    TaskFailed: ("message", "hint", "their line 3"),
    UnsupportedModel: ("message", "hint", ["an operator", "another"]),
    ContradictionError: ("key", 1, 2),
    UnusedColumnError: ("message", "hint", ("colour", "shape")),
}


def iter_error_classes(root: type[LtpError] = LtpError) -> Iterator[type[LtpError]]:
    """Yield every class of errors that is loaded."""
    yield root
    for error_class in root.__subclasses__():
        yield from iter_error_classes(error_class)


@pytest.mark.parametrize("error_class", iter_error_classes())
def test_error_is_the_same_after_pickling(error_class: type[LtpError]) -> None:
    error = error_class(*ARGUMENTS.get(error_class, ("message", "hint")))
    restored = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(restored) is error_class
    assert (str(restored), restored.args) == (str(error), error.args)
    assert vars(restored) == vars(error)
    assert (restored.message, restored.hint) == (error.message, error.hint)


def test_message_is_one_short_line_whatever_the_name() -> None:
    error = InputError(f"tensor '{'n' * 10**6}\n\x1b[31m' has no values", "get it again")
    assert len(error.message) <= 500
    assert error.message.isprintable()
    assert error.message.startswith("tensor 'nnn")
    assert error.message.endswith("' has no values")
    assert len(UnsupportedModel("message", "hint", ["n" * 10**6]).reasons[0]) <= 500


def test_message_of_gate_failed_keeps_its_lines() -> None:
    assert GateFailed("one\ntwo", "hint").message == "one\ntwo"


def test_summarize_error_returns_the_first_line_or_the_class() -> None:
    assert summarize_error(ValueError("\nfirst\nsecond")) == "first"
    assert summarize_error(ValueError()) == "ValueError"
    assert len(summarize_error(ValueError("n" * 10**6))) <= 300
