"""What is seen of a training while it runs, and how it is stopped."""

import math
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from muster_core import Fail, log, report
from transformers import TrainerCallback

# Metrics of the libraries and their names here. Others keep their names, with _ for other characters than letters.
_NAMES = {"mean_token_accuracy": "accuracy", "eval_mean_token_accuracy": "eval_accuracy", "rewards/margins": "margin", "rewards/accuracies": "preferred"}
_NOT_SHOWN = ("total_flos", "train_loss", "_runtime", "_per_second", "num_tokens", "tokens_seen", "epoch")
_PART = 0.98  # of the progress is training, the rest is packing


class Watch(TrainerCallback):
    """Reports every step, and has the state saved when the task is asked to stop."""

    def __init__(self) -> None:
        self.stopping: "Callable[[], bool]" = lambda: False
        self.stopped = False
        self.began = self.reported_at = time.monotonic()
        self.seen = 0  # tokens before

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began, self.seen = time.monotonic(), state.num_input_tokens_seen

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self._asked(args):
            self.stopped = control.should_training_stop = True
            control.should_save = state.global_step < state.max_steps
        if state.is_world_process_zero and time.monotonic() - self.reported_at > 0.2:
            self.reported_at = time.monotonic()
            report(*self._where(state))

    def _asked(self, args: Any) -> bool:
        """Whether any process was asked to stop: all of them end after the same step."""
        asked = self.stopping()
        if args.world_size > 1:
            import torch

            flag = torch.tensor([int(asked)], device=args.device)
            torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
            asked = bool(flag.item())
        return asked

    def on_log(self, args: Any, state: Any, control: Any, logs: "Dict[str, Any] | None" = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        if not (figures := shown(logs)):
            return
        seconds = time.monotonic() - self.began
        if seconds > 0 and (tokens := state.num_input_tokens_seen - self.seen) > 0:
            figures["tokens_per_second"] = tokens / seconds
        fraction, step = self._where(state)
        report(fraction, step, **figures)
        line = ", ".join(f"{k} {v:.4g}" for k, v in figures.items())
        log(f"{step}: {line}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            log(f"checkpoint of step {state.global_step} saved")

    @staticmethod
    def _where(state: Any) -> "tuple[float, str]":
        epoch = max(1, math.ceil(round(state.epoch or 0, 6)))
        return _PART * min(1.0, state.global_step / max(1, state.max_steps)), f"step {state.global_step}/{state.max_steps}, epoch {epoch}/{max(epoch, math.ceil(state.num_train_epochs))}"


def shown(logs: "Dict[str, Any]") -> "Dict[str, float]":
    """The figures of a log entry that are shown, by their names here."""
    return {
        _NAMES.get(k) or k.replace("rewards/", "reward_").replace("/", "_"): float(v)
        for k, v in logs.items()
        if isinstance(v, (int, float)) and not k.endswith(_NOT_SHOWN)
    }


def ruined(losses: "List[float]", every: int, guessing: float) -> "Optional[Tuple[float, float]]":
    """The loss at the beginning and at the end of a training that made the model useless, else None.

    A useless model is at least twice as bad as before and worse than guessing. The minimum of the first losses is compared with the median of the
    last tenth, at least three steps, each loss being the mean of as many steps: single bad batches, and runs that merely learn nothing, do not count.
    With fewer than six steps the halves are compared, and the loss must be twice as bad as guessing, because of bad batches. One step is not enough.
    """
    if len(losses) < 2:
        return None
    window, worse = max(-(-3 // every), len(losses) // 10), guessing
    if len(losses) < 2 * window:
        window, worse = len(losses) // 2, 2 * guessing
    first, last = min(losses[:window]), statistics.median(losses[-window:])
    return (first, last) if last > 2 * first and last > worse else None


class Finite:
    """Base class before a Trainer: a loss or a gradient that is not finite ends the training at once."""

    args: Any
    state: Any

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        if not math.isfinite(value := loss.item()):
            raise self._diverged(f"the loss is {value}")
        return loss

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        """Called before each step of the optimizer, which would apply non-finite gradients to the weights."""
        norm = super()._get_grad_norm(*args, **kwargs)  # type: ignore[misc]
        if not self.args.fp16 and not math.isfinite(value := float(norm)):  # with fp16 such steps are left out, and the scale is lowered
            raise self._diverged(f"the gradient is {value}")
        return norm

    def _diverged(self, what: str) -> Fail:
        step, rate, given = self.state.global_step + 1, self._get_learning_rate(), self.args.learning_rate  # type: ignore[attr-defined]
        of = "" if math.isclose(rate, given, rel_tol=1e-3) else f", which the schedule made of {given:g}"
        return Fail(
            "diverged",
            f"{what} at step {step} with a learning rate of {rate:g}{of}: lower learning_rate, add warmup, or use precision fp32 or bf16; "
            "checkpoints from before are kept",
            step=step,
        )
