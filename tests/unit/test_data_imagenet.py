"""Data at ImageNet's scale: crops, augmentation, worker processes, broken images, shards."""

import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import Data, batches, decoding, images, open_data, shards
from ltp_pipeline.data.augmentation import shifted, uniform
from ltp_pipeline.data.decoding import Form, Source, pixels, random_box
from ltp_pipeline.data.stand_ins import met_broken
from ltp_pipeline.data.workers import Worker, Workers
from ltp_pipeline.errors import InputError
from ltp_pipeline.records import TensorInfo

RGB = TensorInfo("image", "FLOAT", ("N", 3, 8, 8))


def jpeg(seed: int, height: int = 30, width: int = 40) -> bytes:
    coarse = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8))
    file = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG", quality=95)
    return file.getvalue()


def put(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def cut(file: Path) -> None:
    """Leave the header whole."""
    content = file.read_bytes()
    file.write_bytes(content[: len(content) - 200])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(20):
        put(tmp_path / "photos" / "ab"[i % 2] / f"{i:02}.jpg", jpeg(i))
    return tmp_path / "photos"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "KEEP_BYTES", 0)


def opened(path: Path, model_input: TensorInfo = RGB, **settings: Any) -> Data:
    return open_data(DataSettings(path=path, **settings), model_input, 0)


def refusal(path: Path, **settings: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        opened(path, **settings)
    return caught.value


def everything(data: Data, seed: int | None = None) -> np.ndarray:
    return np.concatenate([x for x, _ in batches(data.train, 5, augment_seed=seed)])


# Crops


@pytest.mark.parametrize(("height", "width"), [(300, 400), (400, 300), (256, 256), (100, 333)])
def test_the_centre_crop_is_that_of_torchvision_but_for_rounding(tmp_path: Path, height: int, width: int) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1, height, width))
    image = Image.open(file)
    short, long = sorted((height, width))
    other = int(256 * long / short)
    image = image.resize((256, other) if width == short else (other, 256), Image.Resampling.BILINEAR)
    left, top = round((image.width - 224) / 2), round((image.height - 224) / 2)
    expected = np.asarray(image.crop((left, top, left + 224, top + 224)), np.int16)
    found = np.frombuffer(pixels(Source(str(file)), Form("RGB", (224, 224), 0.875)), np.uint8).reshape(224, 224, 3)
    off = np.abs(found - expected)
    assert off.max() <= 1
    assert off.mean() < 0.05


