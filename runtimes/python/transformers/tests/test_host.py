import os
import signal
import socket
import time

import pytest
from muster_core import Fail
from muster_transformers import wire
from muster_transformers.backend import Backend
from muster_transformers.embedding import embedding
from muster_transformers.inference import inference
from muster_transformers.loading import Wanted


def talk(path, message, blobs=()):
    """All that a host answers to a message."""
    stream = wire.dial(path).makefile("rwb")
    wire.send(stream, message, blobs)
    answers = []
    while not answers or "step" in answers[-1]:
        answers.append(wire.receive(stream)[0])
    return answers


def test_the_second_task_finds_the_model_loaded(task, models, host, monkeypatch):
    process = host()
    monkeypatch.setenv("MUSTER_WARM", process.path)
    given = {"model": str(models / "llama"), "inputs": ["the cat", "a dog"], "max_new_tokens": 6}
    first = inference(given)
    second = inference({**given, "inputs": ["the cat", "a dog "]})
    assert (first["warm"], second["warm"]) == (False, True)
    assert 0 < second["load_seconds"] < first["load_seconds"]
    assert first["predictions"][0]["prediction"] == second["predictions"][0]["prediction"]
    assert any("item 1/2" in e.get("step", "") for e in task.events())  # tokens come over the socket

    monkeypatch.delenv("MUSTER_WARM")
    here = inference({**given, "inputs": ["the cat", "a dog  "]})
    assert here["predictions"][0]["prediction"] == first["predictions"][0]["prediction"] and not here["warm"]


def test_pictures_come_over_the_socket(task, models, host, monkeypatch, picture):
    monkeypatch.setenv("MUSTER_WARM", host().path)
    (task.folder / "a.png").write_bytes(picture)
    result = inference({"model": str(models / "vit"), "inputs": ["a.png", "none.png"]})
    assert result["predictions"][0]["prediction"] in ("cat", "dog") and "error" in result["predictions"][1]


def test_a_task_goes_on_without_its_host(task, models, host, monkeypatch, capsys):
    process = host()
    monkeypatch.setenv("MUSTER_WARM", process.path)
    monkeypatch.setattr(Backend, "batch_size", lambda self, params: 1)
    real = Backend.run

    def run(self, items, params, step):
        if process.poll() is None and self.working is None and items[0]["text"] == "the dog":
            process.kill()
            process.wait()
        return real(self, items, params, step)

    monkeypatch.setattr(Backend, "run", run)
    result = embedding({"model": str(models / "bert"), "inputs": ["the cat", "the dog", "the sun"]})
    assert result["failed"] == 0 and len(task.lines("embeddings.jsonl")) == 3 and not result["warm"]
    assert "the warm host was lost" in capsys.readouterr().out
    os.unlink(process.path)
    assert inference({"model": str(models / "bert"), "input": "cat"})["predictions"]
    assert "the warm host cannot be used" in capsys.readouterr().out


def test_a_client_that_dies_is_no_harm(models, host):
    process = host()
    wanted = Wanted(model=str(models / "gpt2")).message()
    talk(process.path, {"op": "open", "wanted": wanted})
    for _ in range(2):
        conn = wire.dial(process.path)
        stream = conn.makefile("rwb")
        wire.send(stream, {"op": "run", "wanted": wanted, "items": [{"text": "cat"}], "params": {"max_new_tokens": 50}})
        wire.receive(stream)  # it has begun
        stream.close()
        conn.close()
    for torn in (b"\xff\xfe\n", b'{"op": "run", "items": [{"image": {"$bytes": 9}}], "bytes": [1]}\nx', b"[]\n", b'{"op": "nothing"}\n'):
        conn = wire.dial(process.path)
        conn.sendall(torn)
        conn.close()
    answer = talk(process.path, {"op": "run", "wanted": wanted, "items": [{"text": "cat"}], "params": {"max_new_tokens": 2}})[-1]
    assert answer["records"][0]["tokens_out"] == 2
    assert process.poll() is None


