import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from muster_core import Fail, batch

pytest.importorskip("torch")
CPU = SimpleNamespace(type="cpu")


@pytest.fixture(autouse=True)
def outside(monkeypatch, tmp_path):
    monkeypatch.setenv("MUSTER_EVENTS", str(tmp_path / "events"))


def needs(limit, calls):
    def work(size):
        calls.append(size)
        if size > limit:
            raise MemoryError(f"{size} is too much")
        return size * 10

    return work


def test_a_batch_that_does_not_fit_is_halved_until_it_does():
    calls = []
    assert batch.fitting(24, CPU, True, needs(5, calls)) == (30, 3)
    assert calls == [24, 12, 6, 3]


def test_without_halving_the_size_that_fits_is_tried_and_told():
    calls, probes = [], []
    with pytest.raises(Fail, match="a batch of 8 does not fit .*8 is too much.*a batch of 2 fits") as e:
        batch.fitting(8, CPU, False, needs(3, calls), probe=needs(3, probes))
    assert (calls, probes) == ([8], [4, 2])
    assert (e.value.reason, e.value.detail) == ("out_of_memory", {"batch_size": 8, "fits": 2})


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes. Error code 12", "no room for 4,295 MB more"),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB", "no room for 2.00 GiB more"),
    ],
)
def test_errors_of_pytorch_are_explained(given, want):
    def work(size):
        raise MemoryError(given)

    assert want in batch.tried(1, CPU, work)[2]


@pytest.mark.parametrize("halve", [True, False])
def test_nothing_fits(halve):
    with pytest.raises(Fail, match="not even a batch of 1 fits") as e:
        batch.fitting(4, CPU, halve, needs(0, []))
    assert e.value.detail["fits"] == 0


def test_other_errors_are_not_taken_for_memory():
    with pytest.raises(ZeroDivisionError):
        batch.fitting(4, CPU, True, lambda size: 1 // 0)


def test_what_was_computed_is_freed_before_the_next_try():
    freed = []

    class Big:
        def __del__(self):
            freed.append(True)

    def work(size):
        held = Big()
        if size > 1:
            assert len(freed) == (2 - size // 2)
            try:
                raise KeyError(held)
            except KeyError as e:
                raise MemoryError() from e
        return len(freed)

    assert batch.fitting(4, CPU, True, work) == (2, 1)


# A program whose batches take 64 MiB an item, and which may have about 200.
PROGRAM = """
import resource, sys
from types import SimpleNamespace
import torch
from muster_core import batch
torch.ones(4).sum()
def work(size):
    held = torch.ones(size * 16 << 20)
    return int(held.numel())
LIMIT
print(batch.fitting(8, SimpleNamespace(type="cpu"), True, work)[1])
"""

# How much the files take that the kernel keeps for it depends on what it kept before: they are no part of the limit.
LIMIT = """
kept = sum(int(line.split()[1]) for line in open(G + "/memory.stat") if line.startswith(("total_active_file ", "total_inactive_file ")))
used = int(open(G + "/memory.usage_in_bytes").read())
open(G + "/memory.limit_in_bytes", "w").write(str(used - kept + (200 << 20)))"""


def program(limit, **kwargs):
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-c", PROGRAM.replace("LIMIT", limit)], env=env, capture_output=True, text=True, timeout=600, **kwargs)


def test_a_real_limit_of_the_address_space_halves():
    done = program('now = int(open("/proc/self/statm").read().split()[0]) * 4096\nresource.setrlimit(resource.RLIMIT_AS, (now + (200 << 20),) * 2)')
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2"
    assert "a batch of 8 does not fit into memory" in done.stdout


def test_a_real_control_group_halves_instead_of_a_kill():
    """Without the hold on allocations the kernel would kill the program at 8."""
    top = Path("/sys/fs/cgroup/memory")
    group = top / f"muster-test-batch-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as e:
        pytest.skip(f"no control group can be made: {e}")
    try:
        # The group is entered before anything is allocated, so that all of the program counts.
        done = program(f"G = {str(group)!r}\n{LIMIT}", preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "2"
    finally:
        leave(group)


def leave(group):
    """Removes a control group. The kernel may count the process that was in it for a moment longer than its parent does."""
    end = time.monotonic() + 30
    while True:
        try:
            return group.rmdir()
        except OSError as e:
            if e.errno != errno.EBUSY or time.monotonic() > end:
                raise
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("own", "files", "left"),
    [
        ("0::/a/b\n", {"a/memory.max": "1000", "a/memory.current": "700", "a/memory.stat": "active_file 50\ninactive_file 100\n", "a/b/memory.max": "max", "a/b/memory.current": "7"}, 450),
        ("0::/../../gone\n", {"memory.max": "1000", "memory.current": "1200", "memory.stat": ""}, 0),
        ("0::/a\n", {"a/memory.max": "max", "a/memory.current": "1"}, None),
        (
            "4:cpu:/x\n3:memory:/j\n",
            {"memory/j/memory.limit_in_bytes": "900", "memory/j/memory.usage_in_bytes": "400", "memory/j/memory.stat": "total_inactive_file 10\n", "memory/memory.limit_in_bytes": str((1 << 63) - 4096)},
            510,
        ),
        ("", {}, None),
    ],
)
def test_what_control_groups_leave(tmp_path, own, files, left):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert batch.memory_left(str(tmp_path)) == left
