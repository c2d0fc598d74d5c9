"""The program: `ltp-pipeline`, and `python -m ltp_pipeline` for torchrun and machines without the console script."""

from ltp_pipeline import interrupts, pipes


def main() -> None:
    """Run a command; signals are taken over before anything heavy is imported."""
    try:
        interrupts.install()
        pipes.install()
        from ltp_pipeline.cli import main as command

        command()
    except SystemExit:
        interrupts.over()
        raise
    except BaseException:
        if not interrupts.asked():
            raise
        interrupts.leave()


if __name__ == "__main__":
    main()
