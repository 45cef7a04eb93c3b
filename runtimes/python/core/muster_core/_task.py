"""A task's life: its input, its reports, its end."""

import errno
import json
import math
import os
import re
import signal
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Optional

import muster

Json = Dict[str, Any]

# Messages of libraries that have no own exception for a lack of memory.
_NO_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "not enough memory", "_status_alloc_failed", "std::bad_alloc")

# A sentence that begins with a field of the input; the server and the worker write input.epochs.
_FIELD = re.compile(r"[a-z]+(_[a-z]+)*(\.\w+|\[\d+\])*: ")

# The reasons that a task may report. The worker verifies disk_full.
REASONS = ("bad_input", "dependency", "diverged", "out_of_memory", "artifact_missing", "disk_full")


class Fail(Exception):
    """Ends the task with a reason and one sentence: what, where, what to do."""

    def __init__(self, reason: str, message: str, **detail: Any) -> None:
        if reason not in REASONS:
            raise ValueError(f"{reason} is not a valid reason of a failure")
        super().__init__(message)
        self.reason = reason
        self.detail = detail


def given() -> Json:
    """The stage's input, {} if it has none. The worker has checked it against the kind's schema."""
    path = os.environ.get("MUSTER_INPUT")
    if not path:
        return {}
    with open(path, encoding="utf-8") as f:
        value = json.load(f)
    if not isinstance(value, dict):
        raise Fail("bad_input", "the input is not an object of fields and values")
    return value


def report(fraction: Optional[float] = None, step: Optional[str] = None, **metrics: float) -> None:
    """Report progress from 0 to 1, the current step, and metrics; see muster.progress."""
    metrics = measured(metrics)
    if _listener is not None:
        _listener(fraction, step, metrics)
    else:
        muster.progress(fraction, step, **metrics)


_listener: "Optional[Callable[[Optional[float], Optional[str], Dict[str, float]], None]]" = None


def listen(to: "Optional[Callable[[Optional[float], Optional[str], Dict[str, float]], None]]") -> None:
    """Have reports go to a function, as in a process that works for other tasks; None: to the task's own."""
    global _listener
    _listener = to


def log(line: str) -> None:
    """A line for the task's log."""
    print(line, flush=True)


def measured(value: Any) -> Any:
    """The value with each float rounded to six digits, for display: measurements are not more precise. Do not compute with the result."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {k: measured(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [measured(v) for v in value]
    return value


def save_json(name: str, value: Any) -> Path:
    """A JSON file among the task's artifacts. NaN and infinity become null."""
    return muster.save(name, json.dumps(_finite(value), indent=1))


def run(work: Callable[[Json], Optional[Json]], says: bool = True) -> None:
    """Run a kind to its end and exit: 0, or 1 with failure.json, or 128+15 when asked to stop.

    The message of an expected failure is also written to the log, unless says is False: for one of several processes, whose parent reads failure.json and writes it once.

    SIGTERM raises SystemExit in the main thread, so that `finally` blocks save the state.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        result = work(given())
        if result is not None:
            muster.result(_finite(result))
    except Fail as e:
        _failed(e.reason, str(e), says, **e.detail)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as e:  # noqa: BLE001 - it is reported to the user
        reason, message = explained(e)
        if reason is None:  # unexpected: the traceback helps
            traceback.print_exc()
            sys.exit(1)
        _failed(reason, message, says)


@contextmanager
def orderly() -> "Iterator[Callable[[], bool]]":
    """Within this context, SIGTERM does not interrupt: the returned function reports whether it was received.

        with orderly() as stopping:
            for batch in batches:
                step(batch)
                if stopping():
                    save()
                    sys.exit(143)

    For loops whose state must stay consistent. Only in the main thread.
    """
    asked = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGTERM, before)


def explained(e: BaseException) -> "tuple[Optional[str], str]":
    """The reason of an exception, None if it is unknown, and a message."""
    name = type(e).__name__
    if isinstance(e, ImportError):
        return "dependency", f"the Python package {e.name or '?'} cannot be used here ({e}): run muster runtime check on the worker, or install it for the interpreter of --python"
    if isinstance(e, MemoryError) or name == "OutOfMemoryError" or isinstance(e, OSError) and e.errno == errno.ENOMEM or any(t in str(e).lower() for t in _NO_MEMORY):
        return "out_of_memory", f"memory ran out: {_first(e)}: take a smaller batch, or a worker with more"
    if isinstance(e, OSError) and e.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk_full", f"the disk is full: {_first(e)}"
    return None, str(e)


def _first(e: BaseException) -> str:
    text = str(e).strip().splitlines()
    return text[0].rstrip(".")[:300] if text else type(e).__name__


def _failed(reason: str, message: str, says: bool, **detail: Any) -> None:
    if _FIELD.match(message):
        message = "input." + message
    body = {"reason": reason, "message": message, **_finite(detail)}
    if says:
        print(f"{reason}: {message}", file=sys.stderr, flush=True)
    try:
        with open(os.path.join(muster.out_dir(), "failure.json"), "w", encoding="utf-8") as f:
            json.dump(body, f)
    except OSError as e:
        print(f"failure.json cannot be written: {e}", file=sys.stderr)
    sys.exit(1)


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value
