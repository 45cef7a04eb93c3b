"""What goes wrong: each with its reason and a sentence, and what was saved stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

FACTS = [{"prompt": f"{a} {b}", "completion": f" {c}"} for a, b, c in [("red", "cat", "sat"), ("old", "birds", "fly"), ("blue", "water", "fell"), ("green", "hills", "rain")]]
FAST = {"batch_size": 4, "learning_rate": 0.01, "seed": 7, "max_steps": 4}


@pytest.mark.parametrize(
    ("files", "given", "said"),
    [
        ({}, {"model": "./nothere", "dataset": FACTS}, ["./nothere", "no such folder"]),
        ({}, {"dataset": FACTS}, ["model: required"]),
        ({"d.jsonl": '{"text": "a"}\n{"text": \n'}, {"dataset": "d.jsonl"}, ["d.jsonl, line 2 is not JSON"]),
        ({"d.jsonl": '{"text": "a"}\n[1]\n'}, {"dataset": "d.jsonl"}, ["d.jsonl, line 2 is not an object"]),
        ({"d.jsonl": '{"text": "a"}\n{"text": 3}\n'}, {"dataset": "d.jsonl"}, ["d.jsonl, line 2: text is not a text"]),
        ({"d.jsonl": '{"text": "a"}\n{"other": "b"}\n'}, {"dataset": "d.jsonl"}, ["d.jsonl, line 2: text is missing"]),
        ({"d.jsonl": '{"body": "a", "title": "b"}\n'}, {"dataset": "d.jsonl"}, ["has the columns body, title", "prompt and completion", "dataset.columns"]),
        ({"d.jsonl": '{"body": "a"}\n'}, {"dataset": {"path": "d.jsonl", "columns": {"text": "bodi"}}}, ["no column bodi (for text); it has body"]),
        ({"d.jsonl": "\n"}, {"dataset": "d.jsonl"}, ["d.jsonl is empty"]),
        ({"d.csv": "text,other\na,b\nc\n"}, {"dataset": "d.csv"}, ["d.csv, line 3 has another number of cells than its header (2)"]),
        ({"d.parquet": "no"}, {"dataset": "d.parquet"}, ["d.parquet, after row 0 is not Parquet"]),
        ({"d.bin": "no"}, {"dataset": "d.bin"}, ["unsupported format"]),
        ({}, {"dataset": "nothere.jsonl"}, ["nothere.jsonl is not in the task's folder"]),
        ({}, {"dataset": FACTS, "training": {"precision": "fp16"}}, ["fp16 needs a GPU", "bf16 or fp32"]),
        ({}, {"dataset": FACTS, "training": {"max_length": 4096}}, ["supports at most 128"]),
        ({}, {"dataset": [{"prompt": "red cat " * 60, "completion": "x"}]}, ["dataset is empty"]),
        ({}, {"dataset": FACTS, "epochs": 1, "training": {"epochs": 2}}, ["epochs is given twice"]),
        ({}, {"dataset": FACTS, "training": {"early_stop": {"patience": 1}}}, ["eval_split"]),
        ({"judge.tar.gz": "no"}, {"model": "judge.tar.gz", "dataset": FACTS}, ["judge.tar.gz"]),
    ],
)  # fmt: skip
def test_bad_input(task, llama, files, given, said):
    for name, text in files.items():
        task.write(name, text)
    given = {"model": llama, **given} if given.get("model") or "dataset" not in given or given["dataset"] is not FACTS or len(given) > 1 else given
    reason, message = task.fails("sft", given)
    assert reason == "bad_input" and all(s in message for s in said), message


def test_other_kinds_bad_input(task, llama):
    reason, message = task.fails("lora_sft", {"model": llama, "dataset": FACTS, "lora": {"target_modules": ["nothere"]}})
    assert reason == "bad_input" and "nothere" in message and "q_proj" in message and "down_proj" in message
    reason, message = task.fails("dpo", {"model": llama, "dataset": [{"prompt": "a", "chosen": "b", "rejected": "b"}]})
    assert reason == "bad_input" and "row 1: chosen and rejected are the same" in message
    for reward, said in [(None, "reward"), ({"regex": "("}, "regular expression"), ({"module": "no.py:f"}, "not in the task's folder"), ({"weight": 2}, "one of model, keywords")]:
        reason, message = task.fails("ppo", {"model": llama, "dataset": ["red cat"], "reward": reward, "max_steps": 1})
        assert reason == "bad_input" and said in message
    reason, message = task.fails("fine_tuning", {"model": llama, "dataset": [{"text": "a", "label": 1}] * 3})
    assert reason == "bad_input" and "only the label 1" in message


def test_a_damaged_model(task, llama):
    from pathlib import Path

    for name, text, said in [("config.json", "{", "cannot be read"), ("model.safetensors", "torn", "weights"), ("tokenizer.json", "{", "tokenizer")]:
        folder = task.folder / f"broken-{name}"
        shutil.copytree(llama, folder)
        (Path(folder) / name).write_text(text)
        reason, message = task.fails("sft", {"model": str(folder), "dataset": FACTS, "training": FAST})
        assert reason == "bad_input" and said in message


@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_nan_ends_at_once_and_keeps_what_was_saved(task, llama, monkeypatch, what):
    from muster_trl import teach

    computed = teach.Sft.compute_loss

    def loss(self, *args, **kwargs):
        found = computed(self, *args, **kwargs)
        if self.state.global_step != 3:
            return found
        if what == "loss":
            return found * float("nan")
        found.register_hook(lambda gradient: gradient * float("nan"))
        return found

    monkeypatch.setattr(teach.Sft, "compute_loss", loss)
    reason, message = task.fails("sft", {"model": llama, "dataset": FACTS, "training": {**FAST, "max_steps": 8, "save_steps": 1}})
    assert reason == "diverged" and f"the {what} is nan at step 4" in message and "learning_rate" in message
    assert sorted(p.name for p in task.checkpoint.iterdir()) == ["checkpoint-2", "checkpoint-3"]


def test_a_loss_that_explodes_is_no_success(task, llama):
    given = {"model": llama, "dataset": FACTS, "training": {**FAST, "learning_rate": 10, "max_steps": 12, "scheduler": "constant"}}
    reason, message = task.fails("sft", given)
    assert reason == "diverged" and "where guessing gives 5." in message and "it was 10" in message
    assert len(task.steps()) == 12 and not list(task.out.glob("*.tar.gz"))
    assert task.fails("sft", given) == (reason, message)  # a retry says so at once


@pytest.mark.parametrize(
    ("losses", "every", "found"),
    [
        ([3, 2, 2, 9, 40, 50, 60], 1, (2, 50)),
        ([3, 2, 2, 2, 2, 2, 2], 1, None),
        ([3, 2, 2, 5, 5, 5, 5], 1, None),  # worse, and better than guessing
        ([6, 6, 6, 7, 8, 8, 8], 1, None),  # no better than guessing, as it began
        ([3, 2, 2, 2, 2, 90, 2], 1, None),  # a bad batch
        ([3, 90, 90, 90, 90], 1, (3, 90)),
        ([3, 90], 1, (3, 90)),
        ([3, 9], 1, None),  # worse, and too few steps to say
        ([2, 90, 2], 1, None),
        ([90], 1, None),
        ([3, 90], 10, (3, 90)),  # each the mean of ten
        ([3] * 90 + [90] * 10, 1, (3, 90)),
        ([3] * 96 + [90] * 4, 1, None),
        ([], 1, None),
    ],
)
def test_what_ruin_is(losses, every, found):
    from muster_trl.watch import ruined

    assert ruined(losses, every, 5.7) == found


class Short:
    """A device that has room for a batch of `fits`, as torch says it when there is none."""

    def __init__(self, monkeypatch, fits):
        from muster_trl import teach

        step = teach.Sft.compute_loss

        def loss(trainer, model, inputs, *args, **kwargs):
            if inputs["input_ids"].shape[0] > fits:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return step(trainer, model, inputs, *args, **kwargs)

        monkeypatch.setattr(teach.Sft, "compute_loss", loss)


def test_out_of_memory_says_what_would_fit(task, llama, monkeypatch):
    Short(monkeypatch, 2)
    reason, message = task.fails("sft", {"model": llama, "dataset": FACTS * 4, "training": {**FAST, "batch_size": 16}})
    assert reason == "out_of_memory" and "a batch of 2 fits" in message and "auto_batch" in message


def test_out_of_memory_halves_the_batch_if_asked_to(task, llama, monkeypatch, capfd):
    """Also when it goes on from the state that another machine left, on which the whole batch fitted."""
    given = {"model": llama, "dataset": FACTS * 5, "training": {**FAST, "batch_size": 5, "save_steps": 1, "auto_batch": True}}
    whole = task.run("sft", given)
    before = [s["loss"] for s in task.steps()]
    shutil.rmtree(task.checkpoint / "checkpoint-4")
    Short(monkeypatch, 2)
    result = task.run("sft", given)
    assert (result["batch_size"], result["gradient_accumulation"], result["steps"]) == (1, 5, whole["steps"])
    assert [s["loss"] for s in task.steps()] == pytest.approx(before, rel=1e-3)  # the same steps in smaller portions
    said = capfd.readouterr()
    assert "continuing from checkpoint-3" in said.out and "do not match" not in said.err + said.out


def started(task, kind, given, **env):
    (task.folder / "input.json").write_text(json.dumps(given))
    return subprocess.Popen(
        [sys.executable, "-m", "muster_trl.kind", kind],
        env={**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p), "MUSTER_INPUT": str(task.folder / "input.json"), **env},
        stdout=open(task.folder / "log", "ab"), stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def ends(child, task, status):
    """It ends like this, or the test fails with its output: several processes that wait for each other are slow on a busy machine, and may hang."""
    try:
        ended = child.wait(900)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        ended = "still running"
    assert ended == status, (task.folder / "log").read_text()[-3000:]


def until(condition, child, seconds=600):
    """Wait for what another process does; its own end ends the wait."""
    end = time.monotonic() + seconds
    while not condition():
        assert child.poll() is None and time.monotonic() < end, "it ended or hangs"
        time.sleep(0.02)


def test_killed_and_asked_to_stop_it_goes_on_to_the_same_end(task, llama, monkeypatch):
    slow = "import time\nfrom muster_trl import teach\nof = teach.Sft.compute_loss\ndef loss(*a, **k):\n    time.sleep(0.1)\n    return of(*a, **k)\nteach.Sft.compute_loss = loss\n"
    task.write("slow.py", slow + "from muster_trl import kind\nimport sys\nsys.argv = ['', 'sft']\nkind.main()\n")
    given = {"model": llama, "dataset": FACTS * 2, "training": {**FAST, "max_steps": 30, "save_steps": 3, "learning_rate": 0.003}}
    (task.folder / "input.json").write_text(json.dumps(given))
    env = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p), "MUSTER_INPUT": str(task.folder / "input.json")}

    def start():
        return subprocess.Popen([sys.executable, "slow.py"], env=env, stdout=open(task.folder / "log", "ab"), stderr=subprocess.STDOUT, cwd=task.folder)

    child = start()
    until(lambda: (task.checkpoint / "checkpoint-6").exists(), child)
    child.kill()
    assert child.wait() == -signal.SIGKILL
    (task.checkpoint / ".checkpoint-98.part").mkdir(exist_ok=True)  # as a kill while saving leaves it
    newest = max(int(p.name.split("-")[1]) for p in task.checkpoint.glob("checkpoint-*"))
    torn = task.checkpoint / "checkpoint-99"
    torn.mkdir()
    (torn / "trainer_state.json").write_text("{}")
    child = start()
    until(lambda: any(int(p.name.split("-")[1]) > newest for p in task.checkpoint.glob("checkpoint-*") if p != torn), child)
    assert not torn.exists() and not (task.checkpoint / ".checkpoint-98.part").exists()
    child.terminate()
    assert child.wait(600) == 143
    log = (task.folder / "log").read_text()
    assert f"continuing from checkpoint-{newest}" in log and "checkpoint-99 is incomplete" in log and "asked to stop: the state after step" in log
    result = task.run("sft", given)
    went = [s["loss"] for s in task.steps()]
    assert result["steps"] == 30 and [s["step"] for s in task.steps()] == list(range(1, 31))
    resumed = task.unpacked("final_model")
    weights = torch_weights(resumed)
    shutil.rmtree(task.checkpoint)
    shutil.rmtree(resumed.parent)
    task.run("sft", given)
    assert went == pytest.approx([s["loss"] for s in task.steps()], rel=1e-3, abs=1e-4)
    whole = torch_weights(task.unpacked("final_model"))
    assert all(torch.allclose(weights[n], whole[n], atol=1e-4) for n in whole)


def torch_weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def test_two_processes_make_what_one_makes(task, llama):
    training = {"batch_size": 2, "learning_rate": 0.003, "max_steps": 5, "seed": 7, "nproc_per_node": 2, "scheduler": "constant"}
    child = started(task, "sft", {"model": llama, "dataset": FACTS * 2, "training": training}, OMP_NUM_THREADS="1")
    ends(child, task, 0)
    result = task.json("result.json")
    assert result["processes"] == 2 and result["steps"] == 5 and result["modelUrl"] == "ipfs://{final_model.tar.gz}"
    assert sorted(p.name for p in task.out.iterdir()) == ["final_model.tar.gz", "metrics.json", "responses.json", "result.json"]
    together = task.steps()
    assert [s["step"] for s in together] == [1, 2, 3, 4, 5]
    fractions = [e["progress"] for e in task.events() if "progress" in e]
    assert fractions == sorted(fractions)
    shutil.rmtree(task.checkpoint)
    alone = task.run("sft", {"model": llama, "dataset": FACTS * 2, "training": {**training, "batch_size": 4, "nproc_per_node": 1}})
    assert set(alone) == set(result)
    assert [s["loss"] for s in task.steps()][0] == pytest.approx(together[0]["loss"], rel=0.2)
    assert together[-1]["loss"] < together[0]["loss"]


def test_several_processes_stop_together_and_one_that_fails_ends_all(task, llama):
    (task.folder / "judge.py").write_text("import os, time\ndef worth(prompts, texts, rows):\n    time.sleep(0.1)\n    if os.path.exists('broken') and os.environ['RANK'] == '1':\n        return []\n    return [1.0] * len(texts)\n")
    given = {"model": llama, "dataset": ["red cat"] * 4, "reward": {"module": "judge.py:worth"}, "ppo": {"max_new_tokens": 2, "ppo_epochs": 1}}
    given["training"] = {"batch_size": 2, "max_steps": 1000, "save_steps": 1000, "nproc_per_node": 2}
    child = started(task, "ppo", given, OMP_NUM_THREADS="1")
    until(lambda: (task.folder / "events").exists() and any(e.get("step", "").startswith("step 3/") for e in task.events()), child)
    os.killpg(child.pid, signal.SIGTERM)  # as a worker does: all of them
    ends(child, task, 143)
    saved = [p.name for p in task.checkpoint.glob("checkpoint-*")]
    assert len(saved) == 1 and not (task.out / "failure.json").exists()
    (task.folder / "broken").touch()
    child = started(task, "ppo", given, OMP_NUM_THREADS="1")
    ends(child, task, 1)
    assert task.json("failure.json")["reason"] == "bad_input" and "0 rewards for 2 texts" in task.json("failure.json")["message"]
    assert f"continuing from {saved[0]}" in (task.folder / "log").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="a small disk is mounted, which needs root")
def test_a_full_disk(task, llama, monkeypatch):
    small = task.folder / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2500k", "tmpfs", str(small)], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        monkeypatch.setenv("MUSTER_CHECKPOINT", str(small))
        reason, message = task.fails("sft", {"model": llama, "dataset": FACTS, "training": {**FAST, "save_steps": 2}})
        assert reason == "disk_full" and "checkpoint of step" in message
        assert not list(small.glob(".checkpoint-*"))
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
