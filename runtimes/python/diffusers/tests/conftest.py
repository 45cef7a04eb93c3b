import pytest


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A folder of tiny pipelines, see tiny_pipelines.py."""
    pytest.importorskip("diffusers")
    import tiny_pipelines

    root = tmp_path_factory.mktemp("tiny")
    tiny_pipelines.make(root)
    return root


@pytest.fixture
def task(tmp_path, monkeypatch):
    """The folders of a task, as a worker makes them."""
    for name in ("out", "checkpoint"):
        monkeypatch.setenv(f"MUSTER_{name.upper()}", str(tmp_path / name))
    monkeypatch.setenv("MUSTER_EVENTS", str(tmp_path / "events"))
    monkeypatch.setenv("MUSTER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path
