"""Train a small neural network on real handwritten digits.

The data are the 1,797 scans of 8x8 pixels that scikit-learn ships (UCI "Optical
Recognition of Handwritten Digits"). A quarter is held out; the accuracy on it is
the job's result.
"""

import argparse
import os
from pathlib import Path

import joblib
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import muster
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED", "1")))
args = parser.parse_args()

digits = load_digits()
x_train, x_test, y_train, y_test = train_test_split(
    digits.data / 16.0, digits.target, test_size=0.25, stratify=digits.target, random_state=args.seed
)
print(f"{len(x_train)} scans to train on, {len(x_test)} held out", flush=True)

model = MLPClassifier(hidden_layer_sizes=(64,), learning_rate_init=0.003, random_state=args.seed)
classes = np.unique(y_train)
rng = np.random.default_rng(args.seed)
for epoch in range(1, args.epochs + 1):
    order = rng.permutation(len(x_train))
    model.partial_fit(x_train[order], y_train[order], classes=classes)
    loss = log_loss(y_train, model.predict_proba(x_train))
    accuracy = accuracy_score(y_test, model.predict(x_test))
    muster.progress(epoch / args.epochs, step=f"epoch {epoch}/{args.epochs}", loss=loss, accuracy=accuracy)
    print(f"epoch {epoch:3d}  loss {loss:.4f}  held-out accuracy {accuracy:.4f}", flush=True)

out = Path(os.environ.get("MUSTER_OUT", "."))
joblib.dump(model, out / "model.joblib")
ConfusionMatrixDisplay.from_predictions(y_test, model.predict(x_test), cmap="Blues", colorbar=False)
plt.title(f"held-out accuracy {accuracy:.3f}")
plt.savefig(out / "confusion.png", dpi=120, bbox_inches="tight")
muster.result({"accuracy": accuracy, "loss": loss, "epochs": args.epochs, "seed": args.seed})
