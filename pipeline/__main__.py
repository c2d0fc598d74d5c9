"""The program: `ltp-pipeline`, and `python -m ltp_pipeline` for torchrun and machines without the console script.

A signal may come at any moment. Its handlers are set before anything is imported; what `_signal` has is built in.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has no stub of it

_came: list[int] = []  # signals that came before `interrupts` was there
for _name in ("SIGINT", "SIGTERM", "SIGHUP"):  # interrupts.SIGNALS
    _number = getattr(_signal, _name, None)
    if _number is not None and _signal.getsignal(_number) != _signal.SIG_IGN:
        _signal.signal(_number, lambda number, _: _came.append(number))

from ltp_pipeline.system import pipes, signals  # noqa: E402 - after the handlers


def main() -> None:
    """Run a command; nothing heavy is imported before `interrupts` has taken over."""
    try:
        signals.install_handlers()
        if _came:
            signals.exit_interrupted()
        pipes.tolerate_closed_pipes()
        from ltp_pipeline.cli.app import main as command

        command()
    except SystemExit:
        signals.ignore_signals()
        raise
    except BaseException:
        if not signals.stop_requested():
            raise
        signals.exit_interrupted()


if __name__ == "__main__":
    main()
