"""Proximal policy optimisation of a model that writes: Schulman et al., https://arxiv.org/abs/1707.06347, with the penalty on
the distance from the model it began as, of Ziegler et al., https://arxiv.org/abs/1909.08593.

TRL has no PPO any more, so this is one: a Trainer, with all that a Trainer has. A batch of prompts is answered by the model, the
answers are given their rewards, and then the same batch is learned from `ppo_epochs` times before the next one is answered.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch
from muster_core import Fail
from muster_core import device as devices
from torch import nn
from torch.utils.data import Sampler
from transformers import GenerationConfig, PreTrainedModel, Trainer, TrainingArguments

from . import base, rewards, rows
from .saves import Whole
from .settings import Plan, Ppo
from .watch import Finite

_HEAD = "value_head.pt"
_OF_WRITING = ("reward", "kl", "answer_tokens", "ended")  # recorded once for data that is used several times


class Writer(nn.Module):
    """A model that writes, and a head that foresees what the text will be worth."""

    _keys_to_ignore_on_save = None
    main_input_name = "input_ids"

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm
        self.value = nn.Linear(lm.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)

    @property
    def config(self) -> Any:
        return self.lm.config

    def forward(self, ids: torch.Tensor, attention: torch.Tensor, temperature: float) -> "Tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        """For each token after the first: its log-probability, the entropy of its distribution, the value predicted before it."""
        out = self.lm(input_ids=ids, attention_mask=attention, output_hidden_states=True, use_cache=False)
        said, entropy = _said(out.logits, ids, temperature)
        return said, entropy, self.value(out.hidden_states[-1][:, :-1].to(self.value.weight.dtype)).squeeze(-1).float()


def _said(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> "Tuple[torch.Tensor, torch.Tensor]":
    logs = (logits[:, :-1].float() / temperature).log_softmax(-1)
    entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1), entropy


@dataclass
class Rollout:
    """What was written for a batch of prompts. All but ids and attention are of the tokens after the first."""

    ids: torch.Tensor
    attention: torch.Tensor
    written: torch.Tensor  # 1 where the model wrote the token
    said: torch.Tensor
    values: torch.Tensor
    advantages: torch.Tensor
    returns: torch.Tensor


def advantages(given: torch.Tensor, values: torch.Tensor, written: torch.Tensor, gamma: float, lam: float) -> torch.Tensor:
    """Generalised advantage estimation (Schulman et al., https://arxiv.org/abs/1506.02438) over the tokens that were written."""
    result = torch.zeros_like(given)
    last = torch.zeros_like(given[:, 0])
    ahead = torch.zeros_like(given[:, 0])
    for t in range(given.shape[1] - 1, -1, -1):
        last = (given[:, t] + gamma * ahead - values[:, t] + gamma * lam * last) * written[:, t]
        ahead = values[:, t] * written[:, t]
        result[:, t] = last
    return result


def mean(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (x * mask).sum() / mask.sum().clamp(min=1)


class Again(Sampler):  # type: ignore[type-arg]
    """Prompts in an order of the epoch, in groups that are each given out several times in a row."""

    def __init__(self, size: int, group: int, times: int, seed: int) -> None:
        self.size, self.group, self.times, self.seed, self.epoch = size, group, times, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.size // self.group) * self.group * self.times

    def __iter__(self) -> "Iterator[int]":
        order = torch.randperm(self.size, generator=torch.Generator().manual_seed(self.seed + self.epoch)).tolist()
        while len(order) % self.group:  # the last group is filled up from the front
            order += order[: self.group - len(order) % self.group]
        for n in range(0, len(order), self.group):
            for _ in range(self.times):
                yield from order[n : n + self.group]


class Ppoer(Finite, Whole, Trainer):
    loss_is_scaled_for_ga = False  # a mean over a batch
    model: Any
    processing_class: Any

    def __init__(self, plan: Plan, prompts: "List[Dict[str, Any]]", reward: rewards.Reward, reference: Any, precision: Any, **given: Any) -> None:
        self.plan, self.prompts, self.reward, self.reference, self.precision = plan, prompts, reward, reference, precision
        self.rollouts: "List[Rollout]" = []
        self.at = (-1, 0)  # update, and batch in it
        self.figures: "Dict[str, List[float]]" = {}
        super().__init__(**given)
        self.generation = self._generation()

    def _generation(self) -> GenerationConfig:
        p, tokens = self.plan.ppo, self.processing_class
        ends = getattr(self.model.lm.generation_config, "eos_token_id", None)
        ends = sorted({tokens.eos_token_id, *(ends if isinstance(ends, list) else [ends] if ends is not None else [])})
        return GenerationConfig(
            max_new_tokens=p.max_new_tokens, min_new_tokens=p.min_new_tokens, do_sample=True, temperature=p.temperature, top_k=0, top_p=1.0,
            eos_token_id=ends, pad_token_id=tokens.pad_token_id,
        )  # fmt: skip

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        group = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return Again(len(self.prompts), group, self.plan.ppo.ppo_epochs, self.args.seed)

    def _prepare_inputs(self, inputs: Any) -> Any:
        """A rollout in place of a batch of prompts: a new one each ppo_epochs updates, or the one of before."""
        if isinstance(inputs, Rollout):
            return inputs
        update = self.state.global_step
        n = self.at[1] + 1 if self.at[0] == update else 0
        self.at = (update, n)
        if n == 0 and update % self.plan.ppo.ppo_epochs == 0:
            self.rollouts = []
            self.figures = {k: v for k, v in self.figures.items() if k not in _OF_WRITING}
        if n >= len(self.rollouts):  # also after a resume between two updates
            self.rollouts.append(self._written(super()._prepare_inputs(inputs)["index"].tolist()))
        return self.rollouts[n]

    @torch.no_grad()
    def _written(self, index: "List[int]") -> Rollout:
        writer: Any = self.accelerator.unwrap_model(self.model)
        lm, tokens, p = writer.lm, self.processing_class, self.plan.ppo
        data = [self.prompts[i] for i in index]
        was = lm.training
        lm.eval()
        with devices.autocast(self.args.device, self.precision):
            asked = tokens.pad({"input_ids": [d["ids"] for d in data]}, padding_side="left", return_tensors="pt").to(self.args.device)
            out = lm.generate(**asked, generation_config=self.generation)[:, asked["input_ids"].shape[1] :].tolist()
            answers, ended = zip(*(_to_end(a, self.generation.eos_token_id) for a in out))
            texts = [tokens.decode(a, skip_special_tokens=True) for a in answers]
            scores = torch.tensor(self.reward([d["prompt"] for d in data], texts, [d["row"] for d in data]))
            ids, attention, written = _side_by_side([d["ids"] for d in data], list(answers), tokens.pad_token_id, self.args.device)
            said, _, values = writer(ids, attention, p.temperature)
            with lm.disable_adapter() if self.reference is None else nullcontext():
                frozen = self.reference if self.reference is not None else lm
                began, _ = _said(frozen(input_ids=ids, attention_mask=attention, use_cache=False).logits, ids, p.temperature)
        lm.train(was)
        distance = (said - began) * written
        paid = scores - p.missing_eos_penalty * (1 - torch.tensor(ended, dtype=torch.float32))
        given = -p.kl_coef * distance
        given[torch.arange(len(data)), (written * torch.arange(1, written.shape[1] + 1, device=written.device)).argmax(1)] += paid.to(given.device)
        values = values * written
        gained = advantages(given, values, written, p.gamma, p.lam)
        self._note(
            reward=scores.mean(),
            kl=distance.sum(1).mean(),
            answer_tokens=written.sum(1).mean(),
            ended=torch.tensor(ended, dtype=torch.float32).mean(),
        )
        centre = mean(gained, written)
        spread = mean((gained - centre) ** 2, written).clamp(min=1e-8).sqrt()
        return Rollout(ids, attention, written, said, values, (gained - centre) / spread * written, gained + values)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None) -> Any:
        p, r = self.plan.ppo, inputs
        said, entropy, values = model(r.ids, r.attention, p.temperature)
        ratio = ((said - r.said) * r.written).exp()
        loss = mean(torch.max(-r.advantages * ratio, -r.advantages * ratio.clamp(1 - p.clip_range, 1 + p.clip_range)), r.written)
        near = r.values + (values - r.values).clamp(-p.value_clip_range, p.value_clip_range)
        foreseen = 0.5 * mean(torch.max((values - r.returns) ** 2, (near - r.returns) ** 2), r.written)
        self._note(
            policy_loss=loss,
            value_loss=foreseen,
            entropy=mean(entropy, r.written),
            clipped=mean(((ratio - 1).abs() > p.clip_range).float(), r.written),
        )
        return loss + p.value_coef * foreseen

    def _note(self, **figures: torch.Tensor) -> None:
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(float(value.detach()))

    def log(self, logs: "Dict[str, float]", start_time: "Optional[float]" = None) -> None:
        if "loss" in logs:
            for name in sorted(k for k, v in self.figures.items() if v):
                here = torch.tensor(sum(self.figures[name]) / len(self.figures[name]), device=self.args.device)
                logs[name] = self.accelerator.reduce(here, "mean").item()
            self.figures = {k: v if k in _OF_WRITING else [] for k, v in self.figures.items()}
        super().log(logs, start_time)

    def _track_num_input_tokens(self, inputs: Any) -> None:
        seen = self.rollouts[self.at[1]].attention.sum()
        self.state.num_input_tokens_seen += self.accelerator.gather(seen).sum().item()

    def _save(self, output_dir: "Optional[str]" = None, state_dict: Any = None) -> None:
        if not self.args.should_save:
            return
        folder, writer = Path(output_dir or self.args.output_dir), self.accelerator.unwrap_model(self.model)
        writer.lm.save_pretrained(folder)
        torch.save(writer.value.state_dict(), folder / _HEAD)
        self.processing_class.save_pretrained(folder)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, self.model.lm)
        self.model.value.load_state_dict(torch.load(Path(resume_from_checkpoint) / _HEAD, map_location="cpu", weights_only=True))


