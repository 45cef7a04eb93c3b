"""The kind mnist_training: a convolutional network that reads handwritten digits."""

from typing import Any, Dict

import numpy as np
import torch
from muster_core import Fail, checkpoint, device, measured, out_dir, report, run, save_json

from . import curves, idx, loop
from .nets import CNN
from .parts import Data, Outcome

Json = Dict[str, Any]


def train(given: Json) -> Json:
    dataset = given.get("dataset", "mnist")
    seed = given.get("seed", 0)
    where = device.pick(given.get("device"))
    report(0, f"loading {dataset}")
    training, test = _digits(seed) if dataset == "digits" else _mnist(given)
    if (limit := given.get("limit")) is not None:
        few = np.random.default_rng(seed).permutation(len(training))[:limit]
        training = Data(training.x[few], training.y[few])
    mean, spread = float(training.x.mean()), float(training.x.std())
    if spread == 0:
        raise Fail("bad_input", "data: all pixels of all images are the same")
    plan = loop.Plan(
        epochs=given.get("epochs", 5),
        batch_size=given.get("batch_size", 64),
        learning_rate=given.get("learning_rate", 0.01),
        seed=seed,
        classes=10,
        device=where,
        precision=device.dtype(given.get("precision"), where),
        optimizer="sgd",
        auto_batch=given.get("auto_batch", False),
        checkpoint_every=given.get("checkpoint_every", 60),
        prepare=lambda x: (x.float().unsqueeze(1) - mean) / spread,
    )
    device.seed(seed)
    shape = training.x.shape[1:]
    model = CNN((1, *shape), 10)
    parameters = sum(p.numel() for p in model.parameters())
    about = {
        "dataset": dataset,
        "device": device.describe(where),
        "parameters": parameters,
        "examples": {"training": len(training), "heldOut": len(test)},
        "seed": seed,
    }
    try:
        outcome = loop.fit(model, plan, training, test)
    except loop.Diverged as e:
        if e.outcome.epochs:
            model.load_state_dict(e.outcome.weights or {})
            _keep(model, plan, e.outcome, test, {**about, "status": "diverged", "why": str(e)}, mean, spread)
        raise Fail("diverged", str(e)) from None
    return _keep(model, plan, outcome, test, {**about, "status": "success"}, mean, spread)


def _keep(model: CNN, plan: loop.Plan, outcome: Outcome, test: Data, about: Json, mean: float, spread: float) -> Json:
    """Write the artifacts; returns the result."""
    last = outcome.epochs[-1]
    # Who uses the model again needs how its images were prepared: (pixels - mean) / spread.
    about_model = {"shape": [1, *test.x.shape[1:]], "classes": 10, "mean": torch.tensor(mean), "spread": torch.tensor(spread), "dataset": about["dataset"]}
    checkpoint.write(out_dir() / "model.pt", {"state_dict": outcome.weights, **about_model})
    result = {
        "jobType": "mnist_training",
        "finalAccuracy": last["valAccuracy"],
        "finalLoss": last["valLoss"],
        "epochs": outcome.epochs[-500:],
        "modelUrl": "ipfs://{model.pt}",
        "batch_size": outcome.batch_size,
        "resumedAfterBatches": outcome.resumed,
        **about,
    }
    confusion = np.zeros((10, 10), int)
    np.add.at(confusion, (test.y, loop.evaluate(model, plan, test, outcome.batch_size)["said"]), 1)
    save_json("metrics.json", measured({**result, "epochs": outcome.epochs, "confusion": confusion.tolist()}))
    curves.draw(outcome.epochs, f"{about['dataset']}: {last['valAccuracy']:.2%} of {about['examples']['heldOut']} right")
    return dict(measured(result))


def _mnist(given: Json) -> "tuple[Data, Data]":
    a, b, c, d = idx.mnist(given.get("data"), given.get("verify", True))
    return Data(a, b.astype(np.int64)), Data(c, d.astype(np.int64))


def _digits(seed: int) -> "tuple[Data, Data]":
    """The 1,797 scans that scikit-learn ships, a fifth of them held out. They are the same fifth for every seed."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    x = x.reshape(-1, 8, 8).astype(np.uint8)
    a, b, c, d = train_test_split(x, y.astype(np.int64), test_size=0.2, random_state=0, stratify=y)
    return Data(a, c), Data(b, d)


if __name__ == "__main__":
    run(train)
