"""A hub on loopback that has the endpoints which downloads use."""

import hashlib
import http.server
import json
import os
import threading
from urllib.parse import unquote, urlparse

import pytest


class Hub:
    """Repositories by name; files by path. Those over 100 bytes are large ones, known by their SHA-256."""

    def __init__(self):
        self.repositories, self.gated, self.down, self.fetched = {}, set(), False, []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def add(self, name, **files):
        self.repositories[name] = {path.replace("__", "/"): content for path, content in files.items()}

    def commit(self, name):
        return hashlib.sha1(repr(sorted(self.repositories[name].items())).encode()).hexdigest()

    def answer(self, request):
        path = unquote(urlparse(request.path).path).strip("/")
        api = path.startswith("api/models/")
        parts = path.removeprefix("api/models/").split("/")
        name = next((n for n in self.repositories if path.removeprefix("api/models/").startswith(n)), None)
        rest = parts[name.count("/") + 1 :] if name else []
        if self.down:
            self.reply(request, 503, b"{}")
        elif name is None:
            self.reply(request, 401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        elif name in self.gated:
            self.reply(request, 403, b"{}", {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
        elif "nonesuch" in rest:
            self.reply(request, 404, b"{}", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "no such revision"})
        elif api and "tree" in rest:
            self.reply(request, 200, json.dumps([{"type": "file", "path": p, **self.known(c)} for p, c in self.repositories[name].items()]).encode())
        elif api:
            record = {"id": name, "sha": self.commit(name), "siblings": [{"rfilename": p, "size": len(c)} for p, c in self.repositories[name].items()]}
            self.reply(request, 200, json.dumps(record).encode())
        else:
            file = "/".join(rest[2:])
            content = self.repositories[name][file]
            known = self.known(content)
            if request.command == "GET":
                self.fetched.append(f"{name}/{file}")
            etag = known.get("lfs", known)["oid"]
            self.reply(request, 200, content, {"X-Repo-Commit": self.commit(name), "ETag": f'"{etag}"', "X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))})

    @staticmethod
    def known(content):
        record = {"size": len(content), "oid": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}
        if len(content) > 100:
            record["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return record

    @staticmethod
    def reply(request, status, body, headers=None):
        request.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)


_HUB = Hub()
os.environ["HF_ENDPOINT"] = _HUB.url  # read when huggingface_hub is imported
os.environ["HF_HUB_DISABLE_XET"] = "1"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The hub, and a task whose folder of models is empty."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("MUSTER_OUT", str(tmp_path / "out"))
    monkeypatch.setenv("MUSTER_EVENTS", str(tmp_path / "events"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "models/hf/hub"))
    monkeypatch.chdir(tmp_path)
    _HUB.repositories.clear()
    _HUB.gated.clear()
    _HUB.fetched.clear()
    _HUB.down = False
    yield _HUB
    from muster_core import models

    for lock in models._held.values():
        lock.close()
    models._held.clear()
