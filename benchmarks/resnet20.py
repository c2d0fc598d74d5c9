"""Compare the defaults with one-shot and gradual magnitude on ResNet20, a cell of matrix.py.

    python -m benchmarks.resnet20 [--out FILE] [--workers 2] [--cifar FOLDER]

There is no quick form; the code is that of benchmarks/matrix.py.
"""

from benchmarks import matrix

if __name__ == "__main__":
    matrix.run_cells(__doc__, ["resnet20"], "resnet20")
