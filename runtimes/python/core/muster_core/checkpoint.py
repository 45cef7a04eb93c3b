"""State that survives retries, drains and the loss of a machine: files in $MUSTER_CHECKPOINT.

A file is written under a temporary name and renamed, so that a kill at any time leaves the previous one. A number in its name
orders the files. Incomplete and foreign files are skipped, with a line in the log. States are plain: tensors,
numbers, strings, None, and lists, tuples and dicts of them; loading a file never executes code.
"""

import os
import re
from pathlib import Path
from typing import Any, BinaryIO, Mapping, Optional, cast

from muster import checkpoint_dir

from ._task import log

_NAME = re.compile(r"state-(\d{9})\.pt$")
_KEEP = 2
_FLOAT, _TEXT = "f", "t"


def save(step: int, state: Any) -> Path:
    """Save a state as the one after so many steps (or epochs). The last two are kept."""
    folder = Path(checkpoint_dir())
    path = write(folder / f"state-{step:09d}.pt", _packed(state))
    for old in _states(folder)[:-_KEEP]:
        old.unlink(missing_ok=True)
    return path


def write(path: Path, state: Any) -> Path:
    """Write a file atomically with torch.save. A full disk is an OSError."""
    import torch

    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb", buffering=0) as f:
            sink = _Sink(f)
            torch.save(state, cast(Any, sink))
            if sink.failed:
                raise sink.failed
            os.fsync(f.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


class _Sink:
    """A file that ignores writes after its first error: torch 1.13 aborts the process if write raises, later versions hide the error."""

    def __init__(self, f: BinaryIO) -> None:
        self.f = f
        self.failed: Optional[OSError] = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        whole = len(rest)
        while len(rest) and not self.failed:
            try:
                rest = rest[self.f.write(rest) :]
            except OSError as e:
                self.failed = e
        return whole

    def flush(self) -> None:
        pass


def load(map_location: Any = "cpu") -> "Optional[tuple[int, Any]]":
    """The newest state that can be read and its step, None if there is none."""
    import torch

    for path in reversed(_states(Path(checkpoint_dir()))):
        try:
            state = torch.load(path, map_location=map_location, weights_only=True)
        except Exception as e:  # noqa: BLE001 - a torn file can fail in any way
            log(f"the checkpoint {path.name} cannot be read and is skipped: {e}")
            continue
        match = _NAME.search(path.name)
        assert match
        return int(match[1]), _unpacked(state)
    return None


def _packed(value: Any) -> Any:
    """What the safe loader of every torch reads: that of 1.13 knows no floats, so that they become texts."""
    if type(value) is float or type(value) is str:
        return f"{_FLOAT}{value.hex()}" if type(value) is float else f"{_TEXT}{value}"
    if isinstance(value, Mapping):
        return {k: _packed(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_packed(v) for v in value])
    return value


def _unpacked(value: Any) -> Any:
    if isinstance(value, str):
        return float.fromhex(value[1:]) if value[:1] == _FLOAT else value[1:]
    if isinstance(value, dict):
        return {k: _unpacked(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_unpacked(v) for v in value])
    return value


def _states(folder: Path) -> "list[Path]":
    return sorted(p for p in folder.glob("state-*.pt") if _NAME.search(p.name))
