import gzip
import hashlib
import json

import numpy as np
import pytest
import torch
from muster_core import models
from muster_torch import curves, idx, loop

KIND = "muster_torch.mnist"


def weights(task):
    return torch.load(task.out / "model.pt", weights_only=True)["state_dict"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_digits_are_read_and_all_is_told(task):
    t = task(KIND)
    result = t.result(dataset="digits", epochs=8)
    assert result["finalAccuracy"] > 0.97
    assert [e["epoch"] for e in result["epochs"]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert set(result["epochs"][0]) == {"epoch", "loss", "accuracy", "valLoss", "valAccuracy", "seconds"}
    assert result["modelUrl"] == "ipfs://{model.pt}"
    assert (t.out / "curves.png").read_bytes().startswith(b"\x89PNG")
    confusion = np.array(t.json("metrics.json")["confusion"])
    assert confusion.sum() == 360 and confusion.trace() / 360 == pytest.approx(result["finalAccuracy"], abs=1e-6)
    events = [json.loads(line) for line in (t.folder / "events").read_text().splitlines()]
    steps = {e.get("step"): e for e in events}
    assert steps["epoch 2/8"]["loss"] == result["epochs"][1]["loss"]
    assert [e["progress"] for e in events if "progress" in e] == sorted(e["progress"] for e in events if "progress" in e)


def test_curves_are_shown_while_it_trains(task, monkeypatch):
    t, seen = task(KIND), []
    monkeypatch.setattr(curves.Live.__init__, "__defaults__", (0.0,))
    shows = curves.Live.show
    monkeypatch.setattr(curves.Live, "show", lambda self, *rest: (shows(self, *rest), seen.append((t.out / "live/curves.png").read_bytes())))
    t.here(dataset="digits", epochs=3)
    assert len(seen) == 2 and seen[0].startswith(b"\x89PNG") and not list((t.out / "live").iterdir()) and (t.out / "curves.png").exists()


def test_a_task_that_was_killed_ends_as_one_that_was_not(task):
    given = {"dataset": "digits", "epochs": 2, "seed": 7, "checkpoint_every": 0}
    whole, again, killed = task(KIND, "whole"), task(KIND, "again"), task(KIND, "killed")
    expected = whole.result(**given)
    again.here(**given)
    assert same(weights(whole), weights(again)), "the same seed gives other weights"

    # 23 batches an epoch, a checkpoint after each: killed in the middle of the second.
    killed.dies("state-000000030.pt", "state-000000045.pt", **given)
    assert not killed.out.joinpath("result.json").exists()
    result = killed.result(**given)
    assert 30 <= result["resumedAfterBatches"] < 46
    assert same(weights(whole), weights(killed))
    without = [{k: v for k, v in e.items() if k != "seconds"} for e in result["epochs"]]
    assert without == [{k: v for k, v in e.items() if k != "seconds"} for e in expected["epochs"]]


def test_one_that_is_asked_to_stop_saves_what_it_has(task):
    t = task(KIND)
    process = t.start(dataset="digits", epochs=5000, checkpoint_every=3600)
    for line in process.stdout:
        if "epoch 2/" in line:
            break
    process.terminate()
    rest, _ = process.communicate(timeout=600)
    assert process.returncode == 143
    assert "is kept" in rest or "Traceback" not in rest
    assert list((t.folder / "checkpoint").glob("state-*.pt"))


def test_a_loss_that_is_not_finite_ends_it_and_keeps_what_was_good(task, monkeypatch):
    t = task(KIND)
    reason, message = t.refused(dataset="digits", learning_rate=1e30)
    assert reason == "diverged"
    assert "epoch 1, batch 2 of 23" in message and "learning_rate" in message
    assert not (t.out / "model.pt").exists()

    # It fails in the second epoch if the weights are spoiled after the first, as a defective device would.
    bad = task(KIND, "bad")
    step = loop._Run.step

    def spoiled(run, picked):
        if run.epoch == 1 and run.batch == 3:
            next(run.model.parameters()).data.fill_(float("nan"))
        return step(run, picked)

    monkeypatch.setattr(loop._Run, "step", spoiled)
    reason, message = bad.refused(dataset="digits")
    assert reason == "diverged" and "the loss is NaN in epoch 2, batch 4 of 23" in message and "the weights of epoch 1 are kept" in message
    assert all(torch.isfinite(v).all() for v in weights(bad).values())
    assert bad.json("metrics.json")["status"] == "diverged" and len(bad.json("metrics.json")["epochs"]) == 1


def write(folder, name, shape, magic, cut=0, pack=False, top=10):
    body = np.random.default_rng(len(name)).integers(0, top, int(np.prod(shape)), dtype=np.uint8).tobytes()
    raw = magic.to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in shape) + body
    raw = raw[: len(raw) - cut]
    if pack:
        raw = gzip.compress(raw)
    (folder / (name + (".gz" if pack else ""))).write_bytes(raw)


def idx_files(folder, pack=False, train=64, test=32):
    folder.mkdir(exist_ok=True)
    for which, n in (("train", train), ("t10k", test)):
        write(folder, f"{which}-images-idx3-ubyte", (n, 28, 28), 2051, pack=pack, top=255)
        write(folder, f"{which}-labels-idx1-ubyte", (n,), 2049, pack=pack)


@pytest.mark.parametrize("pack", [False, True])
def test_idx_files_of_a_folder(task, pack):
    t = task(KIND)
    idx_files(t.folder / "mine", pack)
    reason, message = t.refused(data="mine")
    assert reason == "bad_input" and "train-images" in message and "SHA-256" in message and "verify: false" in message
    result = t.here(data="mine", verify=False, epochs=1, limit=40)
    assert result["examples"] == {"training": 40, "heldOut": 32}


def damaged(folder, what):
    name = "train-images-idx3-ubyte"
    if what == "magic":
        write(folder, name, (64, 28, 28), 2052)
    elif what == "short":
        write(folder, name, (64, 28, 28), 2051, cut=5)
    elif what == "gzip":
        write(folder, name, (64, 28, 28), 2051, pack=True)
        (folder / (name + ".gz")).write_bytes((folder / (name + ".gz")).read_bytes()[:-300])
        (folder / name).unlink()
    elif what == "count":
        write(folder, name, (63, 28, 28), 2051)
    elif what == "label":
        write(folder, "t10k-labels-idx1-ubyte", (32,), 2049, top=200)
    elif what == "missing":
        (folder / name).unlink()
    elif what == "tiny":
        write(folder, name, (64, 4, 4), 2051)


@pytest.mark.parametrize(
    ("what", "want"),
    [
        ("magic", "train-images-idx3-ubyte is not an IDX file of images: its magic number is 2052, not 2051"),
        ("short", "train-images-idx3-ubyte has 50187 bytes, but its header requires 50192"),
        ("gzip", "train-images-idx3-ubyte.gz is damaged: it is truncated"),
        ("count", "the train files have 63 images and 64 labels"),
        ("label", "t10k-labels-idx1-ubyte has the label"),
        ("missing", "has no file train-images-idx3-ubyte"),
        ("tiny", "has the shape (64, 4, 4)"),
    ],
)
def test_damaged_files_are_named(tmp_path, what, want):
    idx_files(tmp_path)
    damaged(tmp_path, what)
    with pytest.raises(idx.Fail) as e:
        idx.mnist(str(tmp_path), verify=False)
    assert e.value.reason == "bad_input" and want in str(e.value)


def test_without_a_mirror_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path))
    monkeypatch.setattr(idx, "MIRRORS", ("http://mnist.invalid/",))
    with pytest.raises(idx.Fail) as e:
        idx.mnist(None, verify=True)
    assert e.value.reason == "dependency"
    assert str(e.value).startswith("MNIST cannot be downloaded (http://mnist.invalid/") and str(e.value).endswith("or choose dataset: digits")


