"""Batches that fit: what to do when memory runs out."""

from typing import Any, Callable, TypeVar

from . import device as devices
from ._task import Fail, explained, say

T = TypeVar("T")


def fitting(size: int, device: Any, halve: bool, work: Callable[[int], T]) -> "tuple[T, int]":
    """Call work with a batch size; when memory runs out, halve it if asked to, down to 1.

    Returns what work returned and the size that fitted. Without halving, or if not even 1 fits, the task
    fails with out_of_memory. What would have fitted is found by trying smaller ones, each at most once:
    work is called only for its memory then, and must be free to be called again.
    """
    failed = size
    while True:
        try:
            return work(size), size
        except Exception as e:  # noqa: BLE001 - only those of memory are caught
            if explained(e)[0] != "out_of_memory":
                raise
            failed, cause = size, str(e).strip().splitlines()[0] if str(e).strip() else "memory ran out"
        devices.release(device)
        if failed <= 1:
            raise Fail("out_of_memory", f"not even a batch of 1 fits into the memory of {devices.describe(device)} ({cause}): take a smaller model or precision, or a device with more memory", batch_size=failed)
        if not halve:
            fits = _probe(failed // 2, device, work)
            advice = f"a batch of {fits} would fit" if fits else "not even a batch of 1 would fit"
            raise Fail("out_of_memory", f"a batch of {failed} does not fit into the memory of {devices.describe(device)} ({cause}): {advice}; set batch_size, or auto_batch: true", batch_size=failed, fits=fits)
        size = failed // 2
        say(f"a batch of {failed} does not fit into memory: trying {size}")


def _probe(size: int, device: Any, work: Callable[[int], Any]) -> int:
    """The largest of size, size/2, … that fits; 0 for none."""
    while size >= 1:
        try:
            work(size)
            return size
        except Exception as e:  # noqa: BLE001
            if explained(e)[0] != "out_of_memory":
                raise
        devices.release(device)
        size //= 2
    return 0
