"""The Python interface: its arguments, and that it has what the command line has."""

import inspect

import pytest

import ltp_pipeline
from ltp_pipeline.cli.app import COMMANDS
from ltp_pipeline.errors import InputError
from ltp_pipeline.settings.schema import Settings

# Commands that are no functions of the Python interface: `demo` runs an example, and the library
# of sparse operators is found by `sparse_ops_library`.
ONLY_COMMANDS = {"demo", "sparse_ops"}


def test_run_settings_and_sections_exclude_each_other():
    with pytest.raises(InputError, match="train"):
        ltp_pipeline.run("model.onnx", Settings(), train={"epochs": 1})


def test_run_takes_every_section_of_the_settings():
    # `model` is a positional argument, and `task` also takes a mapping.
    names = {
        parameter.name
        for parameter in inspect.signature(ltp_pipeline.run).parameters.values()
        if parameter.kind is not parameter.POSITIONAL_ONLY
    }
    assert set(Settings.model_fields) & names == {"task"}


def test_api_has_a_function_for_every_command():
    names = {command.__name__ for command in COMMANDS}
    assert names - ONLY_COMMANDS <= set(ltp_pipeline.__all__)


def test_handoff_unknown_network_is_rejected():
    with pytest.raises(InputError, match=r"network.*original"):
        ltp_pipeline.handoff("run", network="original")
