import io
import os
import tarfile

import pytest
from muster_core import Fail, models


def test_of_a_repository_the_files_are_chosen_that_are_loaded():
    bert = ["config.json", "flax_model.msgpack", "model.safetensors", "onnx/model.onnx", "pytorch_model.bin", "tf_model.h5", "vocab.txt", "training_args.bin"]
    assert models.choose(bert) == ["config.json", "model.safetensors", "vocab.txt"]
    sharded = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json", "consolidated.safetensors", "original/params.json"]
    assert models.choose(sharded) == sharded[:3]
    assert models.choose(["config.json", "pytorch_model.bin"]) == ["config.json", "pytorch_model.bin"]
    assert models.choose(["consolidated.safetensors"]) == ["consolidated.safetensors"]
    diffusion = ["model_index.json", "v1-5-pruned.safetensors", "v1-5.ckpt", "unet/config.json"]
    unet = [f"unet/diffusion_pytorch_model.{v}" for v in ("safetensors", "fp16.safetensors", "non_ema.safetensors", "bin", "fp16.bin")]
    assert models.choose(diffusion + unet) == ["model_index.json", "unet/config.json", unet[0]]
    assert models.choose(diffusion + unet, "fp16") == ["model_index.json", "unet/config.json", unet[1]]
    assert models.choose(diffusion + unet[:1], "fp16") == ["model_index.json", "unet/config.json", unet[0]]


def test_a_model_larger_than_the_disk_for_models_is_not_downloaded(monkeypatch):
    monkeypatch.delenv("MUSTER_MODEL_DISK", raising=False)
    models._check_size("org/huge", 1 << 50)
    monkeypatch.setenv("MUSTER_MODEL_DISK", str(20 << 30))
    models._check_size("org/fits", 20 << 30)
    with pytest.raises(Fail, match=r"^model org/huge takes 30.0GiB on the disk, and --model-disk of this worker is 20.0GiB: ") as e:
        models._check_size("org/huge", 30 << 30)
    assert e.value.reason == "dependency"


def test_a_use_is_noted_by_its_lock(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path))
    lock = tmp_path / ".in-use" / "mnist"
    lock.parent.mkdir()
    lock.touch()
    os.utime(lock, (1, 1))
    models.use("mnist")
    assert lock.stat().st_mtime > 1
    assert models.free("mnist") is None


def archive(path, **files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def test_archives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive("final_model.tar.gz", final_model__config=b"{}")
    if not hasattr(tarfile, "data_filter"):
        with pytest.raises(Fail, match="too old to unpack"):
            models.find("final_model.tar.gz")
        return
    assert (models.find("final_model.tar.gz") / "config").read_bytes() == b"{}"
    archive("evil.tar.gz", **{"..__..__evil": b"x"})
    with pytest.raises(Fail, match="damaged or not allowed") as e:
        models.find("./evil.tar.gz")
    assert e.value.reason == "bad_input"
    whole = (tmp_path / "final_model.tar.gz").read_bytes()
    (tmp_path / "torn.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Fail, match="torn"):
        models.find("torn.tar.gz")


@pytest.mark.parametrize("name", ["./nothere", "/nothere", "a b", "../x", "a/b/c", "notes.txt"])
def test_what_is_no_model(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(Fail, match="no such folder|not a .tar.gz") as e:
        models.find(name)
    assert e.value.reason == "bad_input"


def test_a_folder_comes_before_a_name_of_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bert").mkdir()
    assert models.find("bert").samefile(tmp_path / "bert")
    assert (models.known_as("bert"), models.known_as("vit")) == ("bert", "google/vit-base-patch16-224")


def test_what_the_worker_s_owner_put_into_its_folder_of_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path / "models"))
    (tmp_path / "models/ours/v2").mkdir(parents=True)
    assert models.find("ours/v2") == tmp_path / "models/ours/v2"
    monkeypatch.setenv("MUSTER_OWNER_MODELS", str(tmp_path / "owner"))
    assert models.find("ours/v2") == tmp_path / "models/ours/v2"
    (tmp_path / "owner/ours/v2").mkdir(parents=True)
    (tmp_path / "owner/bert").mkdir()
    assert models.find("ours/v2") == tmp_path / "owner/ours/v2"
    assert models.known_as("bert") == "bert"
    with pytest.raises(Fail):
        models.find("x/../../models")
