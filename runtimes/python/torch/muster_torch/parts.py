"""The beginning and the end of a training. PyTorch is not needed here, so that errors of a data set are reported before it is loaded."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional

import numpy as np
from muster_core import Fail


@dataclass
class Data:
    """Examples in memory: the first axis of x counts them. y is int64 for classes, float32 for numbers."""

    x: np.ndarray
    y: np.ndarray

    def __len__(self) -> int:
        return len(self.x)


@dataclass
class Outcome:
    epochs: List[Dict[str, Any]] = field(default_factory=list)
    best: int = 0  # the epoch with the lowest validation loss, from 1
    stopped: bool = False  # before its last epoch, for it got no better
    resumed: int = 0  # batches that earlier attempts had done
    batch_size: int = 0
    weights: Optional[Dict[str, Any]] = None  # after the last complete epoch, or of the best one with patience


def file_of(name: str) -> "tuple[Path, str]":
    """The file and the class of a model that is called FILE.py:CLASS."""
    file, _, wanted = name.partition(":")
    if not (path := Path(file)).is_file():
        raise Fail("bad_input", f"model: {file} is not in the task's folder: add it with files, or use cnn, mlp or gbt")
    return path, wanted
