"""A warm host: a process that keeps one model loaded between tasks and works for them, one request at a time.

It loads the model of its first client, and refuses clients that want another model. It ends on request, after MUSTER_WARM_TTL seconds without
a request, when the machine has little memory left and no client is served, and when its socket is removed. It reads no files for its clients:
their items arrive over the socket.
"""

import os
import socket
import sys
import threading
import time
import traceback
from typing import Any, Optional

from muster_core import Fail
from muster_core import device as devices
from muster_core._task import explained, listen

from . import wire
from .loading import Wanted, load, quiet
from .wire import Json
from .working import Working

_LOOK = 2.0  # seconds between looks at the clock and the memory
_EMPTY = 60.0  # seconds after which a host ends that has loaded nothing
_PATIENCE = 10.0  # seconds that a client may take to take, or to deliver, what it is in the middle of
_LINES = 64  # clients at once
_BUSY = float("inf")


class Host:
    def __init__(self, path: str, ttl: float) -> None:
        self.path, self.ttl = path, ttl
        self.turn = threading.Lock()  # held by who is served
        self.used = time.monotonic()
        self.wanted: Optional[Wanted] = None
        self.working: Optional[Working] = None
        self.lines: "dict[socket.socket, float]" = {}  # clients, those that nothing is done for with the time since when
        self.lines_turn = threading.Lock()
        wire_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.unlink(path)  # of a host that was killed
        except FileNotFoundError:
            pass
        wire.at(path, wire_socket.bind)
        wire_socket.listen(64)
        self.inode = os.stat(path).st_ino
        self.socket = wire_socket

    def serve(self) -> None:
        threading.Thread(target=self.watch, daemon=True).start()
        while True:
            conn, _ = self.socket.accept()
            with self.lines_turn:
                if not self.spare():
                    conn.close()  # its task loads the model itself
                    continue
                self.lines[conn] = time.monotonic()
            threading.Thread(target=self.talk, args=(conn,), daemon=True).start()

    def spare(self) -> bool:
        """Make room for a client: the one that nothing was done for for longest goes. Whether there is room."""
        if len(self.lines) < _LINES:
            return True
        idle = [conn for conn, since in self.lines.items() if since < _BUSY]
        if not idle:
            return False
        oldest = min(idle, key=lambda conn: self.lines[conn])
        del self.lines[oldest]
        try:
            oldest.shutdown(socket.SHUT_RDWR)  # its thread ends
        except OSError:
            pass  # it has left
        return True

    def mark(self, conn: socket.socket, since: float) -> None:
        with self.lines_turn:
            if conn in self.lines:
                self.lines[conn] = since

    def watch(self) -> None:
        """End in time."""
        while True:
            time.sleep(_LOOK)
            if not self.turn.acquire(blocking=False):
                continue
            idle = time.monotonic() - self.used
            if self.gone():
                leave("its socket is gone")
            if idle > (self.ttl if self.working else min(self.ttl, _EMPTY)):
                leave(f"no request for {idle:.0f} s")
            if idle > _LOOK and (short := scarce(devices.options().memory_buffer)):
                leave(short)
            self.turn.release()

    def gone(self) -> bool:
        try:
            return os.stat(self.path).st_ino != self.inode
        except OSError:
            return True

    def talk(self, conn: socket.socket) -> None:
        """Serve a client until it disconnects. A client that disconnects or stalls within a request does not affect others."""
        stream = conn.makefile("rwb")
        try:
            while True:
                conn.settimeout(None)
                if not stream.peek(1):
                    return
                conn.settimeout(_PATIENCE)
                message, blobs = wire.receive(stream)
                self.mark(conn, _BUSY)
                self.answer(stream, message, blobs)
                self.mark(conn, time.monotonic())
        except (wire.Broken, OSError):
            return
        except Exception:  # noqa: BLE001 - one client must not end the host of all
            traceback.print_exc()
        finally:
            with self.lines_turn:
                self.lines.pop(conn, None)
            for part in (stream, conn):
                try:
                    part.close()
                except OSError:
                    pass  # what it did not take is lost with it

    def answer(self, to: wire.Stream, message: Json, blobs: "list[bytes]") -> None:
        op = message.get("op")
        if op == "ping":
            about = self.working.about() if self.working else None
            wire.send(to, {"ok": True, "pid": os.getpid(), "busy": self.turn.locked(), "about": about})
            return
        if op == "evict":
            wire.send(to, {"ok": True})
            leave("it was stopped")
        if op not in ("open", "run"):
            wire.send(to, {"fail": {"reason": "bad_input", "message": f"there is no request {op}"}})
            return
        while not self.turn.acquire(timeout=1):
            wire.send(to, {"step": {"step": "waiting for the model: another task is served"}})
        try:
            wire.send(to, self.done(to, message, blobs))
        finally:
            self.used = time.monotonic()
            if self.working is not None:
                devices.release(self.working.device)
            self.turn.release()

    def done(self, to: wire.Stream, message: Json, blobs: "list[bytes]") -> Json:
        def step(event: Json) -> None:
            wire.send(to, {"step": event})

        listen(lambda fraction, text, figures: step({**figures, **({"step": text} if text else {})}))
        try:
            new = self.open(message, step)
            assert self.working is not None
            if message["op"] == "open":
                return {"about": self.working.about(), "new": new}
            records = self.working.run(wire.unpack(message.get("items") or [], blobs), message.get("params") or {}, step)
            return {"records": records, "fits": self.working.fits}
        except wire.Broken:
            raise
        except Fail as e:
            return {"fail": {"reason": e.reason, "message": str(e), **e.detail}}
        except Exception as e:  # noqa: BLE001 - it is reported to the client
            traceback.print_exc()
            reason, sentence = explained(e)
            return {"fail": {"reason": reason, "message": sentence}}
        finally:
            listen(None)

    def open(self, message: Json, step: Any) -> bool:
        """Load the model unless it is there. Whether it is new."""
        wanted = Wanted(**message["wanted"])
        if self.working is not None and wanted == self.wanted:
            return False
        if self.wanted is not None and wanted != self.wanted:
            raise Fail("dependency", f"this host is for {self.wanted.model}, not for {wanted.model}")
        if not wanted.shareable():
            raise Fail("dependency", f"model {wanted.model} is not loaded by a host of all tasks")
        self.working = load(wanted, lambda text: step({"step": text}))
        self.wanted = wanted
        return True


