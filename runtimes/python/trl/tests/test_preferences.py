"""dpo and ppo really move the model to what is preferred."""

import pytest
import torch

PAIRS = [{"prompt": f"{a} {b}", "chosen": " sat on a mat", "rejected": " fly over old hills"} for a, b in [("red", "cat"), ("old", "birds"), ("blue", "water"), ("green", "hills")]]


@pytest.mark.parametrize("method", ["full", "lora"])
def test_dpo_widens_the_margin(task, llama, method):
    rate = 1e-3 if method == "full" else 1e-2
    training = {"batch_size": 4, "learning_rate": rate, "max_steps": 15, "scheduler": "constant", "seed": 3}
    result = task.run("dpo", {"model": llama, "dataset": PAIRS, "method": method, "training": training, "dpo": {"beta": 0.5}})
    steps = task.steps()
    assert abs(steps[0]["margin"]) < 1e-3  # it begins as the reference
    assert steps[-1]["margin"] > 1 and steps[-1]["preferred"] == 1 and steps[-1]["loss"] < steps[0]["loss"] / 2
    assert result["finalMetrics"]["finalMargin"] == steps[-1]["margin"]
    assert (task.out / ("final_lora.tar.gz" if method == "lora" else "final_model.tar.gz")).exists()


def test_ppo_writes_more_of_what_is_rewarded(task, llama):
    training = {"batch_size": 32, "learning_rate": 2e-3, "epochs": 14, "scheduler": "constant", "seed": 5}
    prompts = [{"prompt": p} for p in ("red cat", "old birds", "blue water", "green hills")] * 8
    ppo = {"max_new_tokens": 8, "ppo_epochs": 2, "kl_coef": 0.0}
    result = task.run("ppo", {"model": llama, "dataset": prompts, "reward": {"keywords": ["a", "e", "s", "t"]}, "training": training, "ppo": ppo})
    steps = task.steps()
    rewards = [s["reward"] for s in steps]
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1
    assert abs(steps[0]["policy_loss"]) < 1e-3 and steps[0]["clipped"] == 0 and abs(steps[0]["kl"]) < 1e-3  # it begins as what wrote
    assert result["steps"] == 28 and {"entropy", "value_loss", "answer_tokens"} <= set(steps[-1])
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(task.unpacked("final_model"))


def test_ppo_of_an_adapter_with_a_reward_of_the_user(task, gpt2):
    task.write("judge.py", "def worth(prompts, texts, rows):\n    assert all(r['want'] == 'x' for r in rows)\n    return [-len(t) for t in texts]\n")
    rows = [{"prompt": "red cat", "want": "x"}, {"prompt": "old", "want": "x"}]
    given = {"model": gpt2, "dataset": rows, "lora": {"r": 4}, "training": {"batch_size": 2, "max_steps": 3}, "ppo": {"max_new_tokens": 4, "ppo_epochs": 2}}
    result = task.run("ppo", {**given, "reward": [{"module": "judge.py:worth"}, {"regex": "cat", "weight": 2}]})
    assert result["steps"] == 3 and result["method"] == "lora"
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(gpt2), task.unpacked("final_lora"))


def test_ppo_with_a_reward_model(task, llama, tmp_path):
    from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

    tokens = AutoTokenizer.from_pretrained(llama)
    config = LlamaConfig(vocab_size=len(tokens), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_labels=1, pad_token_id=0)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    tokens.save_pretrained(tmp_path / "judge")
    given = {"model": llama, "prompts": ["red cat", "old birds"], "reward": {"model": "judge"}, "training": {"batch_size": 2, "max_steps": 2}, "ppo": {"max_new_tokens": 4}}
    assert task.run("ppo", given)["steps"] == 2


def test_advantages_are_those_of_the_definition():
    from muster_trl.ppo import advantages

    torch.manual_seed(0)
    given, values = torch.randn(2, 6), torch.randn(2, 6)
    written = torch.tensor([[0, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]]).float()
    got = advantages(given, values, written, 0.9, 0.8)
    for row in range(2):
        at = [t for t in range(6) if written[row, t]]
        for n, t in enumerate(at):
            total = 0.0
            for k, s in enumerate(at[n:]):
                ahead = values[row, s + 1].item() if s + 1 in at else 0.0
                total += (0.9 * 0.8) ** k * (given[row, s].item() + 0.9 * ahead - values[row, s].item())
            assert got[row, t].item() == pytest.approx(total, abs=1e-5)
    assert (got * (1 - written)).abs().sum() == 0


def test_prompts_are_given_out_in_groups_again_and_again():
    from muster_trl.ppo import Again

    sampler = Again(5, 2, 3, seed=1)
    order = list(sampler)
    assert len(order) == len(sampler) == 18 and set(order) == set(range(5))
    for n in range(0, 18, 6):
        assert order[n : n + 2] == order[n + 2 : n + 4] == order[n + 4 : n + 6]
    sampler.set_epoch(1)
    assert list(sampler) != order
    sampler.set_epoch(0)
    assert list(sampler) == order
