"""The defaults on a transformer that tells languages apart by their words, beside one-shot and gradual magnitude.

    python -m benchmarks.languages [--out FILE] [--workers 2]

A cell of benchmarks/matrix.py. The words are those of Debian's packages wamerican, wfrench,
wngerman, wspanish, witalian, wportuguese, wdutch, wswedish and wpolish. It has no quick form, and
does what the matrix does.
"""

from benchmarks import matrix

if __name__ == "__main__":
    matrix.run(__doc__, ["languages"], "languages")