def test_without_a_crop_the_whole_image_is_squeezed(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jpg", jpeg(1))
    expected = Image.open(file).resize((8, 6), Image.Resampling.BILINEAR).tobytes()
    assert pixels(Source(str(file)), Form("RGB", (6, 8))) == expected


def test_an_image_too_narrow_for_a_crop_is_not_blown_up(tmp_path: Path) -> None:
    Image.new("L", (10_000_000, 1), 7).save(tmp_path / "x.png")
    found = pixels(Source(str(tmp_path / "x.png")), Form("L", (224, 224), 0.875))  # all of it would be 655 GB
    assert set(found) == {7}


def test_crop_serves_training_and_evaluation(folder: Path) -> None:
    squeezed, cropped = opened(folder), opened(folder, crop=0.5)
    assert "images are resized and cropped to 8×8 (height×width), the centre 0.5 of the shorter side" in cropped.notes
    for name in ("train", "val"):
        one, other = (getattr(d, name).read(np.arange(1)) for d in (squeezed, cropped))
        assert (one != other).any()


def test_random_boxes_lie_inside_and_have_the_usual_sizes() -> None:
    rng = random.Random(0)  # noqa: S311 - no secret
    areas = []
    for _ in range(2000):
        left, top, right, bottom = random_box(400, 300, rng)
        assert 0 <= left < right <= 400
        assert 0 <= top < bottom <= 300
        assert 0.7 < (right - left) / (bottom - top) < 1.4
        areas.append((right - left) * (bottom - top) / 120_000)
    assert 0.07 < min(areas) < 0.1
    assert max(areas) > 0.9
    assert random_box(1000, 1, rng)[1::2] == (0, 1)
    assert random_box(1, 1, rng) == (0, 0, 1, 1)


def test_a_large_photograph_is_decoded_reduced_for_a_random_crop(tmp_path: Path) -> None:
    file = put(tmp_path / "x.jpg", jpeg(3, 1200, 1600))
    box = random_box(1600, 1200, random.Random("7/0"))  # noqa: S311 - no secret
    reduced = np.frombuffer(pixels(Source(str(file)), Form("RGB", (32, 32)), "7/0"), np.uint8).reshape(32, 32, 3)
    exact = np.asarray(Image.open(file).resize((32, 32), Image.Resampling.BILINEAR, box=box))
    nearer = min(np.abs(reduced.astype(int) - other).mean() for other in (exact, exact[:, ::-1]))
    assert nearer < 1.5


def test_every_size_can_be_cropped(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(60):
        height, width = (int(n) for n in rng.integers(1, 400, 2))
        file = put(tmp_path / "x.jpg", jpeg(i, height, width))
        for seed in "abc":
            assert len(pixels(Source(str(file)), Form("RGB", (7, 9)), seed)) == 7 * 9 * 3
        assert len(pixels(Source(str(file)), Form("L", (7, 9), 0.9))) == 7 * 9


# Augmentation


@pytest.mark.parametrize("kept", [False, True])
def test_augmentation_is_a_function_of_seed_and_sample(
    folder: Path, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "KEEP_BYTES", 2**28 if kept else 0)
    data = opened(folder, augment=True)
    first = everything(data, 1)
    np.testing.assert_array_equal(everything(data, 1), first)
    assert (everything(data, 2) != first).any()
    assert (everything(data) != first).any()
    order = np.array([7, 3, 11])  # as after an interruption: other batches, same samples
    ((later, _),) = batches(data.train, 3, order, augment_seed=1)
    np.testing.assert_array_equal(later, first[order])


def test_only_a_training_split_that_asks_for_it_is_augmented(folder: Path) -> None:
    data = opened(folder, augment=True)
    np.testing.assert_array_equal(data.val.read(np.arange(1), 1), data.val.read(np.arange(1)))
    plain = opened(folder)
    np.testing.assert_array_equal(everything(plain, 1), everything(plain))


def test_draws_are_those_of_splitmix64() -> None:
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]  # its first with state 0
    np.testing.assert_array_equal(uniform(0, np.array([0, 1]), 2).ravel(), [(z >> 11) / 2**53 for z in known])


def test_draws_of_a_row_do_not_depend_on_the_others_and_differ_by_seed() -> None:
    rows = np.array([4, 9, 2])
    np.testing.assert_array_equal(uniform(5, rows, 3)[1:], uniform(5, rows[1:], 3))
    assert not np.isin(uniform(6, rows, 3), uniform(5, rows, 3)).any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_arrays_are_shifted_and_mirrored(tmp_path: Path, layout: str) -> None:
    x = np.random.default_rng(0).integers(1, 256, (40, 3, 8, 8), dtype=np.uint8)
    stored = x if layout == "NCHW" else x.transpose(0, 2, 3, 1)
    np.savez(tmp_path / "d.npz", x_train=stored, y_train=np.arange(40) % 2, x_val=stored[:2], y_val=[0, 1])
    data = opened(tmp_path / "d.npz", augment=True, layout=layout)
    got = data.train.read(np.arange(40), 5).astype(np.uint8)
    np.testing.assert_array_equal(got, shifted(x, np.arange(40), 5, 2))
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    seen = set()
    for i in range(40):
        ways = {
            (top, left, flip): padded[i, :, top : top + 8, left : left + 8][:, :, :: -1 if flip else 1]
            for top in range(3)
            for left in range(3)
            for flip in (False, True)
        }
        (way,) = [key for key, value in ways.items() if np.array_equal(value, got[i])]
        seen.add(way)
    assert len(seen) > 8
    np.testing.assert_array_equal(shifted(x[[7, 3]], np.array([7, 3]), 5, 2), got[[7, 3]])


def test_rows_of_numbers_are_not_augmented(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((9, 4), np.float32), y=np.arange(9) % 2)
    with pytest.raises(InputError, match="are no images"):
        opened(tmp_path / "d.npz", TensorInfo("row", "FLOAT", ("N", 4)), augment=True)


def test_a_crop_of_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones((9, 3, 8, 8), np.float32), y=np.arange(9) % 2)
    assert "images in folders and shards" in refusal(tmp_path / "d.npz", crop=0.5).what


# Worker processes


def stopped(workers: Workers) -> None:
    while not workers._idle.empty():
        worker = workers._idle.get()
        if worker is not None:
            worker.stop()


