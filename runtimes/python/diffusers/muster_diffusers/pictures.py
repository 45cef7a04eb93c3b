"""PNG files with their parameters, previews of unfinished images, and contact sheets."""

import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

# How much red, green and blue there is in each channel of the latents, found by fitting latents to their images. It gives a
# picture of an eighth of the size at the cost of a small product, where the decoder would take as long as a step.
_COLOURS = {
    "sd": ((0.3512, 0.2297, 0.3227), (0.3250, 0.4974, 0.2350), (-0.2829, 0.1762, 0.2721), (-0.2120, -0.2616, -0.7177)),
    "xl": ((0.3920, 0.4054, 0.4549), (-0.2634, -0.0196, 0.0653), (0.0568, 0.1687, -0.0755), (-0.3112, -0.2359, -0.2076)),
}
_THUMB = 128  # pixels of the longer side of an image on a sheet
MOST = 64  # images on a sheet


def write(path: Path, pixels: Any, said: Dict[str, Any]) -> None:
    """A PNG of an array from 0 to 1, with the given text chunks, written atomically."""
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    for name, value in said.items():
        if value is not None:
            info.add_itxt(name, str(value))
    _replace(path, image(pixels), pnginfo=info)


def image(pixels: Any) -> Any:
    from PIL import Image

    return Image.fromarray((pixels * 255).round().clip(0, 255).astype("uint8"))


def glimpses(latents: Any, kind: str) -> "Optional[List[Any]]":
    """Small images of latents, None for those of a form whose colours are not known."""
    if latents is None or latents.ndim != 4 or latents.shape[1] != 4:
        return None
    import torch

    colours = torch.tensor(_COLOURS["xl" if "XL" in kind else "sd"])
    small = torch.einsum("bchw,cr->bhwr", latents.detach().float().cpu(), colours)
    return [image(((one + 1) / 2).nan_to_num().clamp(0, 1).numpy()) for one in small]


def sheet(path: Path, images: Sequence[Any]) -> None:
    """A PNG of small copies of the images, in rows; of the last ones if they are many."""
    from PIL import Image

    small = []
    for one in images[-MOST:]:
        scale = _THUMB / max(one.size)
        small.append(one.resize((max(1, round(one.width * scale)), max(1, round(one.height * scale)))))
    columns = 1
    while columns * columns < len(small):
        columns += 1
    rows = -(-len(small) // columns)
    drawn = Image.new("RGB", (columns * _THUMB, rows * _THUMB), (32, 32, 32))
    for i, one in enumerate(small):
        drawn.paste(one, (i % columns * _THUMB + (_THUMB - one.width) // 2, i // columns * _THUMB + (_THUMB - one.height) // 2))
    _replace(path, drawn)


def _replace(path: Path, what: Any, **how: Any) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        what.save(part, format="PNG", **how)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
