"""Errors cross from one process to another as they are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ltp_pipeline.data.images.collection import BrokenSamples
from ltp_pipeline.data.matching import UnusedColumnError
from ltp_pipeline.errors import GateFailed, InputError, LtpError, TaskFailed, UnsupportedModel

MORE: dict[type[LtpError], tuple[Any, ...]] = {
    TaskFailed: ("what", "remedy", "their line 3"),
    UnsupportedModel: ("what", "remedy", ["an operator", "another"]),
    BrokenSamples: ([3, 5], "what", "remedy"),
    UnusedColumnError: ("what", "remedy", ("colour", "shape")),
}


def kinds(root: type[LtpError] = LtpError) -> Iterator[type[LtpError]]:
    """Every class of errors that is loaded."""
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


@pytest.mark.parametrize("kind", kinds())
def test_an_error_is_the_same_after_a_round_trip(kind: type[LtpError]) -> None:
    error = kind(*MORE.get(kind, ("what", "remedy")))
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
    assert (found.message, found.hint) == ("what", "remedy")


def test_what_is_wrong_is_one_line_of_a_length_to_read_whatever_the_name() -> None:
    error = InputError(f"tensor '{'n' * 10**6}\n\x1b[31m' has no values", "get it again")
    assert len(error.message) <= 500
    assert error.message.isprintable()
    assert error.message.startswith("tensor 'nnn")
    assert error.message.endswith("' has no values")
    assert len(UnsupportedModel("what", "remedy", ["n" * 10**6]).reasons[0]) <= 500


def test_failed_gates_have_a_line_each() -> None:
    assert GateFailed("one\ntwo", "remedy").message == "one\ntwo"
