"""Tiny pipelines of Stable Diffusion with random weights: python tiny_pipelines.py FOLDER makes them there."""

import json
import sys
from pathlib import Path


def make(root: Path) -> None:
    """`plain` has no checker; those of `strict` and `mild` flag all and nothing."""
    import torch
    from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
    from diffusers.pipelines.stable_diffusion import StableDiffusionSafetyChecker
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    torch.set_num_threads(1)
    torch.manual_seed(0)
    alphabet = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["<|startoftext|>", "<|endoftext|>", *alphabet, *(c + "</w>" for c in alphabet)]
    (root / "vocab.json").write_text(json.dumps({w: i for i, w in enumerate(words)}))
    (root / "merges.txt").write_text("#version: 0.2\n")
    parts = {
        "unet": UNet2DConditionModel(
            block_out_channels=(8, 16),
            layers_per_block=1,
            sample_size=16,
            in_channels=4,
            out_channels=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=16,
            norm_num_groups=4,
            attention_head_dim=4,
        ),
        "vae": AutoencoderKL(
            block_out_channels=[8, 16], in_channels=3, out_channels=3, down_block_types=["DownEncoderBlock2D"] * 2, up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4, norm_num_groups=4
        ),
        "text_encoder": CLIPTextModel(
            CLIPTextConfig(hidden_size=16, intermediate_size=32, num_attention_heads=2, num_hidden_layers=2, vocab_size=len(words), max_position_embeddings=16, bos_token_id=0, eos_token_id=1, pad_token_id=1)
        ),
        "tokenizer": CLIPTokenizer(vocab=str(root / "vocab.json"), merges=str(root / "merges.txt"), model_max_length=16),
        "scheduler": PNDMScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", skip_prk_steps=True, steps_offset=1),
    }
    StableDiffusionPipeline(**parts, safety_checker=None, feature_extractor=None, requires_safety_checker=False).save_pretrained(root / "plain")
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 16, "patch_size": 8}
    for name, threshold in (("strict", -2.0), ("mild", 2.0)):
        checker = StableDiffusionSafetyChecker(CLIPConfig(vision_config=vision, projection_dim=8))
        for weights in (checker.concept_embeds_weights, checker.special_care_embeds_weights):
            weights.data.fill_(threshold)
        extractor = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
        StableDiffusionPipeline(**parts, safety_checker=checker, feature_extractor=extractor).save_pretrained(root / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
