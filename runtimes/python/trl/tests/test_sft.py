"""Supervised kinds: fine_tuning, sft and lora_sft really learn, and what they leave can be used."""

import http.server
import json
import tarfile
import threading

import pytest
import torch

FACTS = [{"prompt": f"{a} {b}", "completion": f" {c}"} for a, b, c in [("red", "cat", "sat"), ("old", "birds", "fly"), ("blue", "water", "fell"), ("green", "hills", "rain")]]
FAST = {"batch_size": 4, "learning_rate": 0.01, "seed": 7}


def test_sft_memorises(task, llama):
    result = task.run("sft", {"model": llama, "dataset": task.write("facts.jsonl", FACTS), "training": {**FAST, "max_steps": 40, "scheduler": "constant"}})
    losses = [s["loss"] for s in task.steps()]
    assert losses[0] > 4 and losses[-1] < 0.1
    assert result["status"] == "success" and result["jobType"] == "sft" and result["steps"] == 40
    assert result["modelUrl"] == "ipfs://{final_model.tar.gz}" and result["final_model_archive"] == "final_model.tar.gz"
    assert result["final_model_archive_url"] == "artifact://{final_model.tar.gz}"
    assert result["finalMetrics"]["finalLoss"] == losses[-1] == result["computationData"]["loss"]
    assert result["tokens"] > 40 * 4 * 4 and result["trainable_parameters"] == result["parameters"]
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = task.unpacked("final_model")
    model, tokens = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    asked = tokens("blue water", return_tensors="pt")
    written = model.generate(**asked, max_new_tokens=3, do_sample=False)
    assert tokens.decode(written[0], skip_special_tokens=True) == "blue water fell"


def test_lora_trains_adapters_only_and_loads_again(task, llama):
    given = {"model": llama, "dataset": FACTS, "lora": {"r": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj", "up_proj", "down_proj"]}}
    result = task.run("lora_sft", {**given, "training": {**FAST, "learning_rate": 0.01, "max_steps": 20, "scheduler": "constant"}})
    losses = [s["loss"] for s in task.steps()]
    assert losses[-1] < losses[0] / 4
    assert result["modelUrl"] == "ipfs://{final_lora.tar.gz}" and 0 < result["trainable_parameters"] < result["parameters"] / 4
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = task.unpacked("final_lora")
    base, tokens = AutoModelForCausalLM.from_pretrained(llama), AutoTokenizer.from_pretrained(folder)
    before = {name: p.clone() for name, p in base.state_dict().items()}
    asked = tokens("red cat sat</s>", return_tensors="pt")
    with torch.no_grad():
        was = base(**asked, labels=asked["input_ids"]).loss
        model = PeftModel.from_pretrained(base, folder)
        now = model(**asked, labels=asked["input_ids"]).loss
    assert now < was - 1
    kept = {name.removeprefix("base_model.model.").replace(".base_layer", ""): p for name, p in model.state_dict().items() if "lora_" not in name}
    assert all(torch.equal(before[name], kept[name]) for name in before)


def test_a_stage_goes_on_with_what_one_before_it_left(task, llama):
    first = {"model": llama, "dataset": FACTS, "training": {**FAST, "learning_rate": 0.01, "max_steps": 10, "scheduler": "constant"}}
    task.run("lora_sft", {**first, "lora": {"target_modules": "all-linear"}})
    (task.out / "final_lora.tar.gz").rename(task.folder / "earlier.tar.gz")
    for path in task.checkpoint.iterdir():
        path.rename(task.folder / path.name)
    first_losses = [s["loss"] for s in task.steps()]
    task.run("lora_sft", {**first, "adapter": "earlier.tar.gz"})
    second = [s["loss"] for s in task.steps()]
    assert second[0] < first_losses[0] / 2
    for path in task.checkpoint.iterdir():
        path.rename(task.folder / f"second-{path.name}")
    result = task.run("fine_tuning", {**first, "method": "full", "checkpoint": {"load": {"path": "earlier.tar.gz"}}})
    assert [s["loss"] for s in task.steps()][0] < first_losses[0] / 2
    assert result["trainable_parameters"] == result["parameters"]
    assert result["jobType"] == "fine-tuning" and result["checkpointUrl"] == "ipfs://{checkpoint.tar.gz}"


class Host(http.server.SimpleHTTPRequestHandler):
    """Serves the archive of task 1.0 as a host of MLOC does, with a key, and by a signed URL."""

    archive = b""

    def log_message(self, *args):
        pass

    def do_GET(self):
        keyed = self.path == "/api/v1/results/1.0/files/final_model.tar.gz" and self.headers["Authorization"] == "Bearer k"
        if not keyed and self.path != "/api/v1/tasks/1.0/artifacts/final_model.tar.gz?expires=9&signature=s":
            return self.send_error(403)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.archive)))
        self.end_headers()
        self.wfile.write(self.archive)
        return None


