"""Tiny language models of a configuration, with a tokenizer trained on the spot: python tiny_models.py llama FOLDER"""

import sys

WORDS = "the cat sat on a mat and saw seven red birds fly over old hills while rain fell into blue water near green stones".split()


def tokens(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    teacher = trainers.BpeTrainer(vocab_size=300, special_tokens=["<pad>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator([" ".join(WORDS)] * 4, teacher)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="</s>", pad_token="<pad>")
    fast.save_pretrained(folder)
    return fast


def llama(folder):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    made = tokens(folder)
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(made),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.2,  # a model that says something, as one that learned: adapters would have nothing to hold on to
        pad_token_id=made.pad_token_id,
        eos_token_id=made.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)


def gpt2(folder):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    made = tokens(folder)
    torch.manual_seed(1)
    end = made.eos_token_id
    config = GPT2Config(vocab_size=len(made), n_embd=64, n_layer=2, n_head=4, n_positions=128, pad_token_id=made.pad_token_id, eos_token_id=end, bos_token_id=end)
    GPT2LMHeadModel(config).save_pretrained(folder)
    return str(folder)


TINY = {"llama": llama, "gpt2": gpt2}

if __name__ == "__main__":
    TINY[sys.argv[1]](sys.argv[2])
