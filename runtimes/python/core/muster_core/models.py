"""Models by name: a folder or archive that is there, or a repository of the Hugging Face hub.

Who uses a model of the hub, or a data set that was downloaded, holds a lock on it to the end of its process, so that it is not cleared away under it.
"""

import os
import re
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional

from ._task import Fail, log, report

# Weights that no kind loads, and copies of the same weights in other forms.
_NEVER = (".h5", ".msgpack", ".onnx", ".onnx_data", ".ot", ".tflite", ".gguf", ".ckpt", ".mlmodel", ".mlpackage", ".tar.gz", ".zip")
_ELSEWHERE = ("onnx/", "openvino/", "coreml/", "original/", "flax/", "runs/", ".git")
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth")
_NOT_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "scaler.pt")
_VARIANT = re.compile(r"\.(fp16|bf16|fp32|non_ema|ema|int8|fp8)[.-]")
_REPOSITORY = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")

# Names by which people know models that the hub has under others.
KNOWN = {
    "bert": "google-bert/bert-base-uncased",
    "clip": "openai/clip-vit-base-patch32",
    "distilbert": "distilbert/distilbert-base-uncased",
    "gpt-2": "openai-community/gpt2",
    "gpt2": "openai-community/gpt2",
    "minilm": "sentence-transformers/all-MiniLM-L6-v2",
    "roberta": "FacebookAI/roberta-base",
    "stable-diffusion": "stable-diffusion-v1-5/stable-diffusion-v1-5",
    "t5": "google-t5/t5-base",
    "vit": "google/vit-base-patch16-224",
    "whisper": "openai/whisper-small",
    **{f"resnet{n}": f"microsoft/resnet-{n}" for n in (18, 26, 34, 50, 101, 152)},
}

_held: Dict[str, Any] = {}  # locks of this process, by the name of their file


def folder() -> Path:
    """The folder with the models that the tasks of a project downloaded; outside Muster one in the home."""
    return Path(os.environ.get("MUSTER_MODELS") or Path.home() / ".cache" / "muster" / "models")


def folders() -> List[Path]:
    """Where models are by name: the folder of the worker's owner, which tasks cannot change, and that of the project."""
    return [*map(Path, filter(None, [os.environ.get("MUSTER_OWNER_MODELS")])), folder()]


def _placed(name: str) -> Optional[Path]:
    """The first folder of that name in folders()."""
    return next((f / name for f in folders() if (f / name).is_dir()), None)


def known_as(name: str) -> str:
    """The hub's name of a model that people know by another; a folder of that name, the task's, the owner's or the project's, comes first."""
    return name if Path(name).exists() or name in KNOWN and _placed(name) else KNOWN.get(name, name)


def cached_as(name: str) -> str:
    """What the hub's cache calls the folder of a repository."""
    return "models--" + name.replace("/", "--")


def find(name: str, revision: Optional[str] = None, variant: Optional[str] = None, wanted: "Optional[Callable[[List[str]], Iterable[str]]]" = None) -> Path:
    """The folder with a model's files, which are downloaded if necessary.

    name is one of KNOWN, a folder in the task's folder or in one of folders(), a .tar.gz of one such as fine_tuning writes, or a repository of the hub. Only the files
    that a library loads are downloaded (see `choose`, or wanted, which selects from all files). Ends the task with bad_input if the
    model does not exist, with dependency if the hub is unreachable and the worker does not have the model.
    """
    name = known_as(name)
    path = Path(name).expanduser()
    if not path.exists() and not name.startswith((".", "/", "~")) and ".." not in path.parts:
        path = _placed(name) or path
    if path.is_dir():
        try:
            next(path.iterdir(), None)
        except PermissionError as e:
            raise Fail("bad_input", f"model {name}: the task may not read this folder: add it with files, or put it into the worker's folder of models") from e
        return path
    if path.is_file():
        return _unpacked(path)
    if name.startswith((".", "/", "~")) or not _REPOSITORY.fullmatch(name):
        raise Fail("bad_input", f"model {name}: the task's folder has no such folder or archive, and it is not a name of the hub, such as org/name")
    hold(name)
    pick = wanted or (lambda files: choose(files, variant))
    try:
        return _fetched(name, revision, pick)
    except Exception as e:  # noqa: BLE001 - explained, or raised again
        raise _explained(e, name, revision) from e


