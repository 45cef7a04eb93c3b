"""The kinds fine_tuning, sft, lora_sft, dpo and ppo: python -m muster_trl.kind NAME"""

import logging
import os
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, Optional

from muster_core import Fail, checkpoint_dir, log, orderly, report, run

from . import base, launch, rows, settings
from .settings import Plan

Json = Dict[str, Any]


def train(kind: str, given: Json) -> "Optional[Json]":
    """Train, in this process or by starting several."""
    if file := os.environ.get(launch.PLAN):
        return _here(settings.again(Path(file).read_text(encoding="utf-8")))
    plan = settings.plan(kind, given)
    n = launch.processes(plan)
    load = (given.get("checkpoint") or {}).get("load")
    report(0, f"reading model {plan.model['name']}")
    plan = base.brought(plan, load)
    plan = replace(plan, dataset=rows.brought(plan.dataset, "dataset"), eval_dataset=rows.brought(plan.eval_dataset, "eval_dataset"))
    if n > 1:
        launch.together(plan, n)
        return None
    launch.alone()
    return _here(plan)


def _here(plan: Plan) -> "Optional[Json]":
    report(0, "reading the data set")
    data = rows.parts(plan)  # its errors are reported before the libraries are loaded, which is slow
    report(0, "loading libraries")
    import transformers
    from muster_core import batch

    from . import finish, teach

    transformers.utils.logging.disable_progress_bar()
    # A resumed state has absolute numbers of steps instead of shares, and the batch size that fitted then.
    logging.getLogger("transformers.trainer_utils").addFilter(lambda record: "`trainer_state.json`" not in record.getMessage())

    began = time.monotonic()
    course = teach.course(plan, *data)
    t = plan.training

    def work(size: int, trial: bool = False) -> Any:
        size = max(n for n in range(1, size + 1) if t.batch_size % n == 0)  # so that each step learns from as many rows, whatever fits
        return _trained(course, size, t.gradient_accumulation * (t.batch_size // size), trial)

    try:
        if launch.world() > 1:  # halving is the launcher's: all processes have to do it at once
            done = work(t.batch_size >> launch.halved())
        else:
            done, _ = batch.fitting(t.batch_size, course.device, t.auto_batch, work, lambda size: work(size, True))
    except Fail:
        if launch.rank() == 0:
            finish.remains()
        raise
    if launch.rank() != 0:
        return None
    trainer, resumed = done
    return finish.result(plan, trainer, course, began, resumed)


def _trained(course: Any, size: int, accumulation: int, trial: bool) -> Any:
    """Train with batches of a size to the end, continuing from a checkpoint; or only try whether one fits."""
    from muster_core._task import explained

    from . import saves, teach, watch

    seen = watch.Watch()
    made: Any = None
    try:
        made = teach.trainer(course, size, accumulation, [] if trial else [seen], trial)
        resumed = None if trial else saves.agreed(saves.whole(Path(checkpoint_dir()), clear=made.args.should_save))
        if resumed:
            log(f"continuing from {resumed.name}")
        with orderly() as stopping:
            seen.stopping = lambda: stopping() or launch.stopping()
            made.train(resume_from_checkpoint=str(resumed) if resumed else None)
    except Exception as e:
        if launch.world() > 1 and not isinstance(e, Fail) and explained(e)[0] == "out_of_memory":
            raise Fail("out_of_memory", f"a batch of {size} for each process does not fit into memory: reduce batch_size, or set training.auto_batch: true", batch_size=size) from e
        raise
    if seen.stopped and made.state.global_step < made.state.max_steps:
        log(f"asked to stop: the state after step {made.state.global_step} is saved")
        sys.exit(143)
    return made, resumed


def main() -> None:
    # Turn off telemetry and progress bars of the libraries.
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "warning")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)  # PEFT asks Transformers for something by its former name
    run(lambda given: train(sys.argv[1], given), says=launch.PLAN not in os.environ)
    launch.parted()


if __name__ == "__main__":
    main()
