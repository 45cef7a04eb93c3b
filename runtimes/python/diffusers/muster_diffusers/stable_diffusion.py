"""The kind stable_diffusion: images of prompts.

Each finished image is kept in the checkpoint at once, with a JSON file that marks it as finished. A retry generates
the rest, with the same seeds.
"""

import json
import os
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List

from muster_core import Fail, checkpoint_dir, live, log, out_dir, report, run, save_json
from muster_core import device as devices
from muster_core.batch import fitting

from . import pictures
from .pipeline import Pipeline

Json = Dict[str, Any]

MODEL = "stable-diffusion-v1-5/stable-diffusion-v1-5"
MOST = 5000  # images of a task
_SAID = 10  # seconds between two lines of the log about steps
_SHOWN = 200  # of them in the result; all are in images.json


@dataclass(frozen=True)
class Picture:
    """One image that is asked for."""

    number: int  # from 1
    prompt: str
    seed: int

    @property
    def name(self) -> str:
        return f"image-{self.number:04d}.png"

    @property
    def record(self) -> str:
        return f"image-{self.number:04d}.json"


def make(given: Json) -> Json:
    given = {"model": MODEL, "num_images": 1, "safety": "on", "preview_every": 5, **given}
    plan = planned(given)
    done = finished(plan)
    if done:
        log(f"{len(done)} of {len(plan)} images were finished before")
    rest = [p for p in plan if p.number not in done]
    about = Work(given, plan, done).all(rest) if rest else _read("about.json") or {}
    for p in plan:
        if "name" in done[p.number]:
            shutil.copyfile(Path(checkpoint_dir()) / p.name, Path(out_dir()) / p.name)
    images = [done[p.number] for p in plan]
    names = [p.name for p in plan if "name" in done[p.number]]
    if names:
        pictures.sheet(Path(out_dir()) / "preview.png", [_opened(name) for name in names[-pictures.MOST :]])
        (Path(out_dir()) / "live/preview.png").unlink(missing_ok=True)
    save_json("images.json", [{k: v for k, v in i.items() if k != "url"} for i in images])  # addresses are made for the result alone
    flagged = sum(1 for i in images if i.get("flagged"))
    if flagged:
        log(f"the model's safety checker flagged {flagged} of {len(images)} images")
    return {
        "jobType": "stable_diffusion",
        "status": "success",
        "images": images[:_SHOWN],
        "imageUrls": [i["url"] for i in images[:_SHOWN] if "url" in i],
        "count": len(names),
        "flagged": flagged,
        "safety": given["safety"],
        "seed": plan[0].seed,
        "model": given["model"],
        **about,
    }


