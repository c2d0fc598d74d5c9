"""Entry point of `ltp-pipeline` and of `python -m ltp_pipeline`, which torchrun starts.

A signal may come at any moment, so handlers are set before anything is imported. `_signal` is
built into the interpreter.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has no stub of it

_early_signals: list[int] = []
for _name in ("SIGINT", "SIGTERM", "SIGHUP"):  # as signals.SIGNALS, which is not imported yet
    _number = getattr(_signal, _name, None)
    if _number is not None and _signal.getsignal(_number) != _signal.SIG_IGN:
        _signal.signal(_number, lambda number, _: _early_signals.append(number))

from ltp_pipeline.system import pipes, signals  # noqa: E402 - after the handlers


def main() -> None:
    """Run a command. The command line is imported after the handlers of `signals` are set."""
    try:
        signals.install_handlers()
        if _early_signals:
            signals.exit_interrupted()
        pipes.tolerate_closed_pipes()
        from ltp_pipeline.cli.app import main as run_command

        run_command()
    except SystemExit:
        signals.ignore_signals()
        raise
    except BaseException:
        if not signals.stop_requested():
            raise
        signals.exit_interrupted()


if __name__ == "__main__":
    main()
