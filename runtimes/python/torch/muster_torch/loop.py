"""The training loop of all kinds that train a network here.

It promises: the same seed gives the same weights on the same machine and versions; a run that was killed and continues from its
checkpoint ends with the same weights as an uninterrupted one; non-finite numbers end it at once, and the last good state
is kept. A batch that does not fit into memory is computed in parts with accumulated gradients: the weights do not
depend on the machine's memory, and a run may continue where another size fits.
"""

import copy
import math
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List

import numpy as np
import torch
from muster_core import Fail, batch, checkpoint, device, log, orderly, report
from torch import nn

from . import curves
from .parts import Data, Outcome

Json = Dict[str, Any]


@dataclass
class Plan:
    epochs: int
    batch_size: int
    learning_rate: float
    seed: int
    classes: int  # 0 for regression
    device: Any
    precision: Any
    optimizer: str = "adam"  # or sgd, with momentum
    weight_decay: float = 0.0
    decay: bool = True  # the learning rate falls to zero along a cosine
    auto_batch: bool = False
    patience: int = 0  # epochs without a better validation loss; 0 never stops early
    checkpoint_every: float = 60.0  # seconds
    # Converts bytes or floats of Data to the network's input.
    prepare: Callable[[torch.Tensor], torch.Tensor] = lambda x: x


class Diverged(Exception):
    """A loss or weight is no longer finite; the outcome has the last good state."""

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


def fit(model: nn.Module, plan: Plan, train: Data, test: Data) -> Outcome:
    """Train a network in place; raises Diverged, or Fail if memory runs out. The network is on the plan's device then."""
    if plan.precision == torch.float16 and plan.device.type == "cpu":
        raise Fail("bad_input", "precision: fp16 needs a GPU: use bf16 or fp32 on a CPU")
    _, size = batch.fitting(min(plan.batch_size, len(train)), plan.device, plan.auto_batch, lambda n: _try(model, plan, train, n))
    return _Run(model, plan, train, test, size).go()


def _try(model: nn.Module, plan: Plan, train: Data, size: int) -> None:
    """Two complete steps with a batch of that size, the second with the optimizer's state in memory. Afterwards the network is restored."""
    kept, rng = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    kept = {k: v.cpu() for k, v in kept.items()}
    try:
        model.to(plan.device)
        run = _Run(model, plan, train, train, size)
        model.train()
        for _ in range(2):
            run.step(run.order(0)[:size])
    finally:
        model.zero_grad(set_to_none=True)
        model.load_state_dict(kept)
        torch.set_rng_state(rng)