def _to_end(answer: "List[int]", ends: "List[int]") -> "Tuple[List[int], bool]":
    """An answer up to and with the token that ended it."""
    for n, token in enumerate(answer):
        if token in ends:
            return answer[: n + 1], True
    return answer, False


def _side_by_side(prompts: "List[List[int]]", answers: "List[List[int]]", pad: int, device: Any) -> "Tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Prompts with their answers, padded on the right; what attention is given to; where the answers are, from the second token on."""
    longest = max(len(p) + len(a) for p, a in zip(prompts, answers))
    ids = torch.full((len(prompts), longest), pad)
    attention = torch.zeros_like(ids)
    written = torch.zeros(len(prompts), longest - 1)
    for n, (p, a) in enumerate(zip(prompts, answers)):
        ids[n, : len(p) + len(a)] = torch.tensor(p + a)
        attention[n, : len(p) + len(a)] = 1
        written[n, len(p) - 1 : len(p) + len(a) - 1] = 1
    return ids.to(device), attention.to(device), written.to(device)


def trainer(c: Any, given: "Dict[str, Any]") -> Any:
    from . import teach

    plan: Plan = c.plan
    chats = isinstance(c.train.rows[0]["prompt"], list)
    tokens = base.tokenizer(plan, chat=chats)
    model = base.causal(plan, tokens, teach.weights(c))
    room = base.max_length(plan, model) - plan.ppo.max_new_tokens
    if room < 1:
        raise Fail("bad_input", f"ppo.max_new_tokens: with {plan.ppo.max_new_tokens} new tokens there is no space for a prompt within training.max_length")
    prompts = _prompts(plan, c.train, tokens, room)
    reference: "Optional[PreTrainedModel]" = None
    if plan.method == "full" or plan.adapter:  # else it is the model without its adapter
        frozen = base.adapted(replace(plan, method="full"), base.causal(plan, tokens, c.precision))
        reference = frozen.eval().requires_grad_(False).to(c.device)
    writer = Writer(base.adapted(plan, model))
    for part in writer.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # training must use the same network as generation
    given = {**given, teach.CHECKPOINTING: False, "remove_unused_columns": False}
    if plan.training.gradient_checkpointing:
        getattr(writer.lm, f"{teach.CHECKPOINTING}_enable")()
        writer.lm.enable_input_require_grads()
    return Ppoer(
        plan, prompts, rewards.reward(plan.reward, c.device, plan.model.get("trust_remote_code", False)), reference, c.precision,
        model=writer,
        args=TrainingArguments(**given),
        train_dataset=list(range(len(prompts))),
        data_collator=lambda indices: {"index": torch.tensor(indices)},
        processing_class=tokens,
    )  # fmt: skip


def _prompts(plan: Plan, data: rows.Rows, tokens: Any, room: int) -> "List[Dict[str, Any]]":
    made, long = [], []
    for row, place in zip(data.rows, data.places):
        prompt = row["prompt"]
        text = tokens.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True) if isinstance(prompt, list) else prompt
        ids = tokens(text, add_special_tokens=not isinstance(prompt, list))["input_ids"]
        if tokens.eos_token_id is not None and ids and ids[-1] == tokens.eos_token_id and isinstance(prompt, str):
            ids = ids[:-1]  # the model generates the end
        if len(ids) > room:
            long.append(place)
            if plan.training.too_long == "drop":
                continue
            ids = ids[-room:]
        made.append({"ids": ids, "prompt": text, "row": row})
    if long and plan.training.too_long == "fail":
        raise Fail("bad_input", f"dataset: {len(long)} prompts are longer than {room} tokens, the first is {long[0]}: raise training.max_length, or set training.too_long to truncate or drop")
    if not made:
        raise Fail("bad_input", f"dataset is empty: every prompt is longer than {room} tokens: raise training.max_length")
    return made


__all__ = ["Again", "Ppo", "Writer", "advantages", "trainer"]
