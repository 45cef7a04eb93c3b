"""Curves of a training as a picture."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List

from muster_core import live, out_dir

# The pairs of series that share an axis: of the training, of the data held out, and what both are called.
_AXES = (("loss", "valLoss", "loss"), ("accuracy", "valAccuracy", "accuracy"), ("", "valR2", "R²"))


class Live:
    """Draws the curves of a running training, at most as often as the drawing time permits."""

    def __init__(self, every: float = 10.0) -> None:
        self.every, self.at = every, time.monotonic()

    def show(self, epochs: "List[Dict[str, Any]]", title: str) -> None:
        began = time.monotonic()
        if began - self.at < self.every:
            return
        with suppress(OSError), live("curves.png") as path:  # a training is worth more than its picture
            _draw(path, epochs, title, "epoch")
        self.at = time.monotonic()
        self.every = max(self.every, 50 * (self.at - began))


def draw(epochs: "List[Dict[str, Any]]", title: str, unit: str = "epoch") -> Path:
    """curves.png: the values of the list of epochs over the epochs. It replaces the previous one."""
    path = out_dir() / "curves.png"
    _draw(path, epochs, title, unit)
    (out_dir() / "live/curves.png").unlink(missing_ok=True)
    return path


def _draw(path: Path, epochs: "List[Dict[str, Any]]", title: str, unit: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    axes = [a for a in _AXES if a[0] in epochs[0] or a[1] in epochs[0]]
    figure = Figure(figsize=(5 * len(axes), 3.6), layout="constrained")
    figure.suptitle(title)
    at = [e["epoch"] for e in epochs]
    for place, (train, held, name) in zip(figure.subplots(1, len(axes), squeeze=False)[0], axes):
        for key, label in ((train, "training"), (held, "held out")):
            if key in epochs[0]:
                place.plot(at, [e[key] for e in epochs], marker="o" if len(at) < 30 else None, label=label)
        place.set_xlabel(unit)
        place.set_ylabel(name)
        place.grid(alpha=0.3)
        place.legend()
    figure.savefig(path, dpi=110)
