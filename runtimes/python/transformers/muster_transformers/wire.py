"""How tasks and warm hosts talk: over a unix socket, frames of one line of JSON and the bytes that it counts.

{"op": "run", "items": [{"image": {"$bytes": 0}}], "bytes": [4711]}\\n<4711 bytes>

ping                     is answered with {"ok", "pid", "busy", "about"}
evict                    is answered with {"ok"}, and ends the host
open wanted              loads a model unless it is loaded: {"step"}…, then {"about", "new"} or {"fail": {reason, message}}
run wanted items params  {"step"}…, then {"records"} or {"fail"}
"""

import json
import os
import socket
from typing import Any, Dict, List, Protocol, Tuple

Json = Dict[str, Any]

_MOST_LINE = 64 << 20
_MOST_BYTES = 1 << 30  # of one frame


class Stream(Protocol):
    """What socket.makefile("rwb") gives."""

    def readline(self, size: int, /) -> bytes: ...
    def read(self, size: int, /) -> bytes: ...
    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...


class Broken(Exception):
    """The other end is gone, or talks nonsense."""


def pack(items: List[Json]) -> Tuple[List[Json], List[bytes]]:
    """Items with their bytes beside them."""
    blobs: List[bytes] = []
    packed = []
    for item in items:
        plain = {}
        for name, value in item.items():
            if isinstance(value, bytes):
                blobs.append(value)
                value = {"$bytes": len(blobs) - 1}
            plain[name] = value
        packed.append(plain)
    return packed, blobs


def unpack(items: List[Json], blobs: List[bytes]) -> List[Json]:
    def whole(value: Any) -> Any:
        if isinstance(value, dict) and set(value) == {"$bytes"}:
            return blobs[value["$bytes"]]
        return value

    try:
        return [{name: whole(value) for name, value in item.items()} for item in items]
    except (IndexError, AttributeError, TypeError) as e:
        raise Broken(f"a frame's items are not those of its bytes: {e}") from e


def send(to: Stream, message: Json, blobs: "tuple[bytes, ...] | List[bytes]" = ()) -> None:
    if blobs:
        message = {**message, "bytes": [len(b) for b in blobs]}
    try:
        to.write(json.dumps(message).encode() + b"\n")
        for b in blobs:
            to.write(b)
        to.flush()
    except (OSError, ValueError) as e:
        raise Broken(str(e)) from e


def receive(of: Stream) -> Tuple[Json, List[bytes]]:
    """The next frame. Broken also at the end."""
    try:
        line = of.readline(_MOST_LINE)
        if not line.endswith(b"\n"):
            raise Broken("the connection ended" if len(line) < _MOST_LINE else "a line is too long")
        message = json.loads(line)
        if not isinstance(message, dict):
            raise Broken("a frame is not an object")
        sizes = message.pop("bytes", [])
        if not all(isinstance(n, int) and n >= 0 for n in sizes) or sum(sizes) > _MOST_BYTES:
            raise Broken("a frame has too many bytes")
        blobs = [of.read(n) for n in sizes]
        if any(len(b) != n for b, n in zip(blobs, sizes)):
            raise Broken("the connection ended in a frame")
    except (OSError, ValueError, TypeError) as e:
        raise Broken(str(e)) from e
    return message, blobs


def at(path: str, use: Any) -> Any:
    """Call use with an address of a socket: paths of sockets are short, those of data dirs need not be."""
    if len(os.fsencode(path)) < 100 or not hasattr(os, "O_PATH"):
        return use(path)
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        return use(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def dial(path: str) -> socket.socket:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        at(path, s.connect)
    except OSError as e:
        s.close()
        raise Broken(str(e)) from e
    return s
