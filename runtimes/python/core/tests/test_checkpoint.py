import errno
import math
import os
import signal

import pytest

torch = pytest.importorskip("torch", reason="states are saved with torch")
from muster_core import checkpoint, orderly  # noqa: E402


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_CHECKPOINT", str(tmp_path))
    return tmp_path


def test_a_state_comes_back_as_it_was():
    state = {"w": torch.arange(3.0), "f": [0.1, math.inf, -0.0], "t": ("a", None, True, 2**70), "d": {1: {"x": "f0.5"}}, "e": ""}
    checkpoint.save(7, state)
    step, got = checkpoint.load()
    assert step == 7 and torch.equal(got.pop("w"), state.pop("w")) and got == state


def test_the_last_two_are_kept_and_a_torn_one_is_passed_over(folder):
    for step in (1, 2, 3):
        checkpoint.save(step, {"n": step})
    assert sorted(p.name for p in folder.iterdir()) == ["state-000000002.pt", "state-000000003.pt"]
    newest = folder / "state-000000003.pt"
    newest.write_bytes(newest.read_bytes()[:-50])
    assert checkpoint.load() == (2, {"n": 2})


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_nothing_in_a_state_is_executed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    torch.save({"x": Evil()}, folder / "state-000000001.pt")
    assert checkpoint.load() is None
    assert not (folder / "executed").exists()


def test_a_full_disk_is_an_error_and_leaves_the_state_before(folder, monkeypatch):
    checkpoint.save(1, {"n": 1})

    class Full:
        def __init__(self, f):
            self.f, self.left = f, 2000

        def write(self, data):
            if self.left < len(data):
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left -= len(data)
            return self.f.write(data)

    whole = checkpoint._Sink.__init__
    monkeypatch.setattr(checkpoint._Sink, "__init__", lambda self, f: whole(self, Full(f)))
    with pytest.raises(OSError, match="No space left") as e:
        checkpoint.save(2, {"w": torch.zeros(10_000)})
    assert e.value.errno == errno.ENOSPC
    assert [p.name for p in folder.iterdir()] == ["state-000000001.pt"]


def test_one_who_is_asked_to_stop_may_finish_what_he_does():
    with orderly() as stopping:
        assert not stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