def choose(files: "Iterable[str]", variant: Optional[str] = None) -> List[str]:
    """The files of a repository that are needed: weights once, as safetensors where there are such, in the variant asked for where there is it."""
    files = [f for f in files if not f.endswith(_NEVER) and not f.startswith(_ELSEWHERE) and os.path.basename(f) not in _NOT_WEIGHTS]
    pipeline = "model_index.json" in files
    folders: Dict[str, List[str]] = {}
    chosen = []
    for f in files:
        if f.endswith(_WEIGHTS):
            folders.setdefault(os.path.dirname(f), []).append(f)
        else:
            chosen.append(f)
    for where, weights in folders.items():
        if pipeline and not where:
            continue  # single files for other programs
        weights = [w for w in weights if not os.path.basename(w).startswith("consolidated")] or weights
        best: List[str] = []
        for ending in ((".safetensors",), (".bin", ".pt", ".pth")):
            of_kind = [w for w in weights if w.endswith(ending)]
            plain = [w for w in of_kind if not _VARIANT.search(os.path.basename(w))]
            asked = [w for w in of_kind if variant and f".{variant}" in os.path.basename(w)]
            best = asked or plain or of_kind
            if best:
                break
        chosen += best
    return sorted(chosen)


def hold(name: str) -> None:
    """Say that this process uses a model of the hub, to its end."""
    use(cached_as(name))


def use(cached: str) -> None:
    """Say that this process uses a folder of what was downloaded, such as mnist, to its end. It waits while the folder is being cleared away."""
    file = _lock_file(cached)
    if file.name in _held:
        return
    lock = _opened(file)
    if lock is not None and _flock(lock, exclusive=False):
        _held[file.name] = lock
        try:
            os.utime(file)  # the worker first removes what was used longest ago
        except OSError:
            pass


def free(cached: str) -> Any:
    """An exclusive lock on a folder of downloads, None if another process uses it."""
    lock = _opened(_lock_file(cached))
    if lock is not None and not _flock(lock, exclusive=True):
        lock.close()
        return None
    return lock


def _fetched(name: str, revision: Optional[str], pick: "Callable[[List[str]], Iterable[str]]") -> Path:
    import huggingface_hub as hub
    from huggingface_hub import errors

    try:
        info = hub.HfApi().model_info(name, revision=revision, files_metadata=True)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.HFValidationError):
        raise  # also if there is a copy: somebody else's token may have brought it here
    except Exception as e:  # noqa: BLE001 - whatever keeps us from the hub
        try:
            path = Path(hub.snapshot_download(name, revision=revision, local_files_only=True, allow_patterns=_cached(name, revision, pick)))
        except Exception:  # noqa: BLE001 - what counts is why the hub could not be asked
            raise e from None
        log(f"the hub cannot be asked for {name} ({_line(e)}): the copy of this worker is used")
        return path
    sizes = {s.rfilename: s.size or 0 for s in info.siblings or []}
    chosen = list(pick(list(sizes)))
    _check_size(name, sum(sizes.get(f, 0) for f in chosen))
    return Path(hub.snapshot_download(name, revision=revision, allow_patterns=[_literal(f) for f in chosen], tqdm_class=_bar(name)))


def _check_size(name: str, size: int) -> None:
    """Ends the task if a model is larger than all models of the worker may be."""
    limit = int(os.environ.get("MUSTER_MODEL_DISK") or 0)
    if 0 < limit < size:
        raise Fail("dependency", f"model {name} takes {size / 2**30:.1f}GiB on the disk, and --model-disk of this worker is {limit / 2**30:.1f}GiB: take a smaller model, or select another worker by where")


def _cached(name: str, revision: Optional[str], pick: "Callable[[List[str]], Iterable[str]]") -> "Optional[List[str]]":
    """The files of a complete copy, None if they are unknown."""
    try:
        from huggingface_hub import get_cached_repo_tree

        return [_literal(f) for f in pick([f.path for f in get_cached_repo_tree(name, revision=revision)])]
    except Exception:  # noqa: BLE001 - the missing copy is reported instead
        return None


