"""A model that the kind training made, used again.

    from muster_torch.predict import load

    model = load("model.pt")            # or model.joblib
    model("new.csv")                    # [{"prediction": "versicolor", "confidence": 0.97}, …]

or by hand: python -m muster_torch.predict model.pt new.csv > predictions.jsonl

With neither, it is the program of a kind such as the one in examples/kinds/predict: the input is {"model": …, "data": …}.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Union

import numpy as np
import pandas as pd
from muster_core import fetch, out_dir, report, run

from . import images, tables

Json = Dict[str, Any]


class Model:
    """Predicts each row of a table, or each image of a file or folder."""

    def __init__(self, about: Json, answer: Any) -> None:
        self.about, self._answer = about, answer

    def __call__(self, what: "Union[str, Path, pd.DataFrame]") -> List[Json]:
        out = self._answer(self._examples(what))
        labels = self.about["labels"]
        if not labels:
            return [{"prediction": float(v) * self.about["yScale"][1] + self.about["yScale"][0]} for v in out]
        return [{"prediction": labels[int(p.argmax())], "confidence": float(p.max())} for p in out]

    def _examples(self, what: "Union[str, Path, pd.DataFrame]") -> np.ndarray:
        source = self.about["source"]
        if source["type"] in ("images", "pixels"):
            if isinstance(what, pd.DataFrame):
                raise ValueError("this model takes images, not a table")
            path = Path(what)
            files = sorted(p for p in path.rglob("*") if p.suffix.lower() in images.SUFFIXES) if path.is_dir() else [path]
            if not files:
                raise ValueError(f"{path} has no images")
            x = np.stack([images.one(p, source["size"]) for p in files])
            if source["type"] == "pixels":
                x = x.mean(1, keepdims=True) * self.about["top"] / 255
            return x.astype(np.float32)
        frame = what if isinstance(what, pd.DataFrame) else tables.read(Path(what))
        if source["type"] == "text":
            return tables.Words(source["vocabulary"]).apply(frame[source["column"]])
        return tables.Columns(source["columns"]).apply(frame, keep_missing=source["keepMissing"])


def load(path: "Union[str, Path]") -> Model:
    """A model of the kind training. One with a module of your own needs its file where it was, from the folder you are in.

    model.joblib is a pickle: load only what you trust. model.pt is not.
    """
    if str(path).endswith(".joblib"):
        import joblib

        held = joblib.load(path)
        trees, about = held["model"], json.loads(held["about"])

        def predicted(x: np.ndarray) -> np.ndarray:
            x = x.reshape(len(x), -1)
            if not about["labels"]:
                return np.asarray(trees.predict(x))
            p = np.zeros((len(x), len(about["labels"])))
            p[:, trees.classes_] = trees.predict_proba(x)
            return p

        return Model(about, predicted)
    import torch

    from .nets import build

    held = torch.load(path, map_location="cpu", weights_only=True)
    about = json.loads(held["about"])
    net = build(about["model"], about["shape"], len(about["labels"]), about["modelArgs"])
    net.load_state_dict(held["state_dict"])
    net.eval()
    mean, spread = about["xScale"]

    def answer(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            out = torch.cat([net((torch.from_numpy(part).float() - mean) / spread) for part in np.array_split(x, max(1, len(x) // 256))])
        return np.asarray(out.softmax(1) if about["labels"] else out.reshape(-1))

    return Model(about, answer)


def task(given: Json) -> Json:
    """The work of a task: the predictions are an artifact, and the first 100 in the result."""
    model, data = (fetch.bring(given[field], field) for field in ("model", "data"))
    report(0, "loading the model")
    found = load(model)(data)
    (out_dir() / "predictions.jsonl").write_text("".join(json.dumps(p) + "\n" for p in found), encoding="utf-8")
    return {"predictions": found[:100], "count": len(found), "predictionsUrl": "ipfs://{predictions.jsonl}"}


if __name__ == "__main__":
    if len(sys.argv) == 1 and "MUSTER_INPUT" in os.environ:
        run(task)
        sys.exit()
    if len(sys.argv) != 3:
        sys.exit("usage: python -m muster_torch.predict MODEL FILE|FOLDER")
    for line in load(sys.argv[1])(sys.argv[2]):
        print(json.dumps(line))
