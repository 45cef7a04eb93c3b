"""Images: a folder for each class."""

from pathlib import Path
from typing import List

import numpy as np
from muster_core import Fail, report

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
_MOST = 64_000_000  # pixels of one image


def looks_like(folder: Path) -> bool:
    return any(p.suffix.lower() in SUFFIXES for sub in _folders(folder) for p in sub.iterdir())


def read(folder: Path, size: int) -> "tuple[np.ndarray, np.ndarray, List[str]]":
    """All images as uint8 (count, 3, size, size), their classes' numbers, and the classes' names in order."""
    folders = _folders(folder)
    while len(folders) == 1 and _folders(folders[0]):  # an archive with one folder around all
        folder, folders = folders[0], _folders(folders[0])
    found = [(p, n) for n, sub in enumerate(folders) for p in _images(sub)]
    for sub in folders:
        if not _images(sub):
            raise Fail("bad_input", f"dataset: the folder {sub.name} has no images ({', '.join(sorted(SUFFIXES))})")
    if len(folders) < 2:
        raise Fail("bad_input", f"dataset: {folder} has {len(folders)} folders of images: a folder for each class is needed, and two classes at least")
    x = np.empty((len(found), 3, size, size), np.uint8)
    for i, (path, _) in enumerate(found):
        x[i] = one(path, size)
        if i % 500 == 499:
            report(step=f"reading images: {i + 1} of {len(found)}")
    return x, np.array([n for _, n in found], np.int64), [f.name for f in folders]


def one(path: Path, size: int) -> np.ndarray:
    """An image as uint8 (3, size, size)."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            if image.width * image.height > _MOST:
                raise Fail("bad_input", f"dataset: {path} has {image.width} by {image.height} pixels, which is too large")
            pixels = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as e:
        if isinstance(e, OSError) and e.errno:
            raise
        raise Fail("bad_input", f"dataset: {path} is damaged or not an image: {e}") from None
    return np.asarray(pixels).transpose(2, 0, 1)


def _folders(folder: Path) -> List[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith((".", "__")))


def _images(folder: Path) -> List[Path]:
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
