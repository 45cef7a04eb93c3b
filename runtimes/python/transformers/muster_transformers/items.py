"""What a model is to work on: texts, messages and pictures, from the input or from files."""

import base64
import binascii
import json
import os
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from muster_core import Fail
from muster_core.fetch import fetch

Json = Dict[str, Any]

_TEXT = ("text", "prompt", "input", "sentence", "question", "content")
_IMAGE = ("image", "path", "file", "url", "input")
_PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_MOST_BYTES = 64 << 20  # of a picture


class BadItem(Exception):
    """An item that cannot be used; the others can."""


class TooLong(BadItem):
    """One that the model cannot read to its end."""


def given_items(given: Json, single: str = "input", many: str = "inputs", file: str = "input_file") -> List[Any]:
    """All items of a kind's input, as they are written there. Pictures are not read yet."""
    named = [name for name in (single, many, file) if given.get(name) is not None]
    if len(named) != 1:
        raise Fail("bad_input", f"{named[1] if named else single}: write one of {single} (one item), {many} (a list) and {file} (a file of lines)")
    if named[0] == single:
        return [given[single]]
    items = list(given[many]) if named[0] == many else from_file(Path(given[file]), file)
    if not items:
        raise Fail("bad_input", f"{named[0]}: it is empty")
    return items


def places(given: Json, what: str) -> "Callable[[int], str]":
    """The name of an item in messages, by its index: as in the input, or by its kind."""
    if given.get("input") is not None:
        return lambda i: "input"
    return (lambda i: f"inputs[{i}]") if given.get("inputs") is not None else (lambda i: f"{what} {i}")


def from_file(path: Path, field: str) -> List[Any]:
    """The items of a .jsonl file, of a .txt file (one a line), or the pictures of a folder, in the order of their names."""
    if path.is_dir():
        return [str(p) for p in sorted(path.rglob("*")) if p.suffix.lower() in _PICTURES and p.is_file()]
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Fail("bad_input", f"{field}: there is no file {path} in the task's folder") from None
    except UnicodeDecodeError as e:
        raise Fail("bad_input", f"{field}: {path} is not UTF-8 text ({e})") from e
    except OSError as e:
        raise Fail("bad_input", f"{field}: {path} cannot be read: {e}") from e
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix.lower() not in (".jsonl", ".ndjson", ".json"):
        return [line.rstrip("\r") for _, line in lines]
    items = []
    for n, line in lines:
        try:
            items.append(json.loads(line))
        except ValueError as e:
            raise Fail("bad_input", f"{field}: line {n} of {path} is not JSON: {e}") from e
    return items


def name_of(raw: Any) -> Any:
    """What an item calls itself, None for nothing."""
    return raw.get("id") if isinstance(raw, dict) else None


def read(raw: Any, modality: str, field: Optional[str] = None, system: Optional[str] = None) -> Json:
    """An item in the form of models. BadItem has the reason why it is invalid."""
    if modality == "image":
        return _image(raw, field)
    item = _text(raw, field, system)
    if isinstance(raw, dict) and isinstance(raw.get("shorter"), list):
        item["shorter"] = [_text(r, field, system) for r in raw["shorter"]]
        item["too_long"] = raw.get("too_long")
    return item


def _text(raw: Any, field: Optional[str], system: Optional[str]) -> Json:
    if isinstance(raw, dict) and isinstance(raw.get("messages"), list) and not field:
        messages = raw["messages"]
        for m in messages:
            if not isinstance(m, dict) or not isinstance(m.get("role"), str) or not isinstance(m.get("content"), (str, list)):
                raise BadItem("messages: each is {role, content}")
        if not messages:
            raise BadItem("messages: there are none")
    elif isinstance(raw, list) and raw and all(isinstance(m, dict) and "role" in m for m in raw):
        return _text({"messages": raw}, None, system)
    else:
        text = _picked(raw, field, _TEXT)
        if not system and not (isinstance(raw, dict) and raw.get("system")):
            item: Json = {"text": text}
            if isinstance(raw, dict) and raw.get("prompt_name"):
                item["prompt_name"] = raw["prompt_name"]
            return item
        messages = [{"role": "user", "content": text}]
    system = raw.get("system") if isinstance(raw, dict) and raw.get("system") else system
    if system and messages[0]["role"] != "system":
        messages = [{"role": "system", "content": system}, *messages]
    return {"messages": messages}


def _image(raw: Any, field: Optional[str]) -> Json:
    where = _picked(raw, field, _IMAGE)
    if where.startswith(("http://", "https://")):
        return {"image": _fetched(where)}
    if where.startswith("data:"):
        head, _, body = where.partition(",")
        if not head.endswith(";base64"):
            raise BadItem("its data: address is not in base64")
        return {"image": _decoded(body)}
    path = Path(where)
    try:
        if path.is_file():
            if path.stat().st_size > _MOST_BYTES:
                raise BadItem(f"{where} is larger than {_MOST_BYTES >> 20} MiB")
            return {"image": path.read_bytes()}
    except OSError as e:
        if len(where) < 4096:
            raise BadItem(f"{where} cannot be read: {e}") from e
    if len(where) > 200 and not Path(where[:200]).suffix:
        return {"image": _decoded(where)}
    raise BadItem(f"there is no file {where[:200]} in the task's folder")


def _picked(raw: Any, field: Optional[str], names: "tuple[str, ...]") -> str:
    if isinstance(raw, dict):
        wanted = [field] if field else [n for n in names if n in raw]
        if not wanted or wanted[0] not in raw:
            raise BadItem(f"it has no field {field or ', '.join(names[:3])}" + (f"; it has {', '.join(sorted(map(str, raw)))}" if raw else ""))
        raw = raw[wanted[0]]
    if not isinstance(raw, str):
        raise BadItem(f"it is {type(raw).__name__}, no text")
    if not raw.strip():
        raise BadItem("it is empty")
    return raw


def _decoded(body: str) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as e:
        raise BadItem(f"not base64: {e}") from e


def _fetched(url: str) -> bytes:
    with tempfile.TemporaryDirectory() as where:
        try:
            return fetch(url, Path(where) / "picture", "its address", most=_MOST_BYTES).read_bytes()
        except Fail as e:
            raise BadItem(str(e)) from e


def replace(path: Path, text: str) -> None:
    """Write a file so that there is never a half of it."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
