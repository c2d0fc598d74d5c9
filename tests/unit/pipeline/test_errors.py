"""Errors cross from one process to another as they are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ltp_pipeline.data.images import BrokenSamples
from ltp_pipeline.data.matching import Untaken
from ltp_pipeline.errors import LtpError, TaskFailed, UnsupportedModel

MORE: dict[type[LtpError], tuple[Any, ...]] = {
    TaskFailed: ("what", "remedy", "their line 3"),
    UnsupportedModel: ("what", "remedy", ["an operator", "another"]),
    BrokenSamples: ([3, 5], "what", "remedy"),
    Untaken: ("what", "remedy", ("colour", "shape")),
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
    assert (found.what, found.remedy) == ("what", "remedy")
