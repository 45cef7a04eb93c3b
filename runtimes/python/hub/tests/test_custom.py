import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("huggingface_hub")

from muster_core import Fail, models
from muster_hub import custom

WEIGHTS = b"w" * 5000
BERT = {"config.json": b"{}", "model.safetensors": WEIGHTS, "pytorch_model.bin": WEIGHTS, "tf_model.h5": WEIGHTS, "onnx/model.onnx": WEIGHTS}


@pytest.fixture
def bert(hub):
    hub.repositories["google-bert/bert-base-uncased"] = BERT
    return hub


def folder(name):
    return custom.hub() / models.cached_as(name)


def test_the_guides_example(bert, tmp_path):
    """setup_environment clears what is there, and downloads bert and vit under the hub's names."""
    bert.repositories["google/vit-base-patch16-224"] = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    bert.repositories["old/model"] = {"config.json": b"{}", "model.safetensors": WEIGHTS}
    custom.perform({"name": "prepare_models", "parameters": {"models": ["old/model"]}})
    models._held.pop("models--old--model").close()
    result = custom.perform({"name": "setup_environment", "parameters": {"clear_cache": True, "prepare_models": ["bert", "vit"]}})
    cleared, prepared = result["done"]
    assert (cleared["removed"], cleared["in_use"]) == (["models--old--model"], [])
    assert cleared["freed"] > 5000
    assert not folder("old/model").exists()
    assert [m["model"] for m in prepared["models"]] == ["google-bert/bert-base-uncased", "google/vit-base-patch16-224"]
    for m in prepared["models"]:
        assert (m["files"], m["bytes"], m["verified"]) == (2, 5002, True)
        assert m["downloaded"] > 5000
    assert "google-bert/bert-base-uncased/pytorch_model.bin" not in bert.fetched
    assert json.loads((tmp_path / "out/custom.json").read_text())["done"] == result["done"]
    again = custom.perform({"name": "prepare_models", "parameters": {"models": ["bert"]}})
    assert again["done"][0]["models"][0]["downloaded"] == 0


def test_damaged_files_are_fetched_again(bert):
    first = custom.perform({"name": "prepare_models", "parameters": {"models": ["bert"]}})["done"][0]["models"][0]
    path = next(folder("google-bert/bert-base-uncased").glob("snapshots/*/model.safetensors"))
    path.resolve().write_bytes(b"x" * 5000)
    bert.fetched.clear()
    second = custom.perform({"name": "prepare_models", "parameters": {"models": ["bert"]}})["done"][0]["models"][0]
    assert bert.fetched == ["google-bert/bert-base-uncased/model.safetensors"]
    assert path.read_bytes() == WEIGHTS
    assert second["bytes"] == first["bytes"]


def test_a_model_in_use_stays(bert):
    """Another process, such as a warm host, holds it until it ends, however it ends."""
    custom.perform({"name": "prepare_models", "parameters": {"models": ["bert"]}})
    models._held.pop("models--google-bert--bert-base-uncased").close()
    code = "import sys\nfrom muster_core import models\nmodels.hold('google-bert/bert-base-uncased')\nprint('held', flush=True)\nsys.stdin.read()"
    host = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": ":".join(sys.path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert host.stdout.readline() == b"held\n"
        record = custom.perform({"name": "clear_cache"})["done"][0]
        assert (record["removed"], record["in_use"]) == ([], ["models--google-bert--bert-base-uncased"])
        assert folder("google-bert/bert-base-uncased").exists()
    finally:
        host.kill()
        host.communicate()
    record = custom.perform({"name": "clear_cache"})["done"][0]
    assert record["removed"] == ["models--google-bert--bert-base-uncased"]


def test_what_is_cleared(hub, tmp_path):
    for name in ("hf/hub/models--a--b/blobs", "hf/hub/models--c--d/blobs", "hf/hub/datasets--e--f", "hf/hub/.gone-models--g--h", "datasets/mnist", "own-model"):
        (tmp_path / "models" / name).mkdir(parents=True)
        (tmp_path / "models" / name / "file").write_bytes(b"12345")
    record = custom.perform({"name": "clear_cache", "parameters": {"what": ["models"], "keep": ["c/d"]}})["done"][0]
    assert (record["removed"], record["freed"]) == (["models--a--b", "models--g--h"], 10)
    record = custom.perform({"name": "setup_environment", "parameters": {"clear_cache": ["datasets"]}})["done"][0]
    assert record["removed"] == ["datasets--e--f", "mnist"]
    left = sorted(p.parent.name for p in (tmp_path / "models").rglob("file"))
    assert left == ["blobs", "own-model"]


def test_what_cannot_be_prepared(bert, tmp_path):
    bert.gated.add("google-bert/bert-base-uncased")
    bert.repositories["ok/model"] = {"config.json": b"{}"}
    with pytest.raises(Fail, match=r"accept its terms.*\(and 1 more of 3\)") as e:
        custom.perform({"name": "prepare_models", "parameters": {"models": ["bert", "no/model", "ok/model"]}})
    assert e.value.reason == "bad_input"
    record = json.loads((tmp_path / "out/custom.json").read_text())["done"][0]["models"]
    assert [m.get("error", {}).get("reason") for m in record] == ["bad_input", "bad_input", None]
    assert "the hub has no such repository" in record[1]["error"]["message"]


def test_an_unknown_operation():
    with pytest.raises(Fail, match="unknown operation dance: use one of setup_environment, clear_cache, prepare_models") as e:
        custom.perform({"name": "dance"})
    assert e.value.reason == "bad_input"


def test_a_hub_that_is_away(bert):
    """What the worker has serves; what it does not have is a dependency."""
    models.find("bert")
    bert.down = True
    assert (models.find("bert") / "model.safetensors").read_bytes() == WEIGHTS
    with pytest.raises(Fail, match="hub cannot be reached") as e:
        models.find("other/model")
    assert e.value.reason == "dependency"


def test_a_model_that_is_too_large_for_the_worker(bert, monkeypatch):
    monkeypatch.setenv("MUSTER_MODEL_DISK", str(len(WEIGHTS)))  # and no byte for the other files
    with pytest.raises(Fail, match="--model-disk of this worker is") as e:
        models.find("bert")
    assert e.value.reason == "dependency" and not bert.fetched
    monkeypatch.setenv("MUSTER_MODEL_DISK", str(len(WEIGHTS) + 10_000))
    assert (models.find("bert") / "model.safetensors").read_bytes() == WEIGHTS


def test_revisions(bert):
    with pytest.raises(Fail, match="has no revision nonesuch") as e:
        models.find("bert", "nonesuch")
    assert e.value.reason == "bad_input"
    assert models.find("bert", bert.commit("google-bert/bert-base-uncased")).name == bert.commit("google-bert/bert-base-uncased")
