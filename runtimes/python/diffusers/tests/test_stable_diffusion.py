import hashlib
import json
import os
import signal

import pytest

pytest.importorskip("diffusers")

from muster_core import Fail
from muster_diffusers import pictures, pipeline, stable_diffusion
from PIL import Image


def asked(tiny, model="plain", **more):
    return {"prompt": "a cat", "model": str(tiny / model), "steps": 2, "seed": 7, "safety": "off", **more}


def events(task):
    return [json.loads(line) for line in (task / "events").read_text().splitlines()]


def sums(task):
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted((task / "out").glob("image-*.png"))}


def test_images_with_their_parameters(tiny, task, monkeypatch, capsys):
    monkeypatch.setattr(stable_diffusion, "_SAID", 0)
    result = stable_diffusion.make(asked(tiny, prompts=["a cat", "a dög – 犬"], num_images=2, negative_prompt="blur", width=48, height=24, scheduler="dpm++", steps=3, guidance=4.5))
    log = capsys.readouterr().out
    assert "\na StableDiffusionPipeline of " in log and "\nimage 3/4, step 2/3\n" in log and "\nimage-0004.png: seed 10, " in log
    assert (result["jobType"], result["status"], result["count"], result["flagged"]) == ("stable_diffusion", "success", 4, 0)
    assert result["imageUrls"][1] == "ipfs://{image-0002.png}"
    assert [(i["prompt"], i["seed"]) for i in result["images"]] == [("a cat", 7), ("a cat", 8), ("a dög – 犬", 9), ("a dög – 犬", 10)]
    assert [i["name"] for i in json.loads((task / "out/images.json").read_text())] == [i["name"] for i in result["images"]]
    with Image.open(task / "out/image-0003.png") as image:
        assert image.size == (48, 24)
        said = image.text
    assert said.pop("versions").startswith("diffusers ")
    assert said == {
        "Software": "Muster",
        "prompt": "a dög – 犬",
        "negative_prompt": "blur",
        "seed": "9",
        "size": "48x24",
        "steps": "3",
        "guidance": "4.5",
        "scheduler": "DPMSolverMultistepScheduler",
        "pipeline": "StableDiffusionPipeline",
        "precision": "float32",
        "model": str(tiny / "plain"),
        "safety": "off",
    }
    assert len(set(sums(task).values())) == 4
    steps = [e["step"] for e in events(task) if "image 2/4, step" in e.get("step", "")]
    assert steps == ["image 2/4, step 1/3", "image 2/4, step 2/3", "image 2/4, step 3/3"]
    fractions = [e["progress"] for e in events(task) if "progress" in e]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0


def test_a_seed_gives_the_same_bytes(tiny, task):
    stable_diffusion.make(asked(tiny))
    first = sums(task)
    for p in (task / "checkpoint").iterdir():
        p.unlink()
    stable_diffusion.make(asked(tiny))
    assert sums(task) == first
    for p in (task / "checkpoint").iterdir():
        p.unlink()
    stable_diffusion.make(asked(tiny, seed=8))
    assert sums(task) != first


def test_a_random_seed_is_told_and_kept(tiny, task):
    given = asked(tiny)
    del given["seed"]
    first = stable_diffusion.make(given)["seed"]
    (task / "checkpoint/image-0001.json").unlink()
    assert stable_diffusion.make(given)["seed"] == first


def test_killed_between_images_it_makes_only_the_rest(tiny, task, monkeypatch):
    given = asked(tiny, num_images=3, batch_size=1)
    child = os.fork()
    if child == 0:

        def deadly(fraction=None, step=None, **figures):
            if step and step.startswith("image 3/3, step 1"):
                os.kill(os.getpid(), signal.SIGKILL)

        stable_diffusion.report = deadly
        stable_diffusion.make(given)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    before = sums(task)
    assert sorted(before) == ["image-0001.png", "image-0002.png"]
    (task / "checkpoint/image-0002.png").write_bytes(b"torn")
    made = []
    monkeypatch.setattr(pictures, "write", lambda path, *rest, write=pictures.write: (made.append(path.name), write(path, *rest)))
    assert stable_diffusion.make(given)["count"] == 3
    assert made == ["image-0002.png", "image-0003.png"]
    after = sums(task)
    assert {name: after[name] for name in before} == before


def test_a_preview_is_drawn_while_images_are_made(tiny, task, monkeypatch):
    drawn = []
    monkeypatch.setattr(pictures, "sheet", lambda path, images, sheet=pictures.sheet: (drawn.append([i.size for i in images]), sheet(path, images)))
    shown = task / "out/live/preview.png"
    seen = []
    monkeypatch.setattr(stable_diffusion.Work, "kept", lambda work, *rest, kept=stable_diffusion.Work.kept: (seen.append(shown.read_bytes()), kept(work, *rest)))
    stable_diffusion.make(asked(tiny, num_images=2, batch_size=2, steps=4, preview_every=2))
    assert drawn == [[(16, 16)] * 2, [(32, 32)] * 2]  # latents, then the images
    assert seen[0].startswith(b"\x89PNG") and not shown.exists()  # while it ran
    with Image.open(task / "out/preview.png") as image:
        assert image.size == (256, 128)


