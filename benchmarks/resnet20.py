"""The defaults on the paper's ResNet20, beside one-shot and gradual magnitude: a cell of benchmarks/matrix.py.

    python -m benchmarks.resnet20 [--out FILE] [--workers 2] [--cifar FOLDER]

It has no quick form: it takes hours, and does what the matrix does.
"""

from benchmarks import matrix

if __name__ == "__main__":
    matrix.run(__doc__, ["resnet20"], "resnet20")