@pytest.mark.usefixtures("large")
def test_processes_give_the_bytes_that_threads_give(folder: Path) -> None:
    threads, processes = opened(folder, augment=True), opened(folder, augment=True, workers=2)
    for seed in (None, 3):
        np.testing.assert_array_equal(everything(processes, seed), everything(threads, seed))


def test_a_process_that_ends_is_an_error_and_is_replaced(folder: Path) -> None:
    sources = [Source(str(f)) for f in sorted(folder.rglob("*.jpg"))]
    form, out = Form("RGB", (8, 8)), np.empty((20, 8, 8, 3), np.uint8)
    workers = Workers(1, form)
    workers.decode(sources[:1], [None], out)
    worker = workers._idle.get()
    assert worker is not None
    worker._process.kill()
    worker._process.wait()
    workers._idle.put(worker)
    with pytest.raises(InputError, match=r"ended while reading image .*jpg"):
        workers.decode(sources, [None] * 20, out)
    assert workers.decode(sources, [None] * 20, out) == {}
    assert out[3].tobytes() == pixels(sources[3], form)
    stopped(workers)


def test_a_broken_image_in_a_process_does_not_end_it(folder: Path) -> None:
    bad = put(folder / "a" / "bad \udcff\n.jpg", jpeg(0)[:300])
    sources = [Source(str(bad)), Source(str(folder / "a" / "00.jpg")), Source(str(folder / "gone.jpg"))]
    out = np.empty((3, 8, 8, 3), np.uint8)
    workers = Workers(1, Form("RGB", (8, 8)))
    problems = workers.decode(sources, [None] * 3, out)
    assert sorted(problems) == [0, 2]
    assert "cannot be decoded" in problems[0][0]
    assert out[1].tobytes() == pixels(sources[1], Form("RGB", (8, 8)))
    stopped(workers)


def test_a_python_without_memfd_shares_a_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    sources = [Source(str(f)) for f in sorted(folder.rglob("*.jpg"))]
    form, out = Form("RGB", (8, 8)), np.empty((20, 8, 8, 3), np.uint8)
    workers = Workers(2, form)
    assert workers.decode(sources, [None] * 20, out) == {}
    assert [image.tobytes() for image in out] == [pixels(source, form) for source in sources]
    stopped(workers)


def test_an_interrupt_does_not_wait_for_every_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [Source(str(f)) for f in sorted(folder.rglob("*.jpg"))]
    asked = []

    def interrupted(self: Worker, request: bytes) -> None:
        asked.append(request)
        if len(asked) == 5:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)  # for the main thread to hear of it
        ask(self, request)

    ask = Worker.ask
    monkeypatch.setattr(Worker, "ask", interrupted)
    workers = Workers(1, Form("RGB", (8, 8)))
    with pytest.raises(KeyboardInterrupt):
        workers.decode(sources, [None] * 20, np.empty((20, 8, 8, 3), np.uint8))
    assert len(asked) < 10
    stopped(workers)


def test_no_process_outlives_its_pool() -> None:
    worker = Worker(Form("L", (4, 4)))
    process = worker._process
    del worker
    assert process.poll() == 0


def test_no_process_outlives_the_one_that_asked(folder: Path) -> None:
    code = """
import os, signal
from ltp_pipeline.data.decoding import Form
from ltp_pipeline.data.workers import Worker
worker = Worker(Form("L", (4, 4)))
print(worker._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(found.stdout)
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_ctrl_c_ends_everything_without_a_word_from_the_processes(folder: Path) -> None:
    code = """
import sys, pathlib
from ltp_pipeline.config import DataSettings
from ltp_pipeline.data import batches, images, open_data
from ltp_pipeline.records import TensorInfo
images.KEEP_BYTES = 0
data = open_data(DataSettings(path=pathlib.Path(sys.argv[1]), workers=2), TensorInfo("x", "FLOAT", ("N", 3, 8, 8)), 0)
try:
    while True:
        for _ in batches(data.train, 4):
            print("read", flush=True)
except KeyboardInterrupt:
    sys.exit(7)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, folder],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        # A shell's background job ignores it and hands that on; a terminal does not.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"read\n"
        os.killpg(process.pid, signal.SIGINT)
        _, told = process.communicate(timeout=20)
    assert (process.returncode, told) == (7, b"")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_processes_know_neither_numpy_nor_the_rest_of_the_package() -> None:
    code = f"""
import runpy, sys
runpy.run_path({decoding.__file__!r})
sys.exit(any(name.split('.')[0] in ('numpy', 'torch', 'ltp_pipeline') for name in sys.modules))
"""
    assert subprocess.run([sys.executable, "-P", "-c", code]).returncode == 0


