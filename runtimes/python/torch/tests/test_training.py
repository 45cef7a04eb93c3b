import io
import json
import sys
import tarfile
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from muster_core import Fail, checkpoint
from muster_torch import examples, tables
from muster_torch.predict import load
from PIL import Image

KIND = "muster_torch.training"


def pictures(folder, count=12, size=(20, 12)):
    """Red pictures and blue ones."""
    rng = np.random.default_rng(0)
    for name, channel in (("blue", 2), ("red", 0)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 90, (size[1], size[0], 3), dtype=np.uint8)
            pixels[..., channel] += 150
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    return folder


def flowers(path):
    """A table with all sorts of columns and missing values."""
    rng = np.random.default_rng(0)
    n = 200
    kind = rng.integers(0, 3, n)
    table = pd.DataFrame(
        {
            "id": [f"row-{i}" for i in range(n)],
            "petal": kind + rng.normal(0, 0.2, n),
            "colour": np.array(["white", "red", "blue"])[kind],
            "wild": rng.random(n) > 0.5,
        }
    )
    table.loc[::7, "petal"] = np.nan
    table.loc[::5, "colour"] = None
    table["species"] = np.array(["rose", "tulip", "iris"])[kind]
    table.to_csv(path, index=False)
    return table


def test_the_result_is_that_of_the_guide(task):
    t = task(KIND)
    result = t.here(dataset="digits", epochs=8, seed=1)
    assert result["jobType"] == "training" and result["status"] == "success"
    assert result["modelUrl"] == "ipfs://{model.pt}"
    assert result["finalMetrics"]["finalAccuracy"] > 0.97 and result["finalMetrics"]["finalLoss"] < 0.2
    assert result["computationData"]["epoch"] == 8 and set(result["computationData"]) == {"epoch", "loss", "accuracy"}
    assert len(result["epochs"]) == 8
    assert {p.name for p in t.out.iterdir()} - {"live"} == {"model.pt", "metrics.json", "preprocessing.json", "curves.png"}


def test_a_table_with_missing_values_and_a_model_that_is_used_again(task):
    t = task(KIND)
    table = flowers(t.folder / "flowers.csv")
    result = t.here(dataset="flowers.csv", target="species", epochs=30)
    assert result["finalMetrics"]["finalAccuracy"] > 0.8
    assert result["labels"] == ["iris", "rose", "tulip"] and result["model"] == "mlp"
    said = load(t.out / "model.pt")(table.drop(columns="species"))
    right = np.mean([s["prediction"] == truth for s, truth in zip(said, table["species"])])
    assert right > 0.8


def test_a_model_is_used_by_a_kind_of_its_own(task):
    """The one in examples/kinds/predict has this program."""
    t = task(KIND)
    flowers(t.folder / "flowers.csv")
    t.here(dataset="flowers.csv", target="species", epochs=1)
    (t.out / "model.pt").rename(t.folder / "model.pt")
    t.module = "muster_torch.predict"
    result = t.result(model="model.pt", data="flowers.csv")
    assert result["count"] == 200 and len(result["predictions"]) == 100 and set(result["predictions"][0]) == {"prediction", "confidence"}
    assert len((t.out / "predictions.jsonl").read_text().splitlines()) == 200
    reason, message = t.failure(model="model.pt", data="no.csv")
    assert reason == "bad_input" and message.startswith("input.data: no.csv is not in the task's folder")


def test_a_module_that_is_not_there_is_told_before_pytorch_is_loaded(task, tmp_path):
    t = task(KIND)
    (tmp_path / "torch.py").write_text("raise RuntimeError('PyTorch is loaded')")
    t.env["PYTHONPATH"] = f"{tmp_path}:{t.env['PYTHONPATH']}"
    assert t.failure(dataset="iris", model="no.py:Net")[1].startswith("input.model: no.py is not in the task's folder")
    flowers(t.folder / "flowers.csv")
    assert t.failure(dataset="flowers.csv", target="colr")[1].startswith("input.target: there is no column colr")


def test_regression_tells_errors_in_the_targets_unit(task):
    result = task(KIND).here(dataset="diabetes", model="gbt", epochs=30)
    assert set(result["finalMetrics"]) == {"finalLoss", "finalR2", "finalRmse", "finalMae"}
    assert 40 < result["finalMetrics"]["finalRmse"] < 80 and result["modelUrl"] == "ipfs://{model.joblib}"


