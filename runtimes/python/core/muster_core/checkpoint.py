"""State that survives retries, drains and the loss of a machine: files in $MUSTER_CHECKPOINT.

A file is written beside and renamed, so that a kill at any time leaves the one before. Which is the newest
is told by a number in its name. A torn or foreign file is passed over with a word in the log.
"""

import os
import re
from pathlib import Path
from typing import Any, Optional

from muster import checkpoint_dir

from ._task import say

_NAME = re.compile(r"state-(\d{9})\.pt$")
_KEEP = 2


def save(step: int, state: Any) -> Path:
    """Save what torch can save, as the state after so many steps (or epochs). The last two are kept."""
    import torch

    folder = Path(checkpoint_dir())
    path = folder / f"state-{step:09d}.pt"
    part = folder / f".{path.name}.part"
    try:
        with open(part, "wb") as f:
            torch.save(state, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    for old in _states(folder)[:-_KEEP]:
        old.unlink(missing_ok=True)
    return path


def load(map_location: Any = "cpu") -> "Optional[tuple[int, Any]]":
    """The newest state that can be read and its step, None if there is none."""
    import torch

    for path in reversed(_states(Path(checkpoint_dir()))):
        try:
            state = torch.load(path, map_location=map_location)
        except Exception as e:  # noqa: BLE001 - a torn file can fail in any way
            say(f"the checkpoint {path.name} cannot be read and is passed over: {e}")
            continue
        match = _NAME.search(path.name)
        assert match
        return int(match[1]), state
    return None


def _states(folder: Path) -> "list[Path]":
    return sorted(p for p in folder.glob("state-*.pt") if _NAME.search(p.name))
