"""Small models, made on the spot: real architectures with weights at random, and tokenizers trained on a few lines.

That of gpt2 also as a program: python tiny.py FOLDER [WIDTH [LAYERS]]
"""

import sys
from pathlib import Path
from typing import Any

TEXT = [
    "the cat sat on the mat and looked at the dog",
    "a quick brown fox jumps over the lazy dog",
    "workers run tasks and tasks leave artifacts",
    "the sun rises in the east and sets in the west",
    "what is the capital of france? paris is the capital of france",
]

CHAT = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"


def tokenizer(folder: Path, chat: bool = False, limit: int = 64, bert: bool = False) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "</s>", "<pad>", "<unk>"]
    t = Tokenizer(models.BPE(unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bert:
        t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>", model_max_length=limit)
    if chat:
        fast.chat_template = CHAT
    fast.save_pretrained(folder)
    return fast


def gpt2(folder: Path, width: int = 32, layers: int = 2) -> Path:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    t = tokenizer(folder)
    GPT2LMHeadModel(
        GPT2Config(vocab_size=len(t), n_positions=64, n_embd=width, n_layer=layers, n_head=2, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    ).save_pretrained(folder)
    return folder


def llama(folder: Path) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    t = tokenizer(folder, chat=True)
    config = LlamaConfig(
        vocab_size=len(t),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def bert(folder: Path, labels: "tuple[str, ...]" = ("bad", "good")) -> Path:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    t = tokenizer(folder, bert=True)
    config = BertConfig(
        vocab_size=len(t), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, max_position_embeddings=64, pad_token_id=2
    )
    config.id2label = dict(enumerate(labels))
    config.label2id = {v: k for k, v in config.id2label.items()}
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def resnet(folder: Path) -> Path:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], id2label={0: "cat", 1: "dog", 2: "owl"}, label2id={"cat": 0, "dog": 1, "owl": 2}
    )
    ResNetForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def vit(folder: Path) -> Path:
    import torch
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        id2label={0: "cat", 1: "dog"},
        label2id={"cat": 0, "dog": 1},
    )
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    gpt2(Path(sys.argv[1]), *(int(n) for n in sys.argv[2:]))