def test_trees_go_on_where_they_were_killed(task):
    given = {"dataset": "flowers.csv", "model": "gbt", "epochs": 40, "target": "species"}
    whole, killed = task(KIND, "whole"), task(KIND, "killed")
    for t in (whole, killed):
        flowers(t.folder / "flowers.csv")
    expected = whole.here(**given)
    killed.dies("trees-000000010.joblib", "trees-000000038.joblib", **given)
    result = killed.result(**given)
    assert 10 <= result["resumedAfter"] < 40
    assert result["epochs"] == expected["epochs"] and result["finalMetrics"] == expected["finalMetrics"]
    assert load(killed.out / "model.joblib")(killed.folder / "flowers.csv")[0]["prediction"] in ("rose", "tulip", "iris")


@pytest.mark.parametrize("how", ["folder", "zip", "tar"])
def test_images_of_a_folder_for_each_class(task, how, monkeypatch):
    t = task(KIND)
    folder = pictures(t.folder / "pictures")
    dataset = "pictures"
    if how == "zip":
        dataset = "pictures.zip"
        with zipfile.ZipFile(t.folder / dataset, "w") as z:
            for p in folder.rglob("*.png"):
                z.write(p, p.relative_to(t.folder))
    elif how == "tar":
        dataset = "pictures.tar.gz"
        with tarfile.open(t.folder / dataset, "w:gz") as z:
            z.add(folder, "pictures")
    if how == "folder":
        result = t.here(dataset=dataset, image_size=16, epochs=8, early_stopping=4)
        assert result["finalMetrics"]["finalAccuracy"] == 1 and result["labels"] == ["blue", "red"]
        assert load(t.out / "model.pt")(folder / "red")[0]["prediction"] == "red"
    else:
        monkeypatch.chdir(t.folder)
        assert len(examples.load({"dataset": dataset, "image_size": 16}).train) == 20


def test_texts_are_told_apart_by_their_words(task):
    t = task(KIND)
    rng = np.random.default_rng(0)
    good, bad = "fine lovely great splendid nice".split(), "awful poor broken dull nasty".split()
    rows = [{"review": " ".join(["the thing was", *rng.choice(good if n % 2 else bad, 3)]), "label": "good" if n % 2 else "bad"} for n in range(120)]
    (t.folder / "reviews.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = t.here(dataset="reviews.jsonl", epochs=5)
    assert result["finalMetrics"]["finalAccuracy"] > 0.9
    said = load(t.out / "model.pt")(pd.DataFrame({"review": ["a lovely and splendid thing", "dull and broken"]}))
    assert [s["prediction"] for s in said] == ["good", "bad"]


MODULE = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, inputs, outputs, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs[0] * inputs[1] * inputs[2], width), nn.ReLU(), nn.Linear(width, outputs))
    def forward(self, x):
        return self.layers(x)

class Wrong(Net):
    def forward(self, x):
        return super().forward(x)[:, :3]

class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 10)
    def forward(self, x):
        return self.layer(x)

class Bad(Net):
    def forward(self, x):
        return super().forward(x) * torch.tensor(float("nan"))

class Hungry(Net):
    def forward(self, x):
        if len(x) > int(os.environ.get("ROOM", 4)):
            torch.empty(10**15)
        return super().forward(x)
