"""Runs a task of Muster as a job of TrainForge. .trainforge/task.json, beside this file, says what to run.

Python 3.8 or later, without packages. What Muster is to know goes to the output, in lines that begin with ::muster or ::trainforge.
"""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
import zipfile
from typing import Any, Iterator

HERE = os.path.dirname(os.path.abspath(__file__))
META = os.path.join(HERE, ".trainforge")
OUT = os.path.join(META, "out")
EVENTS = os.path.join(META, "events")
MAX_LINE = 64 << 10
MAX_RESULT = 256 << 10
MAX_UPLOAD = 500 << 20
MAX_FILES = 10_000

with open(os.path.join(META, "task.json"), encoding="utf-8") as spec_file:
    SPEC = json.load(spec_file)
WORK = os.path.join(HERE, "task")
LOCK = threading.Lock()
SINK = open(os.path.join(META, "output.log"), "ab", 0) if SPEC["log"] == "file" else sys.stdout.buffer


def write_line(line: bytes) -> None:
    """Writes one line to where Muster reads it."""
    with LOCK:
        SINK.write(line.rstrip(b"\r\n") + b"\n")
        SINK.flush()


def send(value: dict[str, Any]) -> None:
    write_line(b"::trainforge " + json.dumps(value, allow_nan=False).encode())


def pattern(glob: str) -> re.Pattern[str]:
    """Translates a glob with ** over folders, [a-z] and {a,b} to a regular expression."""
    out, depth, i = "", 0, 0
    while i < len(glob):
        if glob.startswith("**/", i):
            out, i = out + "(?:[^/]+/)*", i + 3
            continue
        if glob.startswith("**", i):
            out, i = out + ".*", i + 2
            continue
        c = glob[i]
        i += 1
        if c == "*":
            out += "[^/]*"
        elif c == "?":
            out += "[^/]"
        elif c == "{":
            out, depth = out + "(?:", depth + 1
        elif c == "}" and depth:
            out, depth = out + ")", depth - 1
        elif c == "," and depth:
            out += "|"
        elif c == "[" and "]" in glob[i + 1:]:
            end = glob.index("]", i + 1)
            body = glob[i:end].replace("\\", "\\\\")
            out, i = out + "[" + ("^" + body[1:] if body[0] in "!^" else body) + "]", end + 1
        elif c == "\\" and i < len(glob):
            out, i = out + re.escape(glob[i]), i + 1
        else:
            out += re.escape(c)
    return re.compile(out + ")" * depth)


