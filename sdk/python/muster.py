"""What a task tells Muster: progress, metrics, artifacts and its result.

    from muster import progress, metric, save, result

    for epoch in range(7):
        ...
        progress((epoch + 1) / 7, step=f"epoch {epoch + 1}/7", loss=loss)
    save("model.joblib", model)
    result({"accuracy": accuracy})

Every Muster worker puts this module on the path of its tasks. Outside Muster the same program runs too: progress
goes to stderr, files to the folder "out". The module needs Python 3.8 or later and nothing else.
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
    """Show how far the task is (0 to 1), what it does now, and any figures."""
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
        if math.isfinite(value):  # a diverged loss is no reason to stop the task
            event[name] = value
    if event:
        _send(event)


def metric(**metrics: float) -> None:
    """Show figures such as loss=0.12."""
    progress(None, None, **metrics)


def result(value: Any) -> None:
    """Set the task's result: anything that JSON can say, up to 256 KiB."""
    text = json.dumps(value, allow_nan=False, default=_plain)
    if len(text.encode()) > _MAX_RESULT:
        raise ValueError("the result is larger than 256 KiB: save() what is big")
    part = out_dir() / ".result.json.part"
    part.write_text(text, encoding="utf-8")
    part.replace(out_dir() / "result.json")


def fail(message: str, reason: str = "bad_input") -> NoReturn:
    """End the program; its task fails with this sentence and a reason: bad_input, dependency, diverged, out_of_memory or artifact_missing."""
    (out_dir() / "failure.json").write_text(json.dumps({"reason": reason, "message": message}), encoding="utf-8")
    sys.exit(message)


def save(name: Union[str, Path], obj: Any = None) -> Path:
    """Keep an artifact and return where it lies.

    save("notes.txt", "text"), save("raw.bin", b"..."), save("scores.json", {...}) write what they are given. Of other
    objects a figure is drawn (savefig), the rest goes to joblib or pickle. save("plots/a.png") copies a file of the task.
    """
    source = Path(name)
    if ".." in source.parts or source.is_absolute() and obj is not None:
        raise ValueError(f"{name} would lie outside the task's artifacts")
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
    """Show a file while the task runs, whole, once the block ends well: with live("loss.png") as path: figure.savefig(path)."""
    if not name or name.startswith(".") or Path(name).name != name:
        raise ValueError(f"{name!r} is no plain file name: live shows the files of one folder")
    part = out_dir() / "live" / f".{name}"  # what begins with a dot is not shown
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
    """A folder that the next attempt of this task finds again on this worker."""
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
    """JSON's view of NumPy's and PyTorch's arrays and scalars, and of paths."""
    for convert in ("tolist", "item"):
        if hasattr(value, convert):
            return getattr(value, convert)()
    return str(value)