"""


def test_a_module_of_the_users(task):
    t = task(KIND)
    (t.folder / "nets.py").write_text(MODULE)
    result = t.here(dataset="digits", model="nets.py:Net", model_args={"width": 32}, epochs=4, learning_rate=0.01)
    assert result["finalMetrics"]["finalAccuracy"] > 0.8


def test_what_is_wrong_with_a_module_is_told(task):
    for name, reason, want in [
        ("Wrong", "bad_input", "returns the shape (32, 3) for a batch of 32, not (32, 10)"),
        ("Other", "bad_input", "does not support a batch of the shape (32, 1, 8, 8)"),
        ("Nix", "bad_input", "nets.py has no class Nix"),
        ("Bad", "diverged", "the loss is NaN in epoch 1, batch 1 of"),
        ("Hungry", "out_of_memory", "a batch of 4 fits"),
    ]:
        t = task(KIND, name)
        (t.folder / "nets.py").write_text(MODULE)
        got, message = t.refused(dataset="digits", model=f"nets.py:{name}", epochs=1)
        assert got == reason and want in message, message


def test_a_batch_that_does_not_fit_is_halved_if_asked(task):
    t = task(KIND)
    (t.folder / "nets.py").write_text(MODULE)
    result = t.here(dataset="digits", model="nets.py:Hungry", epochs=1, auto_batch=True)
    assert result["batch_size"] == 4


def test_a_run_goes_on_where_another_batch_fits(task, monkeypatch):
    """The batch is computed in parts: the weights are those of a machine with room for all of it."""
    given = {"dataset": "digits", "model": "nets.py:Hungry", "epochs": 2, "batch_size": 32, "auto_batch": True}
    weights = {}
    for name in ("roomy", "moved"):
        t = task(KIND, name)
        (t.folder / "nets.py").write_text(MODULE)
        monkeypatch.setenv("ROOM", "32")
        if name == "moved":
            save = checkpoint.save

            def save_and_end(*args, save=save):
                save(*args)
                sys.exit(143)

            with monkeypatch.context() as lost, pytest.raises(SystemExit):
                lost.setattr(checkpoint, "save", save_and_end)
                t.here(**given)
            monkeypatch.setenv("ROOM", "7")
        result = t.here(**given)
        weights[name] = torch.load(t.out / "model.pt", weights_only=True)["state_dict"]
    assert (result["batch_size"], result["resumedAfter"], [e["epoch"] for e in result["epochs"]]) == (4, 45, [1, 2])
    assert all(torch.allclose(weights["roomy"][k], weights["moved"][k], atol=1e-3) for k in weights["roomy"])


def test_early_stopping_keeps_the_best(task):
    t = task(KIND)
    result = t.here(dataset="wine", epochs=400, early_stopping=5, learning_rate=0.02)
    assert result["stoppedEarly"] and len(result["epochs"]) == result["bestEpoch"] + 5
    best = min(e["valLoss"] for e in result["epochs"])
    assert result["finalMetrics"]["finalLoss"] == pytest.approx(best, rel=1e-4)


def zipped(**files):
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as z:
        for name, content in files.items():
            z.writestr(name, content)
    return raw.getvalue()


BAD = {
    "fields.csv": (b"a,target\n1,2\n3,4,5\n", "fields.csv is damaged: line 3 has 3 fields, not 2"),
    "empty.csv": (b"", "empty.csv is empty"),
    "latin.csv": (b"a,target\n1,x\n2,\xff\n", "latin.csv is not UTF-8 text (line 3)"),
    "rows.csv": (b"a,target\n", "rows.csv has no rows"),
    "none.csv": (b"a,b\n1,2\n", "required: the column to learn; there are a, b"),
    "one.csv": (b"a,target\n" + b"1,x\n" * 9, "all rows are of the one class x"),
    "same.csv": (b"a,target\n" + b"".join(b"%d,%d.5\n" % (i, 3) for i in range(9)), "target has the one value 3.5"),
    "no.jsonl": (b'{"a": 1}\n{"a"\n', "no.jsonl line 2 is not JSON"),
    "no.zip": (b"PK\x03\x04 and nothing", "no.zip cannot be unpacked"),
    "out.zip": (zipped(**{"../x.png": b"1"}), "is outside of its folder"),
    "no.dat": (b"x", "unknown format of no.dat"),
    "one.png": (b"x", "is one image"),
    "flat.zip": (zipped(**{"a.png": b"1"}), "has no folder for each class"),
    "bad.zip": (zipped(**{"p/a/1.png": b"1", "p/b/2.png": b"1"}), "1.png is damaged or not an image"),
    "alone.zip": (zipped(**{"a/1.png": b"1"}), "a folder for each class is needed"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_data_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content, want = BAD[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Fail) as e:
        examples.load({"dataset": name})
    assert e.value.reason == "bad_input" and want in str(e.value)


def test_data_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("a,target\n")
    for dataset, want in [
        ("imagenet", "imagenet is neither built in (digits, mnist, iris"),
        ("tarin.csv", "tarin.csv is not in the task's folder"),
        ("train.csv", "has no rows"),
    ]:
        with pytest.raises(Fail) as e:
            examples.load({"dataset": dataset})
        assert want in str(e.value)


def test_parquet(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    monkeypatch.chdir(tmp_path)
    flowers(tmp_path / "f.csv").to_parquet(tmp_path / "f.parquet")
    assert examples.load({"dataset": "f.parquet", "target": "species"}).labels == ["iris", "rose", "tulip"]
    (tmp_path / "no.parquet").write_bytes(b"PAR1")
    with pytest.raises(Fail, match="no.parquet is damaged"):
        examples.load({"dataset": "no.parquet"})


def test_what_the_target_is_for():
    assert tables.task_of(pd.Series([0, 1] * 50)) == "classification"
    assert tables.task_of(pd.Series(["a", "b"])) == "classification"
    assert tables.task_of(pd.Series(range(100))) == "regression"
    assert tables.task_of(pd.Series([0.5, 1.5] * 50)) == "regression"
