"""Compare the defaults with one-shot and gradual magnitude on a transformer, a cell of matrix.py.

    python -m benchmarks.languages [--out FILE] [--workers 2]

The transformer classifies the language of a word. The words are those of Debian's packages
wamerican, wfrench, wngerman, wspanish, witalian, wportuguese, wdutch, wswedish and wpolish. There
is no quick form; the code is that of benchmarks/matrix.py.
"""

from benchmarks import matrix

if __name__ == "__main__":
    matrix.run_cells(__doc__, ["languages"], "languages")