def files_of(folder: str) -> Iterator[tuple[str, str]]:
    for at, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(at, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield os.path.relpath(path, folder).replace(os.sep, "/"), path


def outputs() -> tuple[dict[str, str], list[str]]:
    """Returns the artifacts by name, and the plain outputs that are missing."""
    found: dict[str, str] = {}
    missing: list[str] = []
    everything = dict(files_of(WORK)) if SPEC["outputs"] else {}
    for glob in SPEC["outputs"]:
        if not any(c in glob for c in "*?[{"):
            clean = os.path.normpath(glob).replace(os.sep, "/")
            below = {name: path for name, path in everything.items() if name == clean or name.startswith(clean + "/")}
            if not below:
                missing.append(glob)
            found.update(below)
            continue
        regex = pattern(glob)
        found.update({name: path for name, path in everything.items() if regex.fullmatch(name)})
    for name, path in files_of(OUT):
        if name not in ("result.json", "failure.json"):
            found[name] = path
    return dict(sorted(found.items())[:MAX_FILES]), missing


def read_json(name: str, limit: int) -> tuple[Any, str | None]:
    try:
        with open(os.path.join(OUT, name), "rb") as f:
            data = f.read(limit + 1)
    except OSError:
        return None, None
    try:
        if len(data) > limit:
            raise ValueError("it is larger than %d bytes" % limit)
        value = json.loads(data.decode())
        json.dumps(value, allow_nan=False)
        return value, None
    except ValueError as err:
        return None, str(err)


def upload(found: dict[str, str]) -> str:
    """Sends the artifacts to the server by POST /api/jobs/ID/results; returns "" or why that failed."""
    base = (os.environ.get("TRAINFORGE_API_URL", "") or SPEC["url"]).rstrip("/")
    boundary = uuid.uuid4().hex
    with tempfile.TemporaryFile() as body:
        body.write((
            "--%s\r\nContent-Disposition: form-data; name=\"results_zip\"; filename=\"muster-outputs.zip\"\r\n"
            "Content-Type: application/zip\r\n\r\n" % boundary).encode())
        with tempfile.TemporaryFile() as archive:
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as z:
                for name, path in found.items():
                    z.write(path, name)
            size = archive.tell()
            if size > MAX_UPLOAD:
                return "the outputs are larger than %d bytes" % MAX_UPLOAD
            archive.seek(0)
            while True:
                chunk = archive.read(1 << 20)
                if not chunk:
                    break
                body.write(chunk)
        body.write(("\r\n--%s--\r\n" % boundary).encode())
        length, why = body.tell(), ""
        for attempt in range(SPEC["upload_tries"]):
            if attempt:
                time.sleep(min(2.0 ** attempt, 30))
            body.seek(0)
            request = urllib.request.Request(
                "%s/api/jobs/%s/results" % (base, SPEC["job_id"]), data=body, method="POST",
                headers={"Content-Type": "multipart/form-data; boundary=" + boundary, "Content-Length": str(length),
                         "ngrok-skip-browser-warning": "true", "User-Agent": "TrainForge-Worker/2.0"})
            try:
                with urllib.request.urlopen(request, timeout=300) as answer:
                    answer.read()
                return ""
            except (OSError, ValueError) as err:
                why = str(err)
        return why


def environment() -> dict[str, str]:
    env = dict(os.environ)
    env.pop("TRAINFORGE_API_URL", None)  # it may hold a key
    env["PYTHONUNBUFFERED"] = "1"
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env.get("PATH", os.defpath)
    env.update(SPEC["env"])
    env.update(MUSTER_OUT=OUT, MUSTER_EVENTS=EVENTS)
    for name, value in SPEC["gang_env"].items():
        env.setdefault(name, value)
    return env


def follow_events(done: threading.Event) -> None:
    """Passes lines of $MUSTER_EVENTS on."""
    at, rest = 0, b""
    while True:
        last = done.is_set()
        try:
            with open(EVENTS, "rb") as f:
                f.seek(at)
                data = f.read(1 << 20)
        except OSError:
            data = b""
        at += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                write_line(b"::muster " + line.strip()[:MAX_LINE])
        rest = rest[:MAX_LINE]
        if last and not data:
            return
        done.wait(0.5)


def keep_alive(done: threading.Event) -> None:
    while not done.wait(SPEC["alive_seconds"]):
        send({"alive": True})


def command() -> Any:
    argv = SPEC["argv"]
    if argv and argv[0] in ("python", "python3"):
        argv = [sys.executable] + argv[1:]
    return argv or SPEC["shell"]


def stop(child: subprocess.Popen[bytes], how: int) -> None:
    try:
        os.killpg(child.pid, how) if hasattr(os, "killpg") else child.terminate()
    except OSError:
        pass


def run() -> tuple[int, str]:
    """Runs the command and returns its exit code, and what stopped it if anything did."""
    stopped: list[str] = []
    done = threading.Event()
    child = subprocess.Popen(
        command(), shell=not SPEC["argv"], cwd=WORK, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True)

    def end(why: str) -> None:
        stopped.append(why)
        stop(child, getattr(signal, SPEC["kill_signal"], signal.SIGTERM))
        threading.Timer(SPEC["grace_seconds"], stop, (child, getattr(signal, "SIGKILL", signal.SIGTERM))).start()

    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: end("shutdown"))
    clock = threading.Timer(SPEC["timeout_seconds"], end, ("timeout",)) if SPEC["timeout_seconds"] else None
    threads = [threading.Thread(target=follow_events, args=(done,)), threading.Thread(target=keep_alive, args=(done,))]
    for thread in threads:
        thread.daemon = True
        thread.start()
    if clock:
        clock.daemon = True
        clock.start()
    out = child.stdout
    while out:
        line = out.readline(MAX_LINE)
        if not line:
            break
        if not line.startswith(b"::trainforge "):  # only this program speaks so
            write_line(line)
    code = child.wait()
    done.set()
    threads[0].join(5)
    if clock:
        clock.cancel()
    return code, stopped[0] if stopped else ""


def main() -> int:
    os.makedirs(OUT, exist_ok=True)
    os.makedirs(WORK, exist_ok=True)
    send({"alive": True})
    began = time.monotonic()
    end: dict[str, Any] = {}
    want = SPEC["python_version"]
    have = ".".join(map(str, sys.version_info[:3]))
    if want and not (have + ".").startswith(want + "."):
        send({"end": True, "exit_code": 1, "failure": {"reason": "dependency", "message": "the task wants Python %s, and this worker has %s" % (want, have)}})
        return 1
    try:
        code, stopped = run()
    except OSError as err:
        send({"end": True, "exit_code": 127, "failure": {"reason": "start_failed", "message": str(err)[:2000]}})
        return 127
    if code < 0:
        end["signal"], code = -code, 128 - code
    end.update(end=True, exit_code=code, stopped=stopped, wall_seconds=time.monotonic() - began)
    end["result"], end["result_error"] = read_json("result.json", MAX_RESULT)
    end["failure"] = read_json("failure.json", 64 << 10)[0] if code else None
    if stopped != "shutdown":
        found, end["missing"] = outputs()
        if SPEC["log"] == "file":
            end["outputs"] = [[name, os.path.relpath(path, HERE).replace(os.sep, "/")] for name, path in found.items()]
        elif found:
            end["upload_error"] = upload(found)
    send(end)
    return code


if __name__ == "__main__":
    sys.exit(main())