def test_a_mirror_is_held_to_the_checksums_and_its_files_are_kept(tmp_path, monkeypatch, serve):
    models._held.clear()  # of other folders
    there = tmp_path / "mirror"
    idx_files(there, pack=True)
    base = serve(there)
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(idx, "MIRRORS", ("http://mnist.invalid/", base))
    with pytest.raises(idx.Fail, match="not MNIST's file") as e:
        idx.mnist(None, verify=True)
    assert e.value.reason == "dependency"

    sums = {name: hashlib.sha256(gzip.decompress((there / f"{name}.gz").read_bytes())).hexdigest() for name in idx.FILES}
    monkeypatch.setattr(idx, "FILES", sums)
    first = idx.mnist(None, verify=True)
    for file in there.iterdir():
        file.unlink()
    assert all(np.array_equal(a, b) for a, b in zip(first, idx.mnist(None, verify=True))), "not from the folder of models"
    assert models.free("mnist") is None  # clear_cache leaves it where it is
    broken = tmp_path / "models" / "datasets" / "mnist" / "t10k-labels-idx1-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:-4])
    with pytest.raises(idx.Fail, match="cannot be downloaded"):
        idx.mnist(None, verify=True)


def test_a_full_disk_is_a_reason(task, small_disk):
    t = task(KIND)
    t.env["MUSTER_CHECKPOINT"] = str(small_disk(64))
    reason, message = t.failure(dataset="digits", epochs=1)
    assert reason == "disk_full" and "No space left" in message


def test_memory_that_runs_out_is_told_with_what_would_fit(task, tmp_path):
    t = task(KIND)
    # A GiB of addresses over what the libraries take: 64 images of 448 by 448 do not fit, a few do.
    t.module = "limited"
    (t.folder / "limited.py").write_text(
        "import resource, runpy, torch, sklearn.model_selection\n"
        "now = int(next(l for l in open('/proc/self/status') if l.startswith('VmSize')).split()[1]) * 1024\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 30), now + (1 << 30)))\n"
        f"runpy.run_module('{KIND}', run_name='__main__')\n"
    )
    folder = t.folder / "large"
    folder.mkdir()
    for which, n in (("train", 64), ("t10k", 8)):
        write(folder, f"{which}-images-idx3-ubyte", (n, 448, 448), 2051, top=255)
        write(folder, f"{which}-labels-idx1-ubyte", (n,), 2049)
    t.env["PYTHONPATH"] = f"{t.folder}:{t.env['PYTHONPATH']}"
    given = {"data": "large", "verify": False, "batch_size": 64, "epochs": 1}
    reason, message = t.failure(**given)
    assert reason == "out_of_memory"
    fits = t.json("failure.json")["fits"]
    assert 1 <= fits < 64 and f"a batch of {fits} fits" in message
