"""Data sets: what their names, paths and URLs lead to, ready for a network."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import numpy as np
import pandas as pd
from muster_core import Fail, fetch, log

from . import idx, images, tables
from .parts import Data

Json = Dict[str, Any]

_TABLES = ("iris", "wine", "breast_cancer", "diabetes")
NAMES = ("digits", "mnist", *_TABLES)


@dataclass
class Examples:
    train: Data
    test: Data  # held out
    labels: List[str]  # of the classes; none for regression
    # How examples become x: {"type": "images", "size": …}, {"type": "table", "columns": […]} or {"type": "text", …}.
    source: Json = field(default_factory=dict)
    # x is (what it was - mean) / spread for the network; y of a regression likewise.
    x_mean: float = 0.0
    x_spread: float = 1.0
    y_mean: float = 0.0
    y_spread: float = 1.0


def load(given: Json) -> Examples:
    """The data set that the input names, with a part of it held out. The same seed holds out the same."""
    name = given["dataset"]
    path = Path(name)
    if name in NAMES and not path.exists():
        return _named(name, given)
    if not fetch.is_url(name) and not path.exists() and not path.suffix and "/" not in name:
        more = ": its images cannot be downloaded freely, so bring them as a folder with a folder for each class" if name.lower().startswith("imagenet") else ""
        raise Fail("bad_input", f"dataset: {name} is neither built in ({', '.join(NAMES)}) nor a file in the task's folder{more}")
    path = fetch.bring(name, "dataset")
    if fetch.is_archive(path):
        path = fetch.unpack(path, Path("unpacked"), "dataset")
    if path.is_dir():
        return _folder(path, given)
    if path.suffix.lower() in images.SUFFIXES:
        raise Fail("bad_input", f"dataset: {name} is one image: a folder with a folder of images for each class is needed")
    return table(tables.read(path, given.get("format")), given)


def _named(name: str, given: Json) -> Examples:
    from sklearn import datasets

    if name == "mnist":
        a, b, c, d = idx.mnist(None, True)
        return _pixels(Data(a[:, None], b.astype(np.int64)), Data(c[:, None], d.astype(np.int64)), [str(n) for n in range(10)], {"type": "pixels", "size": 28})
    if name == "digits":
        x, y = datasets.load_digits(return_X_y=True)
        train, test = _split(y, given, True)
        x, y = x.reshape(-1, 1, 8, 8).astype(np.uint8), y.astype(np.int64)
        return _pixels(Data(x[train], y[train]), Data(x[test], y[test]), [str(n) for n in range(10)], {"type": "pixels", "size": 8})
    bunch = getattr(datasets, f"load_{name}")()
    frame = pd.DataFrame(bunch.data, columns=[str(n) for n in bunch.feature_names])
    frame["target"] = bunch.target if name == "diabetes" else [str(bunch.target_names[n]) for n in bunch.target]
    return table(frame, {"target": "target", **given})


def _folder(path: Path, given: Json) -> Examples:
    inside = sorted(p for p in path.iterdir() if not p.name.startswith((".", "__")))
    if len(inside) == 1 and inside[0].is_file() and tables.form(inside[0]):
        return table(tables.read(inside[0], given.get("format")), given)
    if not any(p.is_dir() for p in inside):
        raise Fail(
            "bad_input", f"dataset: {path} has no folder for each class and is not a single table; it has {tables.listed(p.name for p in inside) or 'nothing'}"
        )
    size = given.get("image_size", 64)
    x, y, labels = images.read(path, size)
    train, test = _split(y, given, True)
    return _pixels(Data(x[train], y[train]), Data(x[test], y[test]), labels, {"type": "images", "size": size})


def _pixels(train: Data, test: Data, labels: List[str], source: Json) -> Examples:
    mean, spread = float(train.x.mean(dtype=np.float64)), float(train.x[:10_000].std(dtype=np.float64))
    if spread == 0:
        raise Fail("bad_input", "dataset: all pixels of all images are the same")
    return Examples(train, test, labels, source, x_mean=mean, x_spread=spread)


def table(frame: pd.DataFrame, given: Json) -> Examples:
    """Examples of a table's rows."""
    frame, y, name = tables.target(frame, given.get("target"))
    task = given.get("task") or tables.task_of(y)
    labels: List[str] = []
    if task == "classification":
        values, labels = tables.classes(y)
    else:
        values = tables.numbers(y)
    train, test = _split(values, given, bool(labels))
    features = given.get("features") or [c for c in frame.columns if c != name]
    for c in [*features, *([given["text"]] if "text" in given else [])]:
        if c not in frame.columns:
            raise Fail("bad_input", f"{'features' if c in features else 'text'}: there is no column {c}; there are {tables.listed(frame.columns)}")
        if c == name:
            raise Fail("bad_input", f"features: {c} is the target")
    learn, source = _learned(frame, features, given.get("text") or _only_text(frame, features), train, given.get("model") == "gbt")
    x = learn(frame)
    mean = spread = 0.0
    if not labels:
        mean, spread = float(values[train].mean()), float(values[train].std())
        if spread == 0:
            raise Fail("bad_input", f"target: {name} has the one value {mean:g} in all rows")
        values = ((values - mean) / spread).astype(np.float32)
    return Examples(Data(x[train], values[train]), Data(x[test], values[test]), labels, {**source, "target": name}, y_mean=mean, y_spread=spread or 1.0)


def _learned(
    frame: pd.DataFrame, features: List[str], text: Optional[str], train: np.ndarray, trees: bool
) -> "tuple[Callable[[pd.DataFrame], np.ndarray], Json]":
    if text:
        words = tables.Words.learn(frame[text].iloc[train])
        log(f"learning from {len(words.vocabulary)} words and pairs of words of the column {text}")
        return lambda f: words.apply(f[text]), {"type": "text", "column": text, "vocabulary": words.vocabulary}
    columns = tables.Columns.learn(frame.iloc[train], features)
    log(f"learning from the columns {tables.listed(c['name'] for c in columns.columns)}")
    return lambda f: columns.apply(f, keep_missing=trees), {"type": "table", "columns": columns.columns, "keepMissing": trees}


def _only_text(frame: pd.DataFrame, features: List[str]) -> Optional[str]:
    """The one column of free text, if there is nothing else to learn from."""
    if len(features) != 1:
        return None
    values = frame[features[0]].dropna()
    return features[0] if not pd.api.types.is_numeric_dtype(values) and values.map(lambda v: isinstance(v, str) and " " in v).mean() > 0.5 else None


def _split(y: np.ndarray, given: Json, classes: bool) -> "tuple[np.ndarray, np.ndarray]":
    """Which rows are for training and which are held out: a share of each class."""
    share, rng = given.get("test_size", 0.2), np.random.default_rng(given.get("seed", 0))
    held = []
    for value in np.unique(y) if classes else [None]:
        rows = rng.permutation(np.flatnonzero(y == value) if classes else len(y))
        if classes and len(rows) == 1:
            continue  # it can be learned or measured, not both
        held.append(rows[: min(max(1, round(share * len(rows))), len(rows) - 1)])
    test = np.sort(np.concatenate(held)) if held else np.array([], int)
    if len(test) == 0:
        raise Fail("bad_input", "dataset: no class has two examples, so none can be held out")
    return np.setdiff1d(np.arange(len(y)), test), test