class _Run:
    def __init__(self, model: nn.Module, plan: Plan, train: Data, test: Data, size: int) -> None:
        self.model, self.plan, self.train, self.test, self.size = model.to(plan.device), plan, train, test, size
        self.whole = min(plan.batch_size, len(train))  # examples of a step; size of them are computed at once
        # A last batch of one example is joined to the one before: layers that normalise over the batch need two.
        self.batches = max(1, math.ceil(len(train) / self.whole) - (len(train) % self.whole == 1 and self.whole > 1))
        if plan.optimizer == "sgd":
            self.optimizer: Any = torch.optim.SGD(model.parameters(), lr=plan.learning_rate, momentum=0.9, weight_decay=plan.weight_decay)
        else:
            self.optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, weight_decay=plan.weight_decay)
        scales = plan.precision == torch.float16
        self.scaler: Any = (
            torch.amp.GradScaler(plan.device.type, enabled=scales) if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler(enabled=scales)
        )
        self.out = Outcome(batch_size=size)
        self.epoch = self.batch = self.hits = 0  # complete epochs, batches of the current one, right answers in them
        self.loss = self.seconds = 0.0  # sums of the running epoch
        self.saved = self.reported_at = time.monotonic()
        self.curves = curves.Live()

    def go(self) -> Outcome:
        device.seed(self.plan.seed)
        self.resume()
        with orderly() as stopping:
            while self.epoch < self.plan.epochs and not self.out.stopped:
                self.one_epoch(stopping)
        if self.out.weights is not None:
            self.model.load_state_dict(self.out.weights)
        return self.out

    def one_epoch(self, stopping: Callable[[], bool]) -> None:
        began, order = time.monotonic() - self.seconds, self.order(self.epoch)
        self.model.train()
        while self.batch < self.batches:
            picked = order[self.batch * self.whole :] if self.batch == self.batches - 1 else order[self.batch * self.whole : (self.batch + 1) * self.whole]
            loss, hits = self.step(picked)
            if not math.isfinite(loss):
                self.diverged(f"the loss is {'NaN' if math.isnan(loss) else 'infinite'}")
            self.batch, self.loss, self.hits = self.batch + 1, self.loss + loss * len(picked), self.hits + hits
            self.seconds = time.monotonic() - began
            self.tell(loss)
            if stopping() or self.batch < self.batches and time.monotonic() - self.saved >= self.plan.checkpoint_every:
                self.save()
            if stopping():
                log(f"asked to stop: the state after {self.batch} of {self.batches} batches of epoch {self.epoch + 1} is kept")
                sys.exit(143)
        self.end_epoch(began)

    def end_epoch(self, began: float) -> None:
        measured = evaluate(self.model, self.plan, self.test, self.size)
        if not _finite(self.model) or not math.isfinite(measured["loss"]):
            self.diverged("the weights are no longer finite")
        n = len(self.train)
        one: Json = {"epoch": self.epoch + 1, "loss": self.loss / n, "valLoss": measured["loss"], "seconds": round(time.monotonic() - began, 3)}
        if self.plan.classes:
            one["accuracy"], one["valAccuracy"] = self.hits / n, measured["accuracy"]
        else:
            one["valR2"] = measured["r2"]
        self.out.epochs.append(one)
        self.epoch, self.batch, self.hits, self.loss, self.seconds = self.epoch + 1, 0, 0, 0.0, 0.0
        best = min(self.out.epochs, key=lambda e: e["valLoss"])["epoch"]
        if not self.plan.patience or best == self.epoch:
            self.out.weights = {k: v.detach().cpu().clone() for k, v in self.model.state_dict().items()}
        self.out.best = best
        self.out.stopped = bool(self.plan.patience) and self.epoch < self.plan.epochs and self.epoch - best >= self.plan.patience
        figures = {"loss": one["loss"], "val_loss": one["valLoss"]}
        if self.plan.classes:
            figures.update(accuracy=one["accuracy"], val_accuracy=one["valAccuracy"])
        else:
            figures.update(val_r2=one["valR2"])
        report(self.epoch / self.plan.epochs, f"epoch {self.epoch}/{self.plan.epochs}", **figures)
        log(f"epoch {self.epoch}/{self.plan.epochs}: " + ", ".join(f"{k} {v:.4f}" for k, v in figures.items()) + f", {one['seconds']:.1f} s")
        self.save()
        if self.epoch < self.plan.epochs and not self.out.stopped:
            self.curves.show(self.out.epochs, f"after {self.epoch} of {self.plan.epochs} epochs")

    def step(self, picked: np.ndarray) -> "tuple[float, int]":
        """One batch, in as many parts as memory asks for; returns its mean loss and how many answers were right."""
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        value, hits = 0.0, 0
        for part in _parts(picked, self.size):
            x, y = _put(self.train, part, self.plan)
            with device.autocast(self.plan.device, self.plan.precision):
                out = _answer(self.model, x, y, self.plan.classes)
            loss = _loss(out.float(), y, self.plan.classes) * (len(part) / len(picked))
            value += float(loss.detach())
            if not math.isfinite(value):
                return value, 0
            self.scaler.scale(loss).backward()
            hits += int((out.argmax(1) == y).sum()) if self.plan.classes else 0
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return value, hits

    def rate(self) -> float:
        if not self.plan.decay:
            return self.plan.learning_rate
        done = (self.epoch * self.batches + self.batch) / (self.plan.epochs * self.batches)
        return self.plan.learning_rate * (1 + math.cos(math.pi * done)) / 2

    def order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.plan.seed % 2**32, epoch]).permutation(len(self.train))

    def tell(self, loss: float) -> None:
        if time.monotonic() - self.reported_at < 1:
            return
        self.reported_at = time.monotonic()
        seen = min(self.batch * self.whole, len(self.train))
        figures = {"loss": loss}
        if self.plan.classes:
            figures["accuracy"] = self.hits / seen
        fraction = (self.epoch + self.batch / self.batches) / self.plan.epochs
        report(fraction, f"epoch {self.epoch + 1}/{self.plan.epochs}, batch {self.batch}/{self.batches}", **figures)

    def diverged(self, what: str) -> None:
        given = self.plan.learning_rate
        of = "" if math.isclose(self.rate(), given, rel_tol=0.01) else f", to which {given:g} has fallen by then"
        where = f"epoch {self.epoch + 1}, batch {min(self.batch + 1, self.batches)} of {self.batches}, with a learning rate of {self.rate():.3g}{of}"
        kept = f"the weights of epoch {self.epoch} are kept" if self.epoch else "no epoch had ended before"
        raise Diverged(
            f"{what} in {where}: take a smaller learning_rate, such as {min(self.plan.learning_rate / 10, 0.01):.2g}, or look for extreme values in the data; {kept}",
            self.out,
        )

    def save(self) -> None:
        self.saved = time.monotonic()
        if not _finite(self.model):
            return  # the next loss shows it; the previous checkpoint is the last good one
        on_gpu = self.plan.device.type == "cuda"
        checkpoint.save(
            self.epoch * self.batches + self.batch,
            {
                "like": self.like(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.scaler.state_dict(),
                "rng": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state_all() if on_gpu else [],
                "at": [self.epoch, self.batch, self.hits, self.loss, self.seconds],
                "epochs": self.out.epochs,
                "weights": self.out.weights,
                "stopped": self.out.stopped,
            },
        )

    def resume(self) -> None:
        found = checkpoint.load()
        if found is None:
            return
        step, state = found
        if not isinstance(state, dict) or state.get("like") != self.like():
            log("the checkpoint is of another training and is skipped")
            return
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["rng"])
        if state["cuda"] and self.plan.device.type == "cuda" and len(state["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(state["cuda"])
        self.epoch, self.batch, self.hits, self.loss, self.seconds = state["at"]
        self.out.epochs, self.out.weights, self.out.stopped, self.out.resumed = state["epochs"], state["weights"], state["stopped"], step
        if self.out.epochs:
            self.out.best = min(self.out.epochs, key=lambda e: e["valLoss"])["epoch"]
        log(f"continuing from the checkpoint: epoch {self.epoch + 1}, after {self.batch} of {self.batches} batches")

    def like(self) -> Json:
        """What must be the same for a state to be of use."""
        p = self.plan
        return {
            "epochs": p.epochs,
            "batch_size": self.whole,
            "learning_rate": p.learning_rate,
            "seed": p.seed,
            "optimizer": p.optimizer,
            "examples": [len(self.train), len(self.test)],
            "weights": {k: list(v.shape) for k, v in self.model.state_dict().items()},
        }


def evaluate(model: nn.Module, plan: Plan, data: Data, size: int) -> Json:
    """Mean loss, and accuracy or R², over all examples, without learning from them."""
    model.eval()
    total, outs = 0.0, []
    with torch.no_grad():
        for at in range(0, len(data), size):
            x, y = _put(data, np.arange(at, min(at + size, len(data))), plan)
            with device.autocast(plan.device, plan.precision):
                out = _answer(model, x, y, plan.classes)
            total += float(_loss(out.float(), y, plan.classes)) * len(y)
            outs.append((out.argmax(1) if plan.classes else out.float()).cpu().numpy())
    said, n = np.concatenate(outs), len(data)
    if plan.classes:
        return {"loss": total / n, "accuracy": float((said == data.y).mean()), "said": said}
    spread = float(((data.y - data.y.mean()) ** 2).mean())
    error = float(((said - data.y) ** 2).mean())
    return {"loss": total / n, "r2": 1 - error / spread if spread else 0.0, "rmse": math.sqrt(error), "mae": float(np.abs(said - data.y).mean()), "said": said}


def _parts(picked: np.ndarray, size: int) -> List[np.ndarray]:
    """A batch in parts of a size. A last one of a single example is joined to the one before."""
    parts = [picked[at : at + size] for at in range(0, len(picked), size)]
    if len(parts) > 1 and len(parts[-1]) == 1 and size > 1:
        parts[-2:] = [np.concatenate(parts[-2:])]
    return parts


def _put(data: Data, picked: np.ndarray, plan: Plan) -> "tuple[torch.Tensor, torch.Tensor]":
    x, y = torch.from_numpy(data.x[picked]).to(plan.device), torch.from_numpy(data.y[picked]).to(plan.device)
    return plan.prepare(x), y


def _answer(model: nn.Module, x: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    """The network's output with a checked shape: (examples, classes), or (examples,) for regression."""
    shape = tuple(x.shape)
    try:
        out = model(x)
    except (RuntimeError, ValueError, IndexError, TypeError) as e:
        text = str(e).splitlines()[0] if str(e) else type(e).__name__
        if any(s in text for s in ("shape", "size", "dimension", "expected", "channels", "dtype", "index out of range")) and "memory" not in text:
            raise Fail("bad_input", f"the network does not support a batch of the shape {shape}: {text}") from e
        raise
    if not isinstance(out, torch.Tensor):
        raise Fail("bad_input", f"the network returns a {type(out).__name__}, not a tensor")
    if classes:
        if out.dim() != 2 or tuple(out.shape) != (len(y), classes):
            raise Fail(
                "bad_input",
                f"the network returns the shape {tuple(out.shape)} for a batch of {len(y)}, not {(len(y), classes)}: one number for each of the {classes} classes",
            )
        return out
    if out.numel() != len(y):
        raise Fail("bad_input", f"the network returns the shape {tuple(out.shape)} for a batch of {len(y)}, not one number for each")
    return out.reshape(-1)


def _loss(out: torch.Tensor, y: torch.Tensor, classes: int) -> torch.Tensor:
    return nn.functional.cross_entropy(out, y) if classes else nn.functional.mse_loss(out, y)


def _finite(model: nn.Module) -> bool:
    return all(bool(torch.isfinite(v).all()) for v in model.state_dict().values() if v.is_floating_point())