def test_a_stage_loads_the_archive_of_one_before_it_by_url(task, llama, monkeypatch):
    given = {"model": llama, "dataset": FACTS, "training": {**FAST, "max_steps": 20, "scheduler": "constant"}}
    task.run("sft", given)
    first = [s["loss"] for s in task.steps()]
    Host.archive = (task.out / "final_model.tar.gz").read_bytes()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    key = {"headers": {"Authorization": "Bearer k"}}
    try:
        monkeypatch.setenv("MUSTER_SERVER_URL", base)
        signed = f"{base}/api/v1/tasks/1.0/artifacts/final_model.tar.gz?expires=9&signature=s"
        monkeypatch.setenv("MUSTER_ALLOW_PRIVATE", "")
        loads = [{"type": "http", "url": signed}, {"taskId": "1.0", "base_url": base, **key}]
        for n, load in enumerate(loads):
            for path in task.checkpoint.iterdir():
                path.rename(task.folder / f"{n}-{path.name}")
            task.run("sft", {**given, "checkpoint": {"load": load}})
            assert task.steps()[0]["loss"] < first[0] / 2
            monkeypatch.setenv("MUSTER_ALLOW_PRIVATE", "1")
        reason, message = task.fails("sft", {**given, "checkpoint": {"load": {"taskId": "1.0", "base_url": base}}})
        assert reason == "bad_input" and "responds with 403" in message
        reason, message = task.fails("sft", {**given, "checkpoint": {"load": {"taskId": "1.0"}}})
        assert reason == "bad_input" and "set base_url, or ORCHESTRATOR_BASE_URL" in message
        monkeypatch.setenv("ORCHESTRATOR_BASE_URL", base)
        task.run("sft", {**given, "checkpoint": {"load": {"taskId": "1.0", **key}}})
    finally:
        server.shutdown()
        server.server_close()


def test_gpt2_and_a_text_file(task, gpt2):
    given = {"baseModel": gpt2, "dataset": task.write("poem.txt", "the cat sat\n\nold birds fly\n"), "epochs": 20, "learning_rate": 0.01, "batch_size": 2}
    result = task.run("fine_tuning", {**given, "training": {"keep_checkpoint": False, "precision": "bf16", "gradient_checkpointing": True, "gradient_accumulation": 1}})
    assert task.steps()[-1]["loss"] < task.steps()[0]["loss"] / 3
    assert result["steps"] == 20 and result["computationData"]["epoch"] == 20 and "checkpointUrl" not in result


def test_chats_need_a_template(task, llama):
    rows = [{"messages": [{"role": "user", "content": "red cat"}, {"role": "assistant", "content": "sat"}]}] * 4
    reason, message = task.fails("sft", {"model": llama, "dataset": rows, "max_steps": 2})
    assert reason == "bad_input" and "no chat template" in message and "chatml" in message
    task.run("sft", {"model": llama, "dataset": rows, "chat_template": "chatml", "training": {**FAST, "max_steps": 20}})
    assert task.steps()[-1]["loss"] < task.steps()[0]["loss"] / 2


