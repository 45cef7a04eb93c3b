"""Tiny models, made of a configuration, with a tokenizer trained on the spot; a folder as a worker makes it for a task."""

import json
import os

import pytest

os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false", HF_DATASETS_DISABLE_PROGRESS_BARS="1", OMP_NUM_THREADS="2")

pytest.importorskip("trl", reason="the runtime trl is not installed for this Python: make test-ml installs it")

WORDS = "the cat sat on a mat and saw seven red birds fly over old hills while rain fell into blue water near green stones".split()
CHAT = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"


def tokens(folder, size=300):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator([" ".join(WORDS)] * 4, trainers.BpeTrainer(vocab_size=size, special_tokens=["<pad>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("llama")
    made = tokens(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.2,  # a model that says something, as one that learned: adapters would have nothing to hold on to
        pad_token_id=made.pad_token_id, eos_token_id=made.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("gpt2")
    made = tokens(folder)
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=len(made), n_embd=64, n_layer=2, n_head=4, n_positions=128, pad_token_id=made.pad_token_id, eos_token_id=made.eos_token_id, bos_token_id=made.eos_token_id)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


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
