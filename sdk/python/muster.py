"""Report progress, metrics, artifacts and the result of a task to Muster.

    from muster import progress, metric, save, result

    for epoch in range(7):
        ...
        progress((epoch + 1) / 7, step=f"epoch {epoch + 1}/7", loss=loss)
    save("model.joblib", model)
    result({"accuracy": accuracy})

Every Muster worker puts this module on the path of its tasks. Outside of Muster the same program also runs: progress
goes to stderr, files to the folder "out". The module only needs Python 3.8 or later.
"""

import importlib
import json
import math
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, NoReturn, Optional, Union

__all__ = ["checkpoint_dir", "fail", "index", "live", "metric", "out_dir", "progress", "result", "running", "save"]

_MAX_RESULT = 256 * 1024


def running() -> bool:
    """Whether this program runs as a Muster task."""
    return "MUSTER_TASK" in os.environ


def index() -> str:
    """This task's element of the job's array or matrix, "0" if there is none."""
    return os.environ.get("MUSTER_INDEX", "0")


def progress(fraction: Optional[float] = None, step: Optional[str] = None, **metrics: float) -> None:
    """Report the progress (0 to 1), the current step, and metrics."""
    event: Dict[str, Any] = {}
    if fraction is not None:
        fraction = float(fraction)
        if not -1e-6 <= fraction <= 1 + 1e-6:
            raise ValueError(f"progress must be from 0 to 1, not {fraction}")
        event["progress"] = min(max(fraction, 0.0), 1.0)
    if step is not None:
        event["step"] = str(step)
    for name, value in metrics.items():
        value = float(value)  # also of NumPy and PyTorch scalars
        if math.isfinite(value):  # a diverged loss does not stop the task
            event[name] = value
    if event:
        _send(event)


def metric(**metrics: float) -> None:
    """Report metrics such as loss=0.12."""
    progress(None, None, **metrics)


def result(value: Any) -> None:
    """Set the task's result: any JSON value up to 256 KiB."""
    text = json.dumps(value, allow_nan=False, default=_plain)
    if len(text.encode()) > _MAX_RESULT:
        raise ValueError("the result is larger than 256 KiB: use save() for large data")
    part = out_dir() / ".result.json.part"
    part.write_text(text, encoding="utf-8")
    part.replace(out_dir() / "result.json")


def fail(message: str, reason: str = "bad_input") -> NoReturn:
    """End the program; its task fails with this message and a reason: bad_input, dependency, diverged, out_of_memory or artifact_missing."""
    (out_dir() / "failure.json").write_text(json.dumps({"reason": reason, "message": message}), encoding="utf-8")
    sys.exit(message)


def save(name: Union[str, Path], obj: Any = None) -> Path:
    """Save an artifact and return its path.

    save("notes.txt", "text"), save("raw.bin", b"..."), save("scores.json", {...}) write their second argument. Of other
    objects, figures are drawn (savefig), the rest is written with joblib or pickle. save("plots/a.png") copies a file of the task.
    """
    source = Path(name)
    if ".." in source.parts or source.is_absolute() and obj is not None:
        raise ValueError(f"{name} is outside of the task's artifacts")
    path = out_dir() / (source.name if source.is_absolute() else source)
    path.parent.mkdir(parents=True, exist_ok=True)
    if obj is None:
        shutil.copyfile(source, path)
    elif isinstance(obj, str):
        path.write_text(obj, encoding="utf-8")
    elif isinstance(obj, (bytes, bytearray, memoryview)):
        path.write_bytes(obj)
    elif path.suffix == ".json":
        path.write_text(json.dumps(obj, default=_plain), encoding="utf-8")
    elif hasattr(obj, "savefig"):
        obj.savefig(path)
    else:
        library = importlib.import_module("joblib" if path.suffix == ".joblib" else "pickle")
        with path.open("wb") as file:
            library.dump(obj, file)
    return path


@contextmanager
def live(name: str) -> Iterator[Path]:
    """Publish a file while the task runs, when the block ends without an error: with live("loss.png") as path: figure.savefig(path)."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise ValueError(f"{name!r} is not a plain file name: live files are in one folder")
    part = out_dir() / "live" / f".{name}"  # names that begin with a dot are not published
    part.parent.mkdir(exist_ok=True)
    try:
        yield part
        part.replace(part.with_name(name))
    finally:
        part.unlink(missing_ok=True)


def out_dir() -> Path:
    """The folder whose files become the task's artifacts."""
    path = Path(os.environ.get("MUSTER_OUT", "out"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def checkpoint_dir() -> Path:
    """The task's checkpoint folder: its next attempt gets it on this worker, or on any worker with `checkpoint` in the spec."""
    path = Path(os.environ.get("MUSTER_CHECKPOINT", "checkpoint"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def _send(event: Dict[str, Any]) -> None:
    line = json.dumps(event) + "\n"
    if "MUSTER_EVENTS" in os.environ:
        with open(os.environ["MUSTER_EVENTS"], "ab", buffering=0) as file:
            file.write(line.encode())  # one write, so that lines of threads and processes do not mix
    else:
        sys.stderr.write("progress: " + line)


def _plain(value: Any) -> Any:
    """Convert NumPy's and PyTorch's arrays and scalars, and paths, to JSON values."""
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)
