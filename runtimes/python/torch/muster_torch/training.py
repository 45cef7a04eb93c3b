"""The kind training: a model learned from a data set."""

import json
from pathlib import Path
from typing import Any, Dict

import numpy as np
from muster_core import Fail, checkpoint, device, measured, out_dir, report, run, save_json

from . import curves, examples, parts
from .parts import Outcome

Json = Dict[str, Any]

# Defaults. Boosting has its own.
_EPOCHS = 20
_RATES = {"mlp": 0.003, "cnn": 0.001}


def train(given: Json) -> Json:
    if ":" in given.get("model", ""):
        parts.file_of(given["model"])
    report(0, f"loading {given['dataset'][:80]}")
    data = examples.load(given)
    name = given.get("model") or ("cnn" if data.source["type"] in ("images", "pixels") else "mlp")
    about: Json = {
        "model": name,
        "dataset": given["dataset"],
        "task": "classification" if data.labels else "regression",
        "shape": list(data.train.x.shape[1:]),
        "labels": data.labels,
        "modelArgs": given.get("model_args", {}),
        "xScale": [data.x_mean, data.x_spread],
        "yScale": [data.y_mean, data.y_spread],
        "top": float(data.train.x.max()),
        "source": data.source,
    }
    if name == "gbt":
        return _boost(data, given, about)
    report(0, "loading PyTorch")
    return _learn(data, given, about)


def _learn(data: examples.Examples, given: Json, about: Json) -> Json:
    from . import loop, nets  # late: loading PyTorch is slow, and errors of the data are reported before

    where = device.pick(given.get("device"))
    seed, name = given.get("seed", 0), about["model"]
    device.seed(seed)
    try:
        model = nets.build(name, about["shape"], len(data.labels), about["modelArgs"])
    except TypeError as e:
        raise Fail("bad_input", f"model_args: {name} does not take them: {e}") from None
    plan = loop.Plan(
        epochs=given.get("epochs", _EPOCHS),
        batch_size=given.get("batch_size", 32),
        learning_rate=given.get("learning_rate") or (0.01 if given.get("optimizer") == "sgd" else _RATES.get(name, 0.001)),
        seed=seed,
        classes=len(data.labels),
        device=where,
        precision=device.dtype(given.get("precision"), where),
        optimizer=given.get("optimizer", "adam"),
        weight_decay=given.get("weight_decay", 0.01),
        auto_batch=given.get("auto_batch", False),
        patience=given.get("early_stopping", 0),
        checkpoint_every=given.get("checkpoint_every", 60),
        prepare=lambda x: (x.float() - data.x_mean) / data.x_spread,
    )
    more = {"device": device.describe(where), "parameters": sum(p.numel() for p in model.parameters()), "seed": seed}
    status, why = "success", ""
    try:
        outcome = loop.fit(model, plan, data.train, data.test)
    except loop.Diverged as e:
        outcome, status, why = e.outcome, "diverged", str(e)
        if not outcome.epochs:
            raise Fail("diverged", why) from None
        model.load_state_dict(outcome.weights or {})
    checkpoint.write(out_dir() / "model.pt", {"state_dict": outcome.weights, "about": json.dumps(about)})
    scores = loop.evaluate(model, plan, data.test, outcome.batch_size)
    result = _told(data, outcome, about, scores, {**more, "status": status, "batch_size": outcome.batch_size}, "model.pt", "epoch")
    if status != "success":
        raise Fail("diverged", why)
    return result


def _boost(data: examples.Examples, given: Json, about: Json) -> Json:
    import joblib

    from . import trees

    model, outcome = trees.fit(data, given)
    joblib.dump({"model": model, "about": json.dumps(about)}, out_dir() / "model.joblib")
    test = data.test.x.reshape(len(data.test), -1)
    loss, scores = trees.measure(model, test, data.test.y, data)
    return _told(
        data, outcome, about, {"loss": loss, **scores}, {"device": "cpu", "status": "success", "seed": given.get("seed", 0)}, "model.joblib", "iteration"
    )


def _told(data: examples.Examples, outcome: Outcome, about: Json, scores: Json, more: Json, file: str, unit: str) -> Json:
    """Write the artifacts beside the model; returns the result."""
    final: Json = {"finalLoss": scores["loss"]}
    if data.labels:
        final["finalAccuracy"] = scores["accuracy"]
        headline = f"{scores['accuracy']:.2%} of {len(data.test)} right"
    else:
        # In the target's own unit, not in that of the loss.
        final.update(finalR2=scores["r2"], finalRmse=scores["rmse"] * data.y_spread, finalMae=scores["mae"] * data.y_spread)
        headline = f"R² {scores['r2']:.3f} on {len(data.test)}"
    last = outcome.epochs[-1]
    result: Json = {
        "jobType": "training",
        "modelUrl": f"ipfs://{{{file}}}",
        "finalMetrics": final,
        "computationData": {"epoch": last["epoch"], "loss": last["loss"], **({"accuracy": last["accuracy"]} if data.labels else {})},
        "epochs": outcome.epochs[-500:],
        "bestEpoch": outcome.best,
        "stoppedEarly": outcome.stopped,
        "resumedAfter": outcome.resumed,
        "examples": {"training": len(data.train), "heldOut": len(data.test)},
        **{k: about[k] for k in ("model", "task", "dataset")},
        "labels": data.labels[:100],
        **more,
    }
    detail: Json = {**result, "epochs": outcome.epochs}
    if data.labels and len(data.labels) <= 200:
        confusion = np.zeros((len(data.labels), len(data.labels)), int)
        np.add.at(confusion, (data.test.y, scores["said"]), 1)
        detail["confusion"] = confusion.tolist()
    save_json("metrics.json", measured(detail))
    save_json("preprocessing.json", {k: about[k] for k in ("source", "labels", "shape", "xScale", "yScale")})
    curves.draw(outcome.epochs, f"{Path(about['dataset']).name[:60]}, {about['model']}: {headline}", unit)
    return dict(measured(result))


if __name__ == "__main__":
    run(train)