def planned(given: Json) -> List[Picture]:
    """All images of the task in their order. Their first seed is kept, so that a retry has the same."""
    prompts = given.get("prompts") or [given["prompt"]]
    if len(prompts) * given["num_images"] > MOST:
        raise Fail("bad_input", f"{len(prompts)} prompts with {given['num_images']} images each are more than the {MOST} images that a task may generate: use an array or a matrix of tasks")
    seed = given.get("seed")
    if seed is None:
        seed = _read("seed.json")
        if not isinstance(seed, int):
            seed = secrets.randbelow(2**32)
            _write("seed.json", seed)
    return [Picture(i + 1, prompts[i // given["num_images"]], seed + i) for i in range(len(prompts) * given["num_images"])]


def finished(plan: List[Picture]) -> Dict[int, Json]:
    """The images that an earlier attempt finished, by number. One whose file is damaged is made again."""
    from PIL import Image

    done = {}
    for p in plan:
        record = _read(p.record)
        if not isinstance(record, dict) or (record.get("seed"), record.get("prompt")) != (p.seed, p.prompt):
            continue
        if "name" in record:
            try:
                with Image.open(Path(checkpoint_dir()) / p.name) as image:
                    image.verify()
            except (OSError, ValueError, SyntaxError):  # SyntaxError is what Pillow calls a broken PNG
                continue
        done[p.number] = record
    return done


class Work:
    """The making of images with one loaded pipeline."""

    def __init__(self, given: Json, plan: List[Picture], done: Dict[int, Json]) -> None:
        self.given, self.plan, self.done = given, plan, done
        self.pipe = Pipeline(given, _stepped)
        log(f"a {self.pipe.kind} of {given['model']} on {devices.describe(self.pipe.device)}, loaded in {self.pipe.load_seconds:.1f} s")
        self.own = "batch_size" not in given  # then it is ours to choose
        many = self.pipe.device.type != "cpu" and devices.options().optimize_for == "throughput"
        self.size = given.get("batch_size") or (4 if many else 1)
        self.steps = given.get("steps") or self.pipe.own("steps")
        self.shown_at, self.said_at = 0.0, time.monotonic()
        for prompt in {p.prompt for p in plan}:
            if self.pipe.cut(prompt):
                log(f"the prompt {prompt[:40]!r}… is longer than the model reads: its end is ignored")

    def all(self, rest: List[Picture]) -> Json:
        began, made = time.monotonic(), 0
        while rest:
            batch = rest[: self.size]
            before = time.monotonic()
            images, fits = self.batch(batch)
            self.size = min(self.size, fits) if fits < len(batch) else self.size
            self.kept(batch[:fits], images)
            made, rest = made + fits, rest[fits:]
            for p in batch[:fits]:
                log(f"{p.name}: seed {p.seed}, {(time.monotonic() - before) / fits:.1f} s{', withheld by the safety checker' if self.done[p.number].get('withheld') else ''}")
        about = {
            "load_seconds": self.pipe.load_seconds,
            "seconds_per_image": round((time.monotonic() - began) / made, 3),
            "batch_size": self.size,
            "device": devices.describe(self.pipe.device),
            "peak_memory": self.pipe.peak(),
            "memory_savers": self.pipe.savers,
            "parameters": self.parameters(),
        }
        about = {k: v for k, v in about.items() if v is not None}
        _write("about.json", about)
        return about

    def parameters(self) -> Json:
        """What all images of the task have in common."""
        guidance = self.given.get("guidance")
        return {
            "steps": self.steps,
            "guidance": self.pipe.own("guidance") if guidance is None else guidance,
            "negative_prompt": self.given.get("negative_prompt") or None,
            "scheduler": self.pipe.scheduler,
            "pipeline": self.pipe.kind,
            "revision": self.given.get("revision"),
            "precision": self.pipe.precision,
            "versions": self.pipe.versions(),
        }

    def batch(self, batch: List[Picture]) -> "tuple[Any, int]":
        """Images of the first of these, as many as fit into memory at once."""

        def work(size: int) -> Any:
            return self.pipe.images([p.prompt for p in batch[:size]], [p.seed for p in batch[:size]], self.given, self.shown(batch[:size]))

        def probe(size: int) -> Any:  # two steps and the decoder need what all steps need
            return self.pipe.images([p.prompt for p in batch[:size]], [p.seed for p in batch[:size]], self.given, lambda *state: None, steps=2)

        while True:
            try:
                return fitting(len(batch), self.pipe.device, self.own or bool(self.given.get("auto_batch")), work, probe)
            except Fail as e:
                if e.reason != "out_of_memory" or not (e.detail.get("fits") == 0 and self.pipe.save_more()):
                    raise

    def shown(self, batch: List[Picture]) -> Any:
        """Progress and previews of a batch, after each step."""
        first, every = batch[0].number, self.given["preview_every"]
        which = f"image {first}/{len(self.plan)}" if len(batch) == 1 else f"images {first}-{batch[-1].number}/{len(self.plan)}"
        before = len(self.done)

        def each(number: int, of: int, latents: Any) -> None:
            step = -(-number * self.steps // of)  # some schedulers take several small steps for one
            report((before + len(batch) * number / of) / len(self.plan), f"{which}, step {step}/{self.steps}")
            if time.monotonic() - self.said_at > _SAID:
                self.said_at = time.monotonic()
                log(f"{which}, step {step}/{self.steps}")
            if every and step % every == 0 and number < of and time.monotonic() - self.shown_at > 1 and (seen := pictures.glimpses(latents, self.pipe.kind)):
                self.shown_at = time.monotonic()
                with live("preview.png") as path:
                    pictures.sheet(path, seen)

        return each

    def kept(self, batch: List[Picture], images: Any) -> None:
        """Write finished images to the checkpoint and to the artifacts."""
        import numpy

        for p, pixels in zip(batch, images):
            if not numpy.isfinite(pixels).all():
                raise Fail("diverged", f"{p.name} has values that are not numbers with precision {self.pipe.precision}: use precision bf16 or fp32")
        flagged = self.pipe.flagged(images)
        for i, (p, pixels) in enumerate(zip(batch, images)):
            record: Json = {"number": p.number, "prompt": p.prompt, "seed": p.seed}
            if flagged is not None:
                record["flagged"] = flagged[i]
            if record.get("flagged") and self.given["safety"] == "on":
                record["withheld"] = True
            else:
                record.update(name=p.name, url=f"ipfs://{{{p.name}}}", width=pixels.shape[1], height=pixels.shape[0])
                kept = Path(checkpoint_dir()) / p.name
                pictures.write(kept, pixels, self.said(p, record))
                shutil.copyfile(kept, Path(out_dir()) / p.name)
            self.done[p.number] = record
            _write(p.record, record)
        report(len(self.done) / len(self.plan), f"image {len(self.done)}/{len(self.plan)}")

    def said(self, p: Picture, record: Json) -> Json:
        """The text chunks of an image."""
        looked = {None: "off", False: "passed", True: "flagged"}[record.get("flagged")]
        size = f"{record['width']}x{record['height']}"
        return {"Software": "Muster", "prompt": p.prompt, "seed": p.seed, "size": size, "model": self.given["model"], "safety": looked, **self.parameters()}


def _stepped(step: str) -> None:
    report(step=step)
    log(step)


def _opened(name: str) -> Any:
    from PIL import Image

    with Image.open(Path(checkpoint_dir()) / name) as image:
        return image.convert("RGB")


def _read(name: str) -> Any:
    """A JSON file of the checkpoint, None if it is missing or cannot be read."""
    try:
        return json.loads((Path(checkpoint_dir()) / name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _write(name: str, value: Any) -> None:
    path = Path(checkpoint_dir()) / name
    part = path.with_name(f".{name}.part")
    part.write_text(json.dumps(value), encoding="utf-8")
    os.replace(part, path)


if __name__ == "__main__":
    run(make)