# Broken images


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.usefixtures("large")
def test_a_broken_image_met_in_training_is_named_once_and_another_of_its_class_stands_in(
    folder: Path, workers: int
) -> None:
    file = folder / "a" / "04.jpg"
    cut(file)
    data = opened(folder, workers=workers, validation_share=0.1)
    rows = data.train.rows
    (split,) = {s for s in (data.train, data.val, data.test) if 2 in s.rows}
    place = int(np.flatnonzero(split.rows == 2)[0])
    assert split is data.train
    with pytest.warns(UserWarning, match=r"04\.jpg cannot be decoded: .*another stands in for it"):
        (x, _), *_ = batches(split, len(split))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = split.read(np.array([place]))
    labels = data.train.labels
    assert len(met_broken(data)) == 1
    following = next(p for p in range(len(rows)) if rows[p] > 2 and labels[p] == labels[place])
    np.testing.assert_array_equal(x[place], x[following])
    np.testing.assert_array_equal(again[0], x[following])


@pytest.mark.usefixtures("large")
def test_which_image_stands_in_does_not_depend_on_what_was_read_first(folder: Path) -> None:
    for name in ("04", "06"):
        file = folder / "a" / f"{name}.jpg"
        cut(file)
    found = []
    for order in ([2, 3], [3, 2]):
        data = opened(folder)
        assert {2, 3} <= set(data.train.rows)
        with pytest.warns(UserWarning, match="another stands in for it"):
            got = {row: data.train.read(np.flatnonzero(data.train.rows == row)) for row in order}
        found.append(np.stack([got[2], got[3]]))
    np.testing.assert_array_equal(found[0], found[1])


def test_broken_images_of_a_small_folder_are_left_out_and_told(folder: Path) -> None:
    cut(put(folder / "a" / "cut.jpg", jpeg(0)))
    put(folder / "b" / "text.jpg", b"no image")
    data = opened(folder)
    assert len(data.train) + len(data.val) + len(data.test) == 20
    assert sum("it is left out" in note for note in data.notes) == 2
    assert any("cut.jpg cannot be decoded" in note for note in data.notes)


@pytest.mark.usefixtures("large")
def test_more_broken_images_than_the_limit_are_an_error(folder: Path) -> None:
    for i in range(6):
        put(folder / "a" / f"bad{i}.jpg", b"")
    error = refusal(folder)
    assert "6 of 26 images cannot be used, 2 may be passed over" in error.what
    assert "bad0.jpg" in error.what
    assert "max_broken" in error.remedy


@pytest.mark.usefixtures("large")
def test_an_image_that_has_gone_is_an_error_and_not_passed_over(folder: Path) -> None:
    data = opened(folder)
    for file in (folder / "a").iterdir():
        file.unlink()
    with pytest.raises(InputError, match=r"\.jpg cannot be read: No such file"):
        everything(data)


@pytest.mark.usefixtures("large")
def test_the_limit_holds_in_training(folder: Path) -> None:
    for file in list(folder.rglob("*.jpg"))[:15]:
        cut(file)
    data = opened(folder)
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(InputError, match="of 20 images cannot be used, 2 may be"),
    ):
        everything(data)


@pytest.mark.usefixtures("large")
def test_of_many_images_a_share_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LOOK_AT", 5)
    looked = []
    monkeypatch.setattr(images, "header", lambda source: looked.append(source) or decoding.header(source))
    opened(folder)
    assert len(looked) == 5
    put(folder / "b" / "other.jpg", jpeg(0, 31, 40))
    with pytest.raises(InputError, match="differ in size"):  # where the images decide the size, all are looked at
        opened(folder, TensorInfo("image", "FLOAT", ("N", 3, "H", "W")))


# Images without labels


def test_a_flat_folder_has_no_labels(folder: Path) -> None:
    data = opened(folder / "a", validation_share=0.2)
    assert (data.train.labels, data.classes, data.class_names) == (None, None, None)
    assert len(data.train) == 6
    assert all(y is None for _, y in batches(data.train, 2))