def test_classification_tells_labels_apart_on_held_out_rows(task, llama):
    rows = [{"text": f"{a} {b}", "label": "water" if a in ("blue", "rain") else "bird"} for a in ("blue", "rain", "red", "fly") for b in ("cat", "mat", "over", "old", "while", "seven", "near", "stones")]
    result = task.run("fine_tuning", {"model": llama, "dataset": rows, "training": {**FAST, "batch_size": 8, "learning_rate": 0.005, "epochs": 8, "eval_split": 0.25}})
    assert result["labels"] == ["bird", "water"]
    assert result["computationData"]["validation_accuracy"] > 0.85
    evaluations = task.json("metrics.json")["evaluations"]
    assert len(evaluations) == 8 and evaluations[-1]["eval_loss"] < evaluations[0]["eval_loss"]


def test_early_stop_goes_back_to_the_best(task, llama):
    held = [{"prompt": "red cat", "completion": " rain"}] * 2  # the more is learned, the worse it gets
    training = {**FAST, "epochs": 30, "early_stop": {"patience": 2}}
    result = task.run("sft", {"model": llama, "dataset": FACTS, "eval_dataset": held, "training": training})
    evaluations = [e["eval_loss"] for e in task.json("metrics.json")["evaluations"]]
    assert result["steps"] < 30 and evaluations[-1] > min(evaluations)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = task.unpacked("final_model")
    model, tokens = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    ids = tokens("red cat rain</s>", return_tensors="pt")["input_ids"]
    labels = ids.clone()
    labels[:, : len(tokens("red cat")["input_ids"])] = -100
    assert abs(model(ids, labels=labels).loss.item() - min(evaluations)) < 1e-3


def test_what_is_seen_and_left(task, llama):
    task.run("sft", {"model": llama, "dataset": FACTS, "training": {**FAST, "max_steps": 4, "save_steps": 2}})
    events = task.events()
    fractions = [e["progress"] for e in events if "progress" in e]
    assert fractions == sorted(fractions) and fractions[-1] == 1
    logged = [e for e in events if "loss" in e]
    assert {"loss", "learning_rate", "grad_norm", "tokens_per_second", "accuracy"} <= set(logged[-1]) and logged[-1]["step"] == "step 4/4, epoch 4/4"
    assert sorted(p.name for p in task.checkpoint.iterdir()) == ["checkpoint-2", "checkpoint-4"]
    summary = task.json("responses.json")
    assert summary["training_successful"] and summary["dataset_size"] == 4 and summary["final_model_archive"] == "final_model.tar.gz"
    assert summary["final_model_archive_path"] == "final_model.tar.gz" and str(task.out) not in json.dumps(summary) and str(task.checkpoint) not in json.dumps(summary)
    with tarfile.open(task.out / "final_model.tar.gz") as tar:
        names = tar.getnames()
    assert names == sorted(names) and "final_model/model.safetensors" in names and "final_model/tokenizer.json" in names
    assert sorted(p.name for p in task.out.iterdir()) == ["final_model.tar.gz", "metrics.json", "responses.json"]


def test_the_same_files_make_the_same_archive(tmp_path):
    from muster_trl.finish import packed

    for place in ("a", "b"):
        (tmp_path / place / "in").mkdir(parents=True)
        for name in ("x", "y") if place == "a" else ("y", "x"):
            (tmp_path / place / "in" / name).write_text(name)
    one, two = (packed(tmp_path / p / "in", "final_model", tmp_path / p) for p in ("a", "b"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("policy", ["truncate", "drop", "fail"])
def test_texts_that_are_too_long(task, llama, policy, capfd):
    rows = [{"text": "the cat sat"}] * 3 + [{"text": "the cat sat on a mat " * 5}]
    given = {"model": llama, "dataset": rows, "training": {**FAST, "max_steps": 1, "max_length": 16, "too_long": policy}}
    if policy == "fail":
        reason, message = task.fails("sft", given)
        assert reason == "bad_input" and "1 of 4 rows are longer than 16 tokens" in message and "row 4" in message
        return
    task.run("sft", given)
    assert ("left out" if policy == "drop" else "cut off") in capfd.readouterr().out
