import functools
import http.server
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from muster_core import Fail

os.environ["OMP_NUM_THREADS"] = "1"  # more of them wait for each other on a busy machine

# A kind's program that goes no further than the state of a name.
WAITING = """
import os, runpy, time
replace = os.replace
def wait(part, path):
    replace(part, path)
    if os.path.basename(path) == {last!r}:
        time.sleep(600)
os.replace = wait
runpy.run_module({module!r}, run_name="__main__")
"""


class Task:
    """A kind's program run as a worker would, in a folder of its own."""

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module
        self.out = folder / "out"
        self.env = {
            **os.environ,
            "MUSTER_TASK": "1.0",
            "MUSTER_INPUT": str(folder / "input.json"),
            "MUSTER_OUT": str(self.out),
            "MUSTER_CHECKPOINT": str(folder / "checkpoint"),
            "MUSTER_EVENTS": str(folder / "events"),
            "MUSTER_MODELS": str(folder / "models"),
            "PYTHONPATH": ":".join(sys.path),
            "PYTHONUNBUFFERED": "1",
        }

    def start(self, module=None, **given):
        """Returns the process, with its output in a pipe."""
        (self.folder / "input.json").write_text(json.dumps(given))
        return subprocess.Popen([sys.executable, "-m", module or self.module], cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def dies(self, after, last, **given):
        """Kills the program once it has kept the state `after`, wherever it is then, which is not beyond `last`: however late the kill comes, it waits there."""
        (self.folder / "waiting.py").write_text(WAITING.format(module=self.module, last=last))
        process = self.start("waiting", **given)
        states = self.folder / "checkpoint"
        while not any(p.name >= after for p in states.glob("[!.]*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.kill()
        process.communicate()

    def run(self, **given):
        """Returns what it printed; the exit code is in `status`."""
        process = self.start(**given)
        said, _ = process.communicate(timeout=600)
        self.status = process.returncode
        return said

    def here(self, **given):
        """The result, or Fail, from this process: without the seconds that a new one takes to import all."""
        before, cwd = dict(os.environ), os.getcwd()
        os.environ.update({k: v for k, v in self.env.items() if k.startswith("MUSTER_")})
        os.chdir(self.folder)
        try:
            return json.loads(json.dumps(importlib.import_module(self.module).train(given)))
        finally:
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(before)

    def refused(self, **given):
        """The reason and the sentence of a failure in this process."""
        with pytest.raises(Fail) as e:
            self.here(**given)
        self.detail = e.value.detail
        return e.value.reason, str(e.value)

    def json(self, name):
        return json.loads((self.out / name).read_text())

    def result(self, **given):
        said = self.run(**given)
        assert self.status == 0, said
        return self.json("result.json")

    def failure(self, **given):
        said = self.run(**given)
        assert self.status == 1, said
        failure = self.json("failure.json")
        return failure["reason"], failure["message"]


@pytest.fixture
def task(tmp_path):
    def make(module, name="task"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return Task(folder, module)

    return make


@pytest.fixture
def serve(monkeypatch):
    """Serves a folder on this machine; returns the base of its URLs."""
    monkeypatch.setenv("MUSTER_ALLOW_PRIVATE", "1")
    servers = []

    def start(folder):
        handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many KiB and returns its folder; needs root."""
    folder = tmp_path / "disk"
    mounted = []

    def mount(kib):
        folder.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(folder)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for at in mounted:
        subprocess.run(["umount", str(at)], check=True)