def test_split_folders_may_be_flat(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (folder / "a").rename(tmp_path / "bare" / "train")
    (folder / "b").rename(tmp_path / "bare" / "val")
    data = opened(tmp_path / "bare")
    assert data.train.labels is None
    assert (len(data.train), len(data.val)) == (10, 10)


# Shards


def shard(file: Path, members: list[tuple[str, bytes]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file


def pairs(numbers: range, labels: bool = True) -> list[tuple[str, bytes]]:
    found = []
    for i in numbers:
        found.append((f"n{i:04}.jpg", jpeg(i)))
        if labels:
            found.append((f"n{i:04}.cls", str(i % 2).encode()))
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.usefixtures("large")
def test_shards_hold_what_class_folders_hold(folder: Path, tmp_path: Path, workers: int) -> None:
    for k in range(2):
        shard(tmp_path / "shards" / f"part-{k:06}.tar", pairs(range(k, 20, 2)))
    one, other = opened(folder, augment=True), opened(tmp_path / "shards", augment=True, workers=workers)
    np.testing.assert_array_equal(one.train.labels, other.train.labels)
    for seed in (None, 4):
        np.testing.assert_array_equal(everything(one, seed), everything(other, seed))


def test_split_folders_of_shards_are_followed(tmp_path: Path) -> None:
    shard(tmp_path / "train" / "0.tar", pairs(range(6)))
    shard(tmp_path / "val" / "0.tar", pairs(range(4)))
    data = opened(tmp_path)
    assert (len(data.train), len(data.val), len(data.test)) == (6, 4, 4)
    assert data.val.labels.tolist() == [0, 1, 0, 1]
    before = data.fingerprint
    shard(tmp_path / "val" / "1.tar", pairs(range(4)))
    assert opened(tmp_path).fingerprint != before


def test_shards_of_one_folder_are_divided_by_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "imagenet1k-train-0000.tar", pairs(range(6)))
    shard(tmp_path / "imagenet1k-train-0001.tar", pairs(range(6, 10)))
    shard(tmp_path / "imagenet1k-validation-00.tar", pairs(range(4)))
    data = opened(tmp_path)
    assert (len(data.train), len(data.val)) == (10, 4)
    assert "shards were divided by their names: 2 train, 1 val" in data.notes


def test_names_that_all_mean_one_split_divide_nothing(tmp_path: Path) -> None:
    for i in range(2):
        shard(tmp_path / f"train-{i}.tar", pairs(range(10 * i, 10 * i + 10)))
    assert len(opened(tmp_path).train) == 16


@pytest.mark.parametrize("names", [("train-0.tar", "part-0.tar"), ("val-0.tar", "test-0.tar")])
def test_names_that_leave_splits_in_doubt_are_told(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        shard(tmp_path / name, pairs(range(10)))
    assert "do not seem to be of one split" in refusal(tmp_path).what


def test_shards_without_cls_have_no_labels(tmp_path: Path) -> None:
    assert opened(shard(tmp_path / "0.tar", pairs(range(9), labels=False))).train.labels is None


def test_a_tar_file_beside_class_folders_is_what_they_came_in(folder: Path) -> None:
    put(folder / "photos.tar", b"")
    assert opened(folder).class_names == ("a", "b")


def test_other_members_of_a_sample_are_passed_over(tmp_path: Path) -> None:
    members = [(f"n{i}.{ending}", jpeg(i)) for i in range(9) for ending in ("jpg", "mask.png", "txt")]
    assert len(opened(shard(tmp_path / "0.tar", members)).train) == 7


def test_a_broken_image_in_a_shard_is_named_with_its_shard(tmp_path: Path) -> None:
    shard(tmp_path / "0.tar", [*pairs(range(12)), ("bad.jpg", b"x"), ("bad.cls", b"0")])
    assert any("0.tar:bad.jpg cannot be decoded" in note for note in opened(tmp_path).notes)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([("a.jpg", jpeg(0)), ("a.cls", b"cat")], "a.cls holds b'cat', which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.cls", b"9" * 5000)], "which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.cls", "³".encode())], "which is no class number"),
        ([("a.jpg", jpeg(0)), ("a.png", jpeg(0))], "sample a of"),
        ([("a.json", b"{}")], "has 0 images"),
        ([("a.jpg", jpeg(0)), ("a.jpg", jpeg(0))], "a.jpg is there twice"),
        ([("a.jpg", jpeg(0)), ("a.cls", b"0"), ("b.jpg", jpeg(0))], "b.jpg has no .cls beside it"),
        ([], "hold no samples"),
    ],
)
def test_a_bad_shard_is_told(tmp_path: Path, members: list[tuple[str, bytes]], said: str) -> None:
    shard(tmp_path / "0.tar", members)
    assert said in refusal(tmp_path).what


