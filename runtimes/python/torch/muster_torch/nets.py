"""The networks that come with Muster."""

import importlib.util
import inspect
import sys
from typing import Any, Dict, List, Sequence, Tuple

import torch
from muster_core import Fail
from torch import nn

from .parts import file_of


class CNN(nn.Module):
    """A small convolutional network for images of 8 by 8 pixels and more: blocks that halve the size, then their mean or a few pixels."""

    def __init__(self, shape: "Tuple[int, int, int]", classes: int, width: int = 32) -> None:
        super().__init__()
        channels, high, wide = shape
        blocks: "List[nn.Module]" = []
        while min(high, wide) >= 4 and len(blocks) < 5:
            blocks.append(_block(channels, width))
            channels, width = width, min(width * 2, 256)
            high, wide = high // 2, wide // 2
        self.body = nn.Sequential(*blocks)
        pooled = high * wide > 16
        self.head = nn.Sequential(
            _Mean() if pooled else nn.Flatten(), nn.Dropout(0.25), nn.Linear(channels if pooled else channels * high * wide, classes or 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


def _block(channels: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2))


class _Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class MLP(nn.Module):
    """Layers of neurons for examples of any shape."""

    def __init__(self, shape: "Tuple[int, ...]", classes: int, hidden: "Sequence[int]" = (128, 64)) -> None:
        super().__init__()
        size = 1
        for n in shape:
            size *= n
        layers: "List[nn.Module]" = [nn.Flatten()]
        for n in hidden:
            layers += [nn.Linear(size, n), nn.ReLU(), nn.Dropout(0.1)]
            size = n
        self.layers = nn.Sequential(*layers, nn.Linear(size, classes or 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)  # type: ignore[no-any-return]


def build(name: str, shape: "Sequence[int]", classes: int, args: "Dict[str, Any]") -> nn.Module:
    """The network of a name: cnn, mlp, or file.py:Class of the user's own.

    A class of the user's is called with args, and with inputs (the shape of one example) and outputs (the number of classes,
    1 for regression) if it has parameters of these names. Its forward takes float32 (batch, *inputs) and returns (batch, outputs).
    """
    if name == "mlp":
        return MLP(tuple(shape), classes, **args)
    if name == "cnn":
        if len(shape) != 3:
            raise Fail("bad_input", "model: cnn needs images, but this data set has none: use mlp or gbt")
        return CNN((shape[0], shape[1], shape[2]), classes, **args)
    made = _class(name)
    takes = inspect.signature(made).parameters
    given = {"inputs": tuple(shape), "outputs": classes or 1}
    try:
        model = made(**args, **{k: v for k, v in given.items() if k in takes and k not in args})
    except TypeError as e:
        raise Fail("bad_input", f"model: {name} cannot be created with {given | args}: {e}") from e
    if not isinstance(model, nn.Module):
        raise Fail("bad_input", f"model: {name} is not a torch.nn.Module")
    if not any(p.requires_grad for p in model.parameters()):
        raise Fail("bad_input", f"model: {name} has no trainable parameters")
    return model


def _class(name: str) -> Any:
    path, wanted = file_of(name)
    sys.path.insert(0, str(path.parent.resolve()))  # it may import its neighbours
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except ImportError:
        raise
    except Exception as e:
        raise Fail("bad_input", f"model: {path} cannot be loaded: {type(e).__name__}: {e}") from e
    if not callable(found := getattr(module, wanted, None)):
        raise Fail("bad_input", f"model: {path} has no class {wanted}")
    return found