def _explained(e: Exception, name: str, revision: Optional[str]) -> Exception:
    names = {c.__name__ for c in type(e).__mro__}
    status = getattr(getattr(e, "response", None), "status_code", None)
    if isinstance(e, (Fail, ImportError, MemoryError)) or isinstance(e, OSError) and e.errno is not None and "HfHubHTTPError" not in names and "ConnectionError" not in names:
        return e
    if "GatedRepoError" in names:
        return Fail("bad_input", f"model {name} is gated: accept its terms at https://huggingface.co/{name}, and pass a token as the job's secret HF_TOKEN")
    if "RepositoryNotFoundError" in names or status == 401:
        return Fail("bad_input", f"there is no model {name}: the task's folder has no such folder, and the hub has no such repository (a private one needs a token as the job's secret HF_TOKEN)")
    if "RevisionNotFoundError" in names:
        return Fail("bad_input", f"model {name} has no revision {revision}")
    if "HFValidationError" in names:
        return Fail("bad_input", f"{name} is not the name of a model: use org/name or a folder")
    if "HTTPError" in names or isinstance(e, (OSError, RuntimeError)) or type(e).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "huggingface_hub"):
        return Fail("dependency", f"model {name} is not on this worker, and the hub cannot be reached ({_line(e)}): connect the worker to it or set HF_ENDPOINT, or add the model as a folder")
    return e


def _line(e: BaseException) -> str:
    text = str(e).strip().splitlines()
    return (text[0].rstrip(".")[:200] if text else "") or type(e).__name__


def _literal(name: str) -> str:
    """A pattern that only this name matches."""
    return re.sub(r"([\[*?])", r"[\1]", name)


def _bar(name: str) -> Any:
    """A progress bar that shows the download as the task's step."""
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        shown = 0.0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["disable"] = False
            kwargs["file"] = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives as long as the bar
            super().__init__(*args, **kwargs)

        def update(self, n: "Optional[float]" = 1) -> "Optional[bool]":
            done = super().update(n)
            if getattr(self, "unit", "") == "B" and time.monotonic() - Bar.shown > 1:
                Bar.shown = time.monotonic()
                of = f" of {self.total / 1e6:,.0f}" if self.total else ""
                report(step=f"downloading {name}: {self.n / 1e6:,.0f}{of} MB")
            return done  # type: ignore[no-any-return]

    return Bar


def _unpacked(path: Path) -> Path:
    """The folder in an archive, unpacked into the task's folder for temporary files."""
    try:
        known = tarfile.is_tarfile(path)
    except EOFError as e:
        raise Fail("bad_input", f"model {path}: the archive is truncated: {_line(e)}") from e
    if not known:
        raise Fail("bad_input", f"model {path}: it is a file, but not a .tar.gz of a model's folder")
    if not hasattr(tarfile, "data_filter"):
        raise Fail("dependency", f"model {path}: this Python is too old to unpack archives safely: use 3.11.4 or newer, or add the folder")
    where = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        with tarfile.open(path) as tar:
            tar.extractall(where, filter="data")
    except (tarfile.TarError, EOFError, ValueError) as e:
        raise Fail("bad_input", f"model {path}: the archive is damaged or not allowed: {_line(e)}") from e
    inside = list(where.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else where


def _lock_file(cached: str) -> Path:
    return folder() / ".in-use" / cached


def _opened(file: Path) -> Any:
    """The file of a lock, None where there can be none: on a system without flock, in a folder that cannot be written to."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = open(file, "a+b")  # noqa: SIM115 - held open
        try:
            os.chmod(file, 0o666)  # tasks may run as several users
        except OSError:
            pass
        return lock
    except OSError:
        try:
            return open(file, "rb")
        except OSError:
            return None


def _flock(lock: Any, exclusive: bool) -> bool:
    """Take a lock; a shared one waits until who clears the model is through."""
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except OSError:
        return False
    return True
