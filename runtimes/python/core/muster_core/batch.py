"""Batches that fit: what to do when memory runs out.

On a GPU, the allocation fails and the program continues. On a CPU, the kernel kills the process. Therefore the program's own
allocations are limited to what its control group has left while a batch is tried, so that they fail instead.
"""

import re
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, TypeVar

from . import device as devices
from ._task import Fail, explained, log, report

T = TypeVar("T")

_SPARE = 32 << 20  # of the control group's memory, for stacks and page tables
_UNLIMITED = 1 << 60


def fitting(size: int, device: Any, halve: bool, work: Callable[[int], T], probe: Optional[Callable[[int], Any]] = None) -> "tuple[T, int]":
    """Call work with a batch size; when memory runs out, halve it if requested, down to 1.

    Returns the result of work and the size that fitted. Without halving, or if not even 1 fits, the task
    fails with out_of_memory; its message and its detail `fits` have the largest of size/2, size/4, … that fits. Each size
    is tried by calling probe, a cheaper function that needs the same memory, or else work; both may be called several
    times. The current size is reported as the metric batch_size, in case the kernel kills the task nevertheless.
    """
    if size < 1:
        raise Fail("bad_input", f"batch_size: {size} is too small: write at least 1")
    while True:
        report(batch_size=size)
        done, value, cause = tried(size, device, work)
        if done:
            return value, size
        if size == 1:
            raise Fail(
                "out_of_memory",
                f"not even a batch of 1 fits into the memory of {devices.describe(device)} ({cause}): take a smaller model or precision, or a worker with more memory",
                batch_size=1,
                fits=0,
            )
        if not halve:
            fits = _largest(size // 2, device, probe or work)
            advice = f"a batch of {fits} fits: set batch_size: {fits}, or auto_batch: true" if fits else "not even a batch of 1 fits: take a smaller model or precision, or a worker with more memory"
            raise Fail("out_of_memory", f"a batch of {size} does not fit into the memory of {devices.describe(device)} ({cause}); {advice}", batch_size=size, fits=fits)
        log(f"a batch of {size} does not fit into memory ({cause}): trying {size // 2}")
        size //= 2


def _largest(size: int, device: Any, probe: Callable[[int], Any]) -> int:
    """The first of size, size/2, … that fits; 0 for none."""
    while size >= 1:
        report(step=f"trying a batch of {size}", batch_size=size)
        if tried(size, device, probe)[0]:
            devices.release(device)
            return size
        size //= 2
    return 0


def tried(size: int, device: Any, work: Callable[[int], Any]) -> "tuple[bool, Any, str]":
    """Whether memory was sufficient, the result, and otherwise which memory ran out."""
    try:
        with _held(device):
            return True, work(size), ""
    except Exception as e:  # noqa: BLE001 - only those of memory are caught
        if explained(e)[0] != "out_of_memory":
            raise
        # What was computed so far hangs on the frames of the exception: without them it can be freed.
        for link in _chain(e):
            traceback.clear_frames(link.__traceback__)
            link.__traceback__ = None
        cause = _lacked(str(e))
    devices.release(device)
    return False, None, cause


def _lacked(text: str) -> str:
    """What ran out, without where in the library's sources that was seen."""
    if asked := re.search(r"tried to allocate ([\d.]+) ?(bytes|[KMGT]iB)", text, re.I):
        most = f"{int(asked[1]) / 1e6:,.0f} MB" if asked[2] == "bytes" else f"{asked[1]} {asked[2]}"
        return f"there was no room for {most} more"
    lines = text.strip().splitlines()
    return lines[0][:200].rstrip(". ") if lines else "memory ran out"


def _chain(e: Optional[BaseException]) -> Iterator[BaseException]:
    seen = set()
    while e is not None and id(e) not in seen:
        seen.add(id(e))
        yield e
        e = e.__cause__ or e.__context__


@contextmanager
def _held(device: Any) -> Iterator[None]:
    """On a CPU: allocations fail where the control group's memory ends, so that the kernel need not kill."""
    left = memory_left() if device.type == "cpu" else None
    if left is None:
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = [v for v in (_data() + max(left - _SPARE, 0), soft, hard) if v != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(most), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_left(root: str = "/") -> Optional[int]:
    """Bytes that the control groups of this process still allow, None without a limit or if it cannot be read."""
    found = [left for group in _groups(Path(root)) if (left := _left(group)) is not None]
    return min(found) if found else None


def _data() -> int:
    """Bytes of memory that count for RLIMIT_DATA."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _groups(root: Path) -> Iterator[Path]:
    """The folders of this process' control groups that may limit memory, of version 1 and 2, from the inside out."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            tops = [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        elif "memory" in controllers.split(","):
            tops = [root / "sys/fs/cgroup/memory"]
        else:
            continue
        for top in tops:
            group = top / name.lstrip("/")
            if not group.is_dir():
                group = top  # in a container, which sees its own group as the root
            while group.is_dir():
                yield group
                if group == top:
                    break
                group = group.parent


def _left(group: Path) -> Optional[int]:
    for limit, used, files in (("memory.max", "memory.current", r"^(?:in)?active_file (\d+)"), ("memory.limit_in_bytes", "memory.usage_in_bytes", r"^total_(?:in)?active_file (\d+)")):
        try:
            most = (group / limit).read_text().strip()
            if most == "max" or int(most) > _UNLIMITED:
                continue
            cached = sum(int(n) for n in re.findall(files, (group / "memory.stat").read_text(), re.M))  # the kernel drops it when memory is short
            return max(int(most) - int((group / used).read_text()) + cached, 0)
        except (OSError, ValueError):
            continue
    return None
