"""Atomic checkpoints of the Trainer.

The Trainer writes a checkpoint file by file into its folder. Here they are written into a hidden folder, synced to disk, listed with their
sizes and renamed: a kill at any time leaves the previous one, and a damaged one is skipped. The last two are kept,
and the best one if training returns to it.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, List, Optional

from muster_core import Fail, log

_NAME = re.compile(r"checkpoint-(\d+)$")
_LIST = "whole.json"
_KEEP = 2
_ROOM = 1 << 20  # bytes: a disk with less is full


class Whole:
    """Comes before a Trainer in the bases of a class."""

    args: Any
    state: Any
    accelerator: Any
    _part: "Optional[Path]" = None

    def _get_output_dir(self, trial: Any = None) -> str:
        return str(self._part or self.args.output_dir)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """It writes none: the task's result has the parameters of the training."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir)
        name = f"checkpoint-{self.state.global_step}"
        part = folder / f".{name}.part"
        if self.args.should_save:
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        self.accelerator.wait_for_everyone()
        self._part = part
        try:
            super()._save_checkpoint(model, trial)  # type: ignore[misc]
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self._keep(part / name, folder / name)
        except Exception as e:
            if isinstance(e, Fail) or not full(folder):
                raise
            raise Fail("disk_full", f"the disk is full: the checkpoint of step {self.state.global_step} cannot be saved; earlier ones are kept") from e
        finally:
            self._part = None
            if self.args.should_save:
                shutil.rmtree(part, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _keep(self, part: Path, final: Path) -> None:
        if self.state.best_model_checkpoint == str(part):
            self.state.best_model_checkpoint = str(final)
            self.state.save_to_json(str(part / "trainer_state.json"))
        sizes = {}
        for file in sorted(p for p in part.rglob("*") if p.is_file()):
            sizes[str(file.relative_to(part))] = file.stat().st_size
            _to_disk(file)
        (part / _LIST).write_text(json.dumps(sizes), encoding="utf-8")
        _to_disk(part / _LIST)
        _to_disk(part)
        if final.exists():  # a damaged one of this step
            shutil.rmtree(final)
        os.replace(part, final)
        _to_disk(final.parent)
        best = self.state.best_model_checkpoint
        for old in _all(final.parent)[:-_KEEP]:
            if str(old) != best:
                shutil.rmtree(old, ignore_errors=True)


def whole(folder: Path, clear: bool = False) -> "List[Path]":
    """The complete checkpoints, oldest first. With clear, all others are removed."""
    found = [p for p in _all(folder) if _is_whole(p)]
    for rest in (*folder.glob(".checkpoint-*.part"), *_all(folder)) if clear else ():
        if rest not in found:
            shutil.rmtree(rest, ignore_errors=True)
    return found


def agreed(found: "List[Path]") -> "Optional[Path]":
    """The newest checkpoint that every process has: machines of a gang may have been killed at different steps."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        all_names: "List[Any]" = [None] * dist.get_world_size()
        dist.all_gather_object(all_names, [p.name for p in found])
        found = [p for p in found if all(p.name in names for names in all_names)]
    return found[-1] if found else None


def full(folder: Path) -> bool:
    return shutil.disk_usage(folder).free < _ROOM


def _all(folder: Path) -> "List[Path]":
    found = [p for p in folder.glob("checkpoint-*") if p.is_dir() and _NAME.search(p.name)]
    return sorted(found, key=lambda p: int(p.name.rsplit("-", 1)[1]))


def _is_whole(path: Path) -> bool:
    try:
        sizes = json.loads((path / _LIST).read_text(encoding="utf-8"))
        wrong = [name for name, size in sizes.items() if (path / name).stat().st_size != size]
    except (OSError, ValueError) as e:
        log(f"{path.name} is incomplete and is skipped: {e}")
        return False
    if wrong:
        log(f"{path.name} is damaged ({wrong[0]}) and is skipped")
    return not wrong


def _to_disk(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