@pytest.mark.parametrize(
    ("model", "safety", "names", "want"),
    [
        ("strict", "on", [], {"flagged": True, "withheld": True}),
        ("strict", "report", ["image-0001.png"], {"flagged": True}),
        ("strict", "off", ["image-0001.png"], {}),
        ("mild", "on", ["image-0001.png"], {"flagged": False}),
    ],
)
def test_what_the_checker_flags(tiny, task, model, safety, names, want):
    result = stable_diffusion.make(asked(tiny, model, safety=safety))
    assert list(sums(task)) == names
    image = result["images"][0]
    assert {k: image[k] for k in ("flagged", "withheld") if k in image} == want
    assert result["flagged"] == int(want.get("flagged", False))
    for name in names:
        with Image.open(task / "out" / name) as picture:
            assert picture.text["safety"] == {None: "off", True: "flagged", False: "passed"}[want.get("flagged")]
            assert picture.getextrema() != ((0, 0), (0, 0), (0, 0))


def refused(given):
    with pytest.raises(Fail) as e:
        stable_diffusion.make(given)
    return e.value.reason, str(e.value)


def test_what_cannot_be(tiny, task):
    assert refused(asked(tiny, safety="on"))[0] == "dependency"
    assert "brings no safety checker" in refused(asked(tiny, safety="on"))[1]
    reason, message = refused(asked(tiny, model="nothere"))
    assert (reason, "no such folder" in message) == ("bad_input", True)
    (task / "empty").mkdir()
    assert "no model_index.json" in refused({**asked(tiny), "model": "empty"})[1]
    (task / "empty/model_index.json").write_text('{"_class_name": "StableDiffusionImg2ImgPipeline"}')
    assert "does not make images of a prompt alone" in refused({**asked(tiny), "model": "empty"})[1]
    (task / "empty/model_index.json").write_text('{"_class_name": "os"}')
    assert "does not have" in refused({**asked(tiny), "model": "empty"})[1]
    assert refused(asked(tiny, prompts=["x"] * 6, num_images=1000))[0] == "bad_input"
    assert "sequential_offload has no effect on cpu" in refused(asked(tiny, memory_savers=["sequential_offload"]))[1]
    reason, message = refused({**asked(tiny), "model": "someone/something"})
    assert reason == "dependency" and "hub cannot be reached" in message


def test_damaged_weights(tiny, task):
    import shutil

    shutil.copytree(tiny / "plain", task / "torn")
    path = task / "torn/unet/diffusion_pytorch_model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    reason, message = refused({**asked(tiny), "model": "torn"})
    assert (reason, "torn" in message) == ("bad_input", True)


def short(monkeypatch, most):
    """Memory for so many images at once."""
    whole, calls = pipeline.Pipeline.images, []

    def images(self, prompts, *args, **kwargs):
        calls.append((len(prompts), kwargs.get("steps")))
        if len(prompts) > most(self):
            raise MemoryError("no room")
        return whole(self, prompts, *args, **kwargs)

    monkeypatch.setattr(pipeline.Pipeline, "images", images)
    return calls


def test_memory_that_runs_out_halves_the_batch(tiny, task, monkeypatch):
    calls = short(monkeypatch, lambda pipe: 2)
    result = stable_diffusion.make(asked(tiny, num_images=5, batch_size=4, auto_batch=True))
    assert [n for n, _ in calls] == [4, 2, 2, 1]
    assert (result["count"], result["batch_size"]) == (5, 2)


def test_memory_that_runs_out_tells_what_fits(tiny, task, monkeypatch):
    calls = short(monkeypatch, lambda pipe: 1)
    reason, message = refused(asked(tiny, num_images=4, batch_size=4))
    assert reason == "out_of_memory" and "set batch_size: 1" in message
    assert calls == [(4, None), (2, 2), (1, 2)]


def test_savers_are_turned_on_where_not_one_image_fits(tiny, task, monkeypatch):
    short(monkeypatch, lambda pipe: int("attention_slicing" in pipe.savers))
    result = stable_diffusion.make(asked(tiny))
    assert result["memory_savers"] == ["vae_slicing", "attention_slicing"]
    reason, message = refused(asked(tiny, seed=9, memory_savers=[]))
    assert reason == "out_of_memory" and "not even a batch of 1" in message


def test_numbers_that_are_none(tiny, task, monkeypatch):
    whole = pipeline.Pipeline.images

    def images(self, *args, **kwargs):
        made = whole(self, *args, **kwargs)
        made[0, 0] = float("nan")
        return made

    monkeypatch.setattr(pipeline.Pipeline, "images", images)
    reason, message = refused(asked(tiny))
    assert reason == "diverged" and "float32" in message


def test_a_folder_of_half_precision(tiny, task):
    import torch
    from diffusers import StableDiffusionPipeline

    StableDiffusionPipeline.from_pretrained(tiny / "plain", dtype=torch.float16).save_pretrained(task / "half", variant="fp16")
    result = stable_diffusion.make({**asked(tiny), "model": "half", "precision": "bf16", "memory_savers": ["vae_tiling", "attention_slicing"]})
    assert result["parameters"]["precision"] == "bfloat16"
    assert result["memory_savers"] == ["attention_slicing", "vae_tiling"]


def test_every_scheduler_makes_an_image(tiny, task):
    for i, name in enumerate(pipeline.SCHEDULERS):
        result = stable_diffusion.make(asked(tiny, scheduler=name, seed=100 + i))
        assert result["parameters"]["scheduler"] == pipeline.SCHEDULERS[name][0]


def test_the_schema_lists_the_schedulers():
    yaml = pytest.importorskip("yaml")
    from pathlib import Path

    kind = yaml.safe_load((Path(__file__).parents[3] / "kinds/stable_diffusion/kind.yaml").read_text())
    fields = kind["input"]["properties"]
    assert fields["scheduler"]["enum"] == list(pipeline.SCHEDULERS)
    assert fields["model"]["default"] == stable_diffusion.MODEL
    assert set(fields["memory_savers"]["oneOf"][1]["items"]["enum"]) == set(pipeline.SAVERS)
