import json
import subprocess
import sys

import pytest
from muster_core import measured


def kind(tmp_path, code, given="{}"):
    """Run a kind written on the spot as a worker would; returns (exit code, files of its out folder). Its log is in the file log."""
    (tmp_path / "input.json").write_text(given)
    out = tmp_path / "out"
    out.mkdir()
    env = {"MUSTER_INPUT": str(tmp_path / "input.json"), "MUSTER_OUT": str(out), "MUSTER_TASK": "1.0", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    (tmp_path / "log").write_text(done.stderr)
    return done.returncode, {p.name: json.loads(p.read_text()) for p in out.glob("*.json")}


def test_the_result_is_what_the_function_returns(tmp_path):
    code = "from muster_core import run\nrun(lambda given: {'twice': 2 * given['n'], 'nan': float('nan')})"
    assert kind(tmp_path, code, '{"n": 21}') == (0, {"result.json": {"twice": 42, "nan": None}})


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        ("Fail('diverged', 'the loss is NaN')", "diverged"),
        ("ModuleNotFoundError('no', name='nothere')", "dependency"),
        ("MemoryError()", "out_of_memory"),
        ("OSError(28, 'No space left on device')", "disk_full"),
    ],
)
def test_what_goes_wrong_has_a_reason(tmp_path, raised, reason):
    code = f"from muster_core import run, Fail\ndef f(given): raise {raised}\nrun(f)"
    status, files = kind(tmp_path, code)
    assert status == 1
    assert files["failure.json"]["reason"] == reason
    assert (tmp_path / "log").read_text() == f"{reason}: {files['failure.json']['message']}\n"  # once, and without a traceback


@pytest.mark.parametrize(
    ("raised_text", "want"),
    [
        ("dataset: a.csv is damaged", "input.dataset: a.csv is damaged"),
        ("checkpoint.load: none", "input.checkpoint.load: none"),
        ("queries[2]: none", "input.queries[2]: none"),
        ("model gpt2: none", "model gpt2: none"),
        ("a.csv, line 2: none", "a.csv, line 2: none"),
    ],
)
def test_a_field_is_named_as_the_server_names_it(tmp_path, raised_text, want):
    _, files = kind(tmp_path, f"from muster_core import run, Fail\ndef f(given): raise Fail('bad_input', {raised_text!r})\nrun(f)")
    assert files["failure.json"]["message"] == want


def test_what_is_not_known_is_an_exit_code(tmp_path):
    assert kind(tmp_path, "from muster_core import run\nrun(lambda given: 1 / 0)") == (1, {})
    log = (tmp_path / "log").read_text()
    assert log.startswith("Traceback") and log.count("ZeroDivisionError") == 1


def test_what_was_measured_is_told_in_six_digits():
    assert measured({"a": 0.1 + 0.2, "b": [1 / 3, 2**53 + 1, "x", None, True], "c": float("inf")}) == {"a": 0.3, "b": [0.333333, 2**53 + 1, "x", None, True], "c": float("inf")}
