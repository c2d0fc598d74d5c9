"""The verbs in Python take what the command line takes."""

import pytest

import ltp_pipeline
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.schema import Settings


def test_settings_from_python_have_no_options_beside_them():
    with pytest.raises(InputError, match="both settings and options"):
        ltp_pipeline.run("model.onnx", Settings(), train={"epochs": 1})


def test_every_section_of_the_settings_can_be_given_to_run_from_python():
    import inspect

    import ltp_pipeline

    taken = [
        p.name
        for p in inspect.signature(ltp_pipeline.run).parameters.values()
        if p.kind is not p.POSITIONAL_ONLY
    ]
    assert set(ltp_pipeline.Settings.model_fields) & set(taken) == {
        "task"
    }  # which takes a mapping as well
