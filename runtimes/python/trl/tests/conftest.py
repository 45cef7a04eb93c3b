"""Tiny models, made of a configuration, with a tokenizer trained on the spot; a folder as a worker makes it for a task."""

import json
import os

import pytest

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false", HF_DATASETS_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="2")

pytest.importorskip("trl", reason="the runtime trl is not installed for this Python: make test-ml installs it")

from tiny_models import TINY  # noqa: E402 - after what it depends on


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return TINY["llama"](tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    return TINY["gpt2"](tmp_path_factory.mktemp("gpt2"))


class Task:
    """A task's folders, and its kind run in this process."""

    def __init__(self, folder):
        self.folder, self.out, self.checkpoint = folder, folder / "out", folder / "checkpoint"
        self.out.mkdir()

    def write(self, name, rows):
        text = rows if isinstance(rows, str) else "".join(json.dumps(r) + "\n" for r in rows)
        (self.folder / name).write_text(text)
        return name

    def run(self, kind, given):
        from muster_trl.kind import train

        return train(kind, given)

    def fails(self, kind, given):
        """The reason and the sentence that a kind fails with."""
        from muster_core import Fail

        with pytest.raises(Fail) as e:
            self.run(kind, given)
        return e.value.reason, str(e.value)

    def json(self, name):
        return json.loads((self.out / name).read_text())

    def steps(self):
        return self.json("metrics.json")["steps"]

    def events(self):
        return [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]

    def unpacked(self, name):
        from muster_core.fetch import unpack

        return unpack(self.out / f"{name}.tar.gz", self.folder / f"unpacked-{name}", "test") / name


@pytest.fixture
def task(tmp_path, monkeypatch):
    made = Task(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MUSTER_TRL_PLAN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("OUT", made.out), ("CHECKPOINT", made.checkpoint), ("EVENTS", tmp_path / "events"), ("TASK", "1.0"), ("GPUS", ""), ("MODELS", tmp_path / "models")):
        monkeypatch.setenv(f"MUSTER_{name}", str(value))
    return made
