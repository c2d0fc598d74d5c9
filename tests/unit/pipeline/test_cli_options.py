"""Options that several commands share."""

import pytest


@pytest.mark.parametrize("command", ["run", "pick", "gate"])
def test_every_command_that_judges_takes_every_gate(command: str):
    import inspect

    from ltp_pipeline import cli, cli_runs
    from ltp_pipeline.cli_options import GATES

    function = getattr(cli, command, None) or getattr(cli_runs, command)
    assert set(GATES) <= set(inspect.signature(function).parameters)
