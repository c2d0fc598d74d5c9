"""Options that several commands share."""

import pytest


@pytest.mark.parametrize("command", ["run", "pick", "gate"])
def test_every_command_that_judges_takes_every_gate(command: str):
    import inspect

    from ltp_pipeline.cli import app, result_commands
    from ltp_pipeline.cli.options import GATES

    function = getattr(app, command, None) or getattr(result_commands, command)
    assert set(GATES) <= set(inspect.signature(function).parameters)
