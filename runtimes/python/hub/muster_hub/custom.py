"""The kind custom: named operations on the project's folder of models on the worker.

    clear_cache        removes what was downloaded, except what a task or a warm host uses now
    prepare_models     downloads models and holds their files to the hub's hashes
    setup_environment  both, in this order

Only the caches of downloads are touched: not what tasks put beside them, nor what the owner of the worker put into a folder of its own.
"""

import hashlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

from muster_core import Fail, log, models, report, run, save_json

Json = Dict[str, Any]

_GONE = ".gone-"  # prefix of folders that are being removed


def perform(given: Json) -> Json:
    name = given["name"]
    if name not in OPERATIONS:
        raise Fail("bad_input", f"name: unknown operation {name}: use one of {', '.join(OPERATIONS)}, or a custom one")
    os.environ["HF_HUB_CACHE"] = str(hub())  # whatever the job says: what is prepared is for all tasks
    done: List[Json] = []
    try:
        OPERATIONS[name](given.get("parameters") or {}, done)
    finally:
        save_json("custom.json", {"name": name, "done": done})
    return {"name": name, "status": "success", "done": done}


def setup_environment(parameters: Json, done: List[Json]) -> None:
    clear = parameters.get("clear_cache")
    if clear:
        clear_cache({} if clear is True else {"what": clear}, done)
    if parameters.get("prepare_models"):
        prepare_models({"models": parameters["prepare_models"]}, done)


def clear_cache(parameters: Json, done: List[Json]) -> None:
    kept = {models.cached_as(known(m)[0]) for m in parameters.get("keep") or []}
    record: Json = {"operation": "clear_cache", "removed": [], "freed": 0, "in_use": []}
    done.append(record)
    entries = list(cached(parameters.get("what") or ["models", "datasets"]))
    for i, path in enumerate(entries):
        report(i / len(entries), f"clearing {path.name}")
        if path.name in kept:
            continue
        lock = models.free(path.name)
        if lock is None:
            record["in_use"].append(path.name)
            log(f"{path.name} is in use and stays")
            continue
        with lock:
            size = held(path)
            if not path.name.startswith(_GONE):  # no task finds a part of it during the removal, or after a kill
                path = path.rename(path.with_name(_GONE + path.name))
            shutil.rmtree(path)
        record["removed"].append(path.name.removeprefix(_GONE))
        record["freed"] += size
    freed = f", {record['freed'] / 1e6:,.1f} MB are free again" if record["freed"] else ""
    log(f"removed caches: {len(record['removed'])}{freed}")


def prepare_models(parameters: Json, done: List[Json]) -> None:
    record: Json = {"operation": "prepare_models", "models": []}
    done.append(record)
    wanted = parameters["models"]
    failed: List[Fail] = []
    for i, one in enumerate(wanted):
        name, revision = known(one)
        report(i / len(wanted), f"preparing {name}")
        try:
            record["models"].append(prepared(name, revision))
        except Fail as e:
            failed.append(e)
            log(f"{name}: {e}")
            record["models"].append({"model": name, "error": {"reason": e.reason, "message": str(e)}})
    if failed:
        more = f" (and {len(failed) - 1} more of {len(wanted)})" if len(failed) > 1 else ""
        raise Fail(failed[0].reason, f"{failed[0]}{more}")


def prepared(name: str, revision: "str | None") -> Json:
    """Download a complete model into the folder of models."""
    began, before = time.monotonic(), held(hub() / models.cached_as(name))
    folder = models.find(name, revision)
    if hub() not in folder.parents:
        raise Fail("bad_input", f"model {name} is already a folder: only models of the hub can be prepared")
    report(step=f"verifying {name}")
    if damaged := wrong(folder):
        log(f"{name}: {', '.join(p.name for p in damaged)} are damaged, and fetched again")
        for path in damaged:
            path.resolve().unlink(missing_ok=True)
            path.unlink(missing_ok=True)
        folder = models.find(name, revision)
        if damaged := wrong(folder):
            raise Fail("dependency", f"model {name}: {damaged[0].name} differs from the hub's, even after a second download: check the worker's disk and memory")
    files = [p for p in folder.rglob("*") if p.is_file()]
    size = sum(p.stat().st_size for p in files)
    log(f"{name}: {len(files)} files, {size / 1e6:,.0f} MB")
    now = held(hub() / models.cached_as(name))
    return {"model": name, "revision": folder.name, "files": len(files), "bytes": size, "downloaded": max(now - before, 0), "seconds": round(time.monotonic() - began, 3), "verified": True}


def wrong(folder: Path) -> List[Path]:
    """The files that do not have the hash by which the cache calls them: SHA-256 of large files, Git's SHA-1 of others."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.exists():
            found.append(path)
            continue
        blob = path.resolve()
        if not path.is_file() or not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", blob.name):
            continue
        whole = hashlib.sha256() if len(blob.name) == 64 else hashlib.sha1(f"blob {blob.stat().st_size}\0".encode())
        with open(blob, "rb") as f:
            while part := f.read(1 << 20):
                whole.update(part)
        if whole.hexdigest() != blob.name:
            found.append(path)
    return found


def known(one: Any) -> "tuple[str, str | None]":
    """The repository and the revision of a model as it is written in the input."""
    name, revision = (one["model"], one.get("revision")) if isinstance(one, dict) else (one, None)
    return models.known_as(name), revision


def cached(what: List[str]) -> Iterator[Path]:
    """The folders of downloads, each of which can be removed by itself, including those that an interrupted removal left."""
    for sort in what:
        yield from sorted(hub().glob(f"{sort}--*"))
        yield from sorted(hub().glob(f"{_GONE}{sort}--*"))
    if "datasets" in what:
        for parent in (models.folder() / "datasets", models.folder() / "hf" / "datasets"):
            if parent.is_dir():
                yield from sorted(p for p in parent.iterdir() if p.is_dir())


def hub() -> Path:
    return models.folder() / "hf" / "hub"


def held(path: Path) -> int:
    """Bytes on the disk; links are not followed."""
    return sum(p.lstat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink()) if path.is_dir() else 0


OPERATIONS: "Dict[str, Callable[[Json, List[Json]], None]]" = {"setup_environment": setup_environment, "clear_cache": clear_cache, "prepare_models": prepare_models}


if __name__ == "__main__":
    run(perform)
