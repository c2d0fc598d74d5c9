"""`python -m ltp_pipeline`, which torchrun and machines without the console script use."""

from ltp_pipeline.cli import main

if __name__ == "__main__":
    main()