def test_a_shard_cut_short_or_compressed_or_none_is_told(tmp_path: Path) -> None:
    whole = shard(tmp_path / "0.tar", pairs(range(9))).read_bytes()
    put(tmp_path / "0.tar", whole[:1000])
    assert "0.tar is not a readable tar file" in refusal(tmp_path).what
    put(tmp_path / "0.tar", b"no tar file at all" * 100)
    assert "0.tar is not a readable tar file" in refusal(tmp_path).what
    (tmp_path / "0.tar").rename(tmp_path / "0.tar.gz")
    assert "is compressed" in refusal(tmp_path).what


def test_a_shard_that_ends_between_two_members_is_told(tmp_path: Path) -> None:
    file = shard(tmp_path / "0.tar", pairs(range(9)))
    with tarfile.open(file) as tar:
        boundary = tar.getmembers()[8].offset
    for rest in (b"", b"garbage" * 200):
        put(file, file.read_bytes()[:boundary] + rest)
        assert f"no member and no end stands at byte {boundary}" in refusal(tmp_path).what


def tar_header(name: str, size: bytes, kind: bytes) -> bytes:
    block = bytearray(name.encode().ljust(100, b"\0") + bytes(24) + size + bytes(20) + kind + bytes(355))
    return bytes(summed(block))


def summed(block: bytearray) -> bytearray:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return block


def test_headers_that_lead_back_or_nest_without_end_are_told(tmp_path: Path) -> None:
    none = b"%011o\0" % 0
    negative = tar_header("b.jpg", b"\xff" * 10 + b"\xfc\x00", b"0")  # −1024 in base 256
    put(tmp_path / "0.tar", tar_header("a.jpg", none, b"0") * 2 + negative + bytes(1024))
    assert "is not a readable tar file" in refusal(tmp_path).what
    put(tmp_path / "0.tar", tar_header("x", none, b"L") * 5000 + bytes(1024))
    assert "is not a readable tar file" in refusal(tmp_path).what


def test_a_shard_with_changed_bytes_is_read_or_told(tmp_path: Path) -> None:
    whole = shard(tmp_path / "0.tar", [(f"n{i}.{e}", b"1") for i in range(4) for e in ("jpg", "cls")]).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        at = 1024 * int(rng.integers(8))
        for place in at + rng.choice([*range(160), 257, 345], 3):
            content[place] = rng.integers(256)
        content[at : at + 512] = summed(content[at : at + 512])
        file = put(tmp_path / "0.tar", bytes(content))
        with contextlib.suppress(InputError):
            shards.index(file)


def test_links_devices_and_pickles_in_a_shard_are_not_read(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as tar:
        for i in range(9):
            link = tarfile.TarInfo(f"n{i}.png")
            link.type, link.linkname = (tarfile.SYMTYPE, "/etc/passwd")
            tar.addfile(link)
            for name, content in ((f"n{i}.pyd", b"cos\nsystem\n."), (f"n{i}.jpg", jpeg(i)), (f"n{i}.cls", b"1")):
                info = tarfile.TarInfo(f"../../{name}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    assert len(opened(tmp_path).train) == 7
    assert [f.name for f in tmp_path.iterdir()] == ["0.tar"]


def test_the_webdataset_library_reads_and_writes_the_same(tmp_path: Path) -> None:
    import webdataset as wds

    with wds.TarWriter(str(tmp_path / "0.tar")) as writer:
        for i in range(9):
            writer.write({"__key__": f"deep.er/n{i:04}", "jpg": jpeg(i), "cls": i % 3, "json": {"any": i}})
    data = opened(tmp_path)
    theirs = list(wds.WebDataset(str(tmp_path / "0.tar"), shardshuffle=False))
    assert len(theirs) == 9
    for split in (data.train, data.val, data.test):
        for place, row in enumerate(split.rows):
            assert split.labels[place] == int(theirs[row]["cls"])
            image = Image.open(io.BytesIO(theirs[row]["jpg"])).resize((8, 8), Image.Resampling.BILINEAR)
            expected = np.asarray(image).transpose(2, 0, 1)
            np.testing.assert_array_equal(split.read(np.array([place]))[0], expected)