def scarce(buffer: float) -> str:
    """Says that the machine has less memory left than its owner wants, or than any machine needs; "" if not."""
    free, total = _memory()
    least = max(buffer, 0.03) * total
    return f"{free >> 20} MiB of memory are free, and {int(least) >> 20} are to be" if total and free < least else ""


def _memory() -> "tuple[int, int]":
    """What is free and what there is, in bytes; zeros where it is not known."""
    try:
        with open("/proc/meminfo", encoding="ascii") as f:
            figures = {line.split(":")[0]: int(line.split()[1]) << 10 for line in f if line.endswith("kB\n")}
        return figures["MemAvailable"], figures["MemTotal"]
    except (OSError, KeyError, ValueError):
        pass
    try:
        import psutil
    except ImportError:
        return 0, 0
    memory = psutil.virtual_memory()
    return int(memory.available), int(memory.total)


def leave(why: str) -> None:
    print(f"the host ends: {why}", file=sys.stderr, flush=True)
    os._exit(0)  # the memory is freed with the process, whatever a library's thread does


def main() -> None:
    quiet()
    path = os.environ.get("MUSTER_WARM")
    if not path:
        sys.exit("MUSTER_WARM names no socket: a worker with --cache-models starts this")
    Host(path, float(os.environ.get("MUSTER_WARM_TTL") or 600)).serve()


if __name__ == "__main__":
    main()
