"""MNIST's files: the IDX format, the mirrors, and how they are checked."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Dict, List, Optional

import numpy as np
from muster_core import Fail, log, models
from muster_core.fetch import Unreachable, fetch, is_url, shown

# The SHA-256 of the uncompressed content of each file, which compressed files must also have.
FILES: Dict[str, str] = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}

MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")

_MOST = 64 << 20  # bytes of the largest, unpacked


def mnist(data: Optional[str], verify: bool) -> List[np.ndarray]:
    """Train images, train labels, test images and test labels, as uint8.

    data is a folder or the base of URLs; without it the mirrors are asked, and what they give is kept in the
    worker's folder of models. verify holds the files to those of MNIST.
    """
    if data is None:
        models.use(_folder().name)  # no cleanup removes it meanwhile
        got = _kept() or _downloaded(MIRRORS, "MNIST")
    elif is_url(data):
        got = _downloaded([data if data.endswith("/") else data + "/"], "data")
    else:
        got = [_found(Path(data), name) for name in FILES]
    verify = verify or data is None
    arrays = [_read(path, name, verify) for path, name in zip(got, FILES)]
    for images, labels, which in ((arrays[0], arrays[1], "train"), (arrays[2], arrays[3], "t10k")):
        if len(images) != len(labels):
            raise Fail("bad_input", f"data: the {which} files have {len(images)} images and {len(labels)} labels")
    if arrays[0].shape[1:] != arrays[2].shape[1:]:
        raise Fail("bad_input", f"data: images for training have {arrays[0].shape[1:]} pixels, those of the test {arrays[2].shape[1:]}")
    return arrays


def _folder() -> Path:
    return models.folder() / "datasets" / "mnist"


def _kept() -> "Optional[List[Path]]":
    """The files of an earlier download, if it is complete."""
    found = []
    for name, want in FILES.items():
        path = _folder() / f"{name}.gz"
        try:
            if hashlib.sha256(_unpacked(path)).hexdigest() != want:
                return None
        except (OSError, Fail):
            return None
        found.append(path)
    return found


def _downloaded(bases: "tuple[str, ...] | List[str]", field: str) -> List[Path]:
    folder = _folder() if field == "MNIST" else Path("downloads")
    why = []
    for base in bases:
        try:
            return [_one(base, name, folder, field) for name in FILES]
        except Fail as e:
            if field != "MNIST" and not isinstance(e, Unreachable):
                raise
            why.append(str(e).partition(": ")[2])
            log(f"{shown(base)} has no MNIST: {why[-1]}")
    what = "MNIST cannot be downloaded" if field == "MNIST" else "data cannot be downloaded"
    raise Fail("dependency", f"{what} ({'; '.join(why)}): give data: a path or URL with the four IDX files, or choose dataset: digits")


def _one(base: str, name: str, folder: Path, field: str) -> Path:
    """A file of a mirror, packed or, where only that is there, not."""
    try:
        path = fetch(base + name + ".gz", folder / f"{name}.gz", field, most=_MOST)
    except Unreachable:
        raise
    except Fail as e:
        if field == "MNIST" or "answers 404" not in str(e):
            raise
        path = fetch(base + name, folder / name, field, most=_MOST)
    if field == "MNIST" and hashlib.sha256(_unpacked(path)).hexdigest() != FILES[name]:
        path.unlink()
        raise Fail("bad_input", f"{field}: {name}.gz from {base} is not MNIST's file: its SHA-256 is another")
    return path


def _found(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise Fail("bad_input", f"data: {folder} is not a folder in the task's folder: add it with files or inputs, or give a URL")
    for there in (name, name + ".gz", name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"):
        if (folder / there).is_file():
            return folder / there
    raise Fail("bad_input", f"data: {folder} has no file {name} (or {name}.gz)")


def _unpacked(path: Path) -> bytes:
    raw = path.read_bytes()
    if raw[:2] != b"\x1f\x8b":
        return raw
    unpack = zlib.decompressobj(31)
    try:
        out = unpack.decompress(raw, _MOST)
    except (zlib.error, gzip.BadGzipFile) as e:
        raise Fail("bad_input", f"data: {path.name} is damaged: it cannot be unpacked ({e})") from None
    if not unpack.eof:
        raise Fail("bad_input", f"data: {path.name} is damaged: {'it is larger than any IDX file of MNIST' if unpack.unconsumed_tail else 'it is truncated'}")
    return out


def _read(path: Path, name: str, verify: bool) -> np.ndarray:
    raw, axes = _unpacked(path), 3 if "idx3" in name else 1
    head = 4 + 4 * axes
    magic = int.from_bytes(raw[:4], "big")
    if len(raw) < head or magic != 0x800 + axes:
        raise Fail("bad_input", f"data: {path.name} is not an IDX file of {'images' if axes == 3 else 'labels'}: its magic number is {magic}, not {0x800 + axes}")
    shape = tuple(int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes))
    want = head + int(np.prod(shape, dtype=np.int64))
    if len(raw) != want:
        raise Fail("bad_input", f"data: {path.name} has {len(raw)} bytes, but its header requires {want}: it is damaged")
    if verify and (got := hashlib.sha256(raw).hexdigest()) != FILES[name]:
        raise Fail(
            "bad_input",
            f"data: {path.name} has the right form, but its SHA-256 is {got}, not MNIST's {FILES[name]}: it is damaged, or another data set in MNIST's form, which verify: false allows",
        )
    if 0 in shape or axes == 3 and min(shape[1:]) < 8:
        raise Fail("bad_input", f"data: {path.name} has the shape {shape}: images of 8 by 8 pixels or more are needed, and at least one")
    array = np.frombuffer(raw, np.uint8, offset=head).reshape(shape)
    if axes == 1 and array.max() > 9:
        raise Fail("bad_input", f"data: {path.name} has the label {array.max()} at position {int(array.argmax())}: labels are 0 to 9")
    return array
