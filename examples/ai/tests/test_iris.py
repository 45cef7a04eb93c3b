"""What must be true of the model before anybody uses it. metrics.json is an artifact of the stage before."""

import json
from pathlib import Path

METRICS = json.loads(Path("metrics.json").read_text())


def test_it_is_right_most_of_the_time():
    assert METRICS["finalMetrics"]["finalAccuracy"] >= 0.9


def test_it_was_learning_to_the_end():
    losses = [epoch["valLoss"] for epoch in METRICS["epochs"]]
    assert losses[-1] < losses[0] / 2


def test_it_does_not_only_know_its_own_data_by_heart():
    last = METRICS["epochs"][-1]
    assert last["valAccuracy"] >= last["accuracy"] - 0.1
