"""Several processes for one training: this program starts itself again under torchrun, one process for each GPU.

A stage with a launcher or a gang already has its processes: RANK is set.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional

from muster_core import Fail, log, out_dir

from . import settings
from .settings import Plan

PLAN = "MUSTER_TRL_PLAN"  # a file: what was read and brought for all of them
HALVED = "MUSTER_TRL_HALVED"  # how often the batch was halved
STOP = "MUSTER_TRL_STOP"  # a file that is there when the task was asked to stop


def rank() -> int:
    return int(os.environ.get("RANK") or 0)


def world() -> int:
    return int(os.environ.get("WORLD_SIZE") or 1)


def processes(plan: Plan) -> int:
    """How many processes to start; 1 for none but this one."""
    if "RANK" in os.environ:
        return 1
    t = plan.training
    if t.nproc_per_node > 1:
        if not t.allow_multi_gpu:
            raise Fail("bad_input", f"training.nproc_per_node asks for {t.nproc_per_node} processes, but training.allow_multi_gpu forbids more than one: remove one")
        seen = gpus()
        if 0 < seen < t.nproc_per_node and t.device in ("auto", "cuda"):
            raise Fail("bad_input", f"training.nproc_per_node: {t.nproc_per_node} processes need as many GPUs, but the task has {seen}: set resources.gpus")
        return t.nproc_per_node
    if t.device in ("cpu", "mps") or not t.allow_multi_gpu or t.nproc_per_node == 1:
        return 1
    return max(1, gpus())


def gpus() -> int:
    """How many GPUs the task was given; outside of Muster, how many there are."""
    if (granted := os.environ.get("MUSTER_GPUS")) is not None:
        return len([g for g in granted.split(",") if g])
    import torch

    return torch.cuda.device_count()


def alone() -> None:
    """Keep to the first GPU that is visible: the trainers would share a batch among all of them in one process."""
    if "RANK" in os.environ:
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None and gpus() > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    elif visible and "," in visible:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[0]


def halved() -> int:
    return int(os.environ.get(HALVED) or 0)


def parted() -> None:
    """Close the process group of a successful process before Python shuts down: its threads must end first."""
    if "torch" not in sys.modules:
        return
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def stopping() -> bool:
    """Whether the program that started this one was asked to stop."""
    file = os.environ.get(STOP)
    return file is not None and os.path.exists(file)


def together(plan: Plan, n: int) -> None:
    """Train with n processes and end as they do. When memory runs out in one, all begin again with half the batch, if asked to."""
    batch, times = plan.training.batch_size, 0
    while (failure := _failed(plan, n, times)) is not None:
        if failure.get("reason") == "out_of_memory" and plan.training.auto_batch and batch >> (times + 1):
            times += 1
            log(f"memory ran out: trying a batch of {batch >> times}")
            continue
        if "reason" not in failure:
            sys.exit(1)
        raise Fail(failure.pop("reason"), failure.pop("message", "one of the processes failed"), **failure)


def _failed(plan: Plan, n: int, times: int) -> "Optional[Dict[str, Any]]":
    """None if all of them succeeded, otherwise the failure that one of them reported."""
    said = out_dir() / "failure.json"
    said.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        path, stop = Path(folder) / "plan.json", Path(folder) / "stop"
        path.write_text(settings.written(plan), encoding="utf-8")
        threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, (os.cpu_count() or 1) // n))
        env = {**os.environ, PLAN: str(path), STOP: str(stop), "OMP_NUM_THREADS": threads, HALVED: str(times)}
        log(f"training with {n} processes")
        # The processes look at the file after each step. A signal would reach some of them twice, and others in the midst of something.
        before = signal.signal(signal.SIGTERM, lambda number, frame: stop.touch())
        try:
            status = subprocess.run(
                [sys.executable, "-m", f"{__package__}.ranks", "--standalone", f"--nproc_per_node={n}", "-m", f"{__package__}.kind", plan.kind], env=env
            ).returncode
        finally:
            signal.signal(signal.SIGTERM, before)
        if stop.exists():
            sys.exit(128 + signal.SIGTERM)
    if status == 0:
        return None
    try:
        return dict(json.loads(said.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