def test_a_client_that_stalls_is_no_harm(models, host):
    process = host("host._PATIENCE = 0.5")
    wanted = Wanted(model=str(models / "gpt2")).message()
    talk(process.path, {"op": "open", "wanted": wanted})
    deaf = wire.dial(process.path)
    deaf.settimeout(60)
    items = [{"messages": []}] * 20_000  # it has no chat template: the records that say so alone are more than a socket holds
    wire.send(deaf.makefile("rwb"), {"op": "run", "wanted": wanted, "items": items, "params": {}})
    deaf.recv(1, socket.MSG_PEEK)  # it is served
    slow = wire.dial(process.path)
    slow.settimeout(60)
    slow.sendall(b'{"op": "run"')
    answer = talk(process.path, {"op": "run", "wanted": wanted, "items": [{"text": "cat"}], "params": {"max_new_tokens": 2}})[-1]
    assert answer["records"][0]["tokens_out"] == 2
    assert slow.recv(1) == b""  # it was given up, and so was the other one
    with pytest.raises(wire.Broken, match="ended"):
        stream = deaf.makefile("rwb")
        while True:
            wire.receive(stream)
    assert process.poll() is None


def test_silent_clients_make_room_for_others(models, host):
    process = host("host._LINES = 3")
    silent = [wire.dial(process.path) for _ in range(3)]
    for conn in silent:
        conn.settimeout(60)
    assert "about" in talk(process.path, {"op": "open", "wanted": Wanted(model=str(models / "gpt2")).message()})[-1]
    assert silent[0].recv(1) == b""
    stream = silent[2].makefile("rwb")
    wire.send(stream, {"op": "ping"})
    assert wire.receive(stream)[0]["ok"]


def test_a_host_keeps_to_its_model_and_to_what_all_tasks_may_read(models, host, tmp_path):
    process = host()
    secret = tmp_path / "secret"
    (models / "bert").rename(secret)
    try:
        for wanted in (Wanted(model=str(secret)), Wanted(model=str(models / "gpt2"), trust_remote_code=True), Wanted(model="./gpt2")):
            assert talk(process.path, {"op": "open", "wanted": wanted.message()})[-1]["fail"]["reason"] == "dependency"
    finally:
        secret.rename(models / "bert")
    assert "about" in talk(process.path, {"op": "open", "wanted": Wanted(model=str(models / "gpt2")).message()})[-1]
    other = talk(process.path, {"op": "open", "wanted": Wanted(model=str(models / "llama")).message()})[-1]
    assert "this host is for" in other["fail"]["message"]


def test_a_task_with_a_model_of_its_own_loads_it_itself(task, models, host, monkeypatch):
    import shutil

    monkeypatch.setenv("MUSTER_WARM", host().path)
    shutil.copytree(models / "bert", task.folder / "mine")
    assert inference({"model": "mine", "input": "cat"})["warm"] is False
    assert inference({"model": "mine", "input": "dog"})["warm"] is False


def test_bad_input_is_told_as_it_is(task, models, host, monkeypatch):
    monkeypatch.setenv("MUSTER_WARM", host().path)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (models / "empty").mkdir()
    with pytest.raises(Fail, match="it has no config.json") as e:
        inference({"model": str(models / "empty"), "input": "cat"})
    assert e.value.reason == "bad_input"


def ended(process):
    return process.wait(timeout=600)


def test_a_host_ends_in_time(host):
    assert ended(host(MUSTER_WARM_TTL="0")) == 0
    evicted = host()
    assert talk(evicted.path, {"op": "evict"}) == [{"ok": True}]
    assert ended(evicted) == 0
    forgotten = host()
    os.unlink(forgotten.path)
    assert ended(forgotten) == 0 and "its socket is gone" in forgotten.log.read_text()
    short = host(MUSTER_MEMORY_BUFFER="0.9999")
    assert ended(short) == 0 and "of memory are free" in short.log.read_text()


def test_requests_are_served_one_at_a_time(models, host):
    process = host()
    wanted = Wanted(model=str(models / "gpt2")).message()
    talk(process.path, {"op": "open", "wanted": wanted})
    os.kill(process.pid, signal.SIGSTOP)
    streams = []
    for _ in range(3):
        streams.append(wire.dial(process.path).makefile("rwb"))
        wire.send(streams[-1], {"op": "run", "wanted": wanted, "items": [{"text": "cat"}], "params": {"max_new_tokens": 4}})
    os.kill(process.pid, signal.SIGCONT)
    began = time.monotonic()
    for stream in streams:
        answer = {"step": None}
        while "step" in answer:
            answer, _ = wire.receive(stream)
        assert len(answer["records"]) == 1
    assert time.monotonic() - began < 60
