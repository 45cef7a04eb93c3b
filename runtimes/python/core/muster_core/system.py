"""The properties of a machine that determine its speed, and the energy that it has used."""

import ctypes
import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from . import device as devices

Json = Dict[str, Any]


def describe(device: Any, packages: "tuple[str, ...]" = ("torch", "numpy"), root: str = "/") -> Json:
    """The machine, its device, the versions of packages, and its owner's settings. Unknown values are absent."""
    import torch

    at = Path(root)
    owner = devices.options()
    description: Json = {
        "os": f"{platform.system()} {platform.release()}",
        "arch": platform.machine(),
        "cpu": _cpu(at),
        "cores": os.cpu_count(),
        "cores_allowed": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "governor": _text(at / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory": _memory(at),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "packages": {name: version for name in packages if (version := _version(name))},
        "cuda_streams": owner.cuda_streams,
        "optimize_for": owner.optimize_for or None,
        "mixed_precision": owner.mixed_precision,
    }
    if device.type == "cuda":
        facts = torch.cuda.get_device_properties(device)
        description["gpu"] = facts.name
        description["gpu_memory"] = facts.total_memory
        description["gpu_count"] = torch.cuda.device_count()
        description["driver"] = _driver(at)
        description["rocm" if torch.version.hip else "cuda"] = torch.version.hip or torch.version.cuda
        description["cudnn"] = torch.backends.cudnn.version()
        description["tf32"] = torch.backends.cuda.matmul.allow_tf32
    return {k: v for k, v in description.items() if v is not None}


def _cpu(root: Path) -> Optional[str]:
    text = _text(root / "proc/cpuinfo") or ""
    match = re.search(r"^(?:model name|Model|cpu model|Hardware)\s*:\s*(.+)$", text, re.M)
    return match[1].strip() if match else platform.processor() or None


def _memory(root: Path) -> Optional[int]:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo") or "", re.M)
    if match:
        return int(match[1]) << 10
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _driver(root: Path) -> Optional[str]:
    match = re.search(r"(?:Module for \S+|Kernel Module)\s+(\d[\d.]+)", _text(root / "proc/driver/nvidia/version") or "")
    return match[1] if match else _text(root / "sys/module/amdgpu/version")


def _version(package: str) -> Optional[str]:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> Optional[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


class Others:
    """The number of cores that other programs kept busy since its creation. It is only known on Linux."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._began, self._own, self._all = time.monotonic(), time.process_time(), self._busy()

    def cores(self) -> Optional[float]:
        now = self._busy()
        took = time.monotonic() - self._began
        if now is None or self._all is None or took <= 0:
            return None
        return max(now - self._all - (time.process_time() - self._own), 0) / took

    def _busy(self) -> Optional[float]:
        """Seconds that all processors have worked: user, nice, system, irq and softirq."""
        match = re.search(r"^cpu +(\d+) (\d+) (\d+) \d+ \d+ (\d+) (\d+)", _text(self._root / "proc/stat") or "", re.M)
        return sum(map(int, match.groups())) / os.sysconf("SC_CLK_TCK") if match else None


class Energy:
    """A counter of joules: of the device itself, or of all processors of the machine. None is made up where none can be read."""

    def __init__(self, device: Any, root: str = "/") -> None:
        self.source = ""
        self._read: Optional[Callable[[], Optional[float]]] = None
        if device.type == "cuda":
            self._read = _nvidia(device)
            self.source = "the GPU, as its driver counts"
        elif device.type == "cpu":
            domains = _domains(Path(root))
            self._wraps = [int(_text(d / "max_energy_range_uj") or 0) for d in domains]
            self._before: List[int] = []
            self._total = 0.0
            if domains:
                self._read = lambda: self._rapl(domains)
            self.source = "all processors of the machine, by RAPL"
        if self._read is None or self._read() is None:
            self._read, self.source = None, ""

    def joules(self) -> Optional[float]:
        """Since an arbitrary time; it only grows. None if there is no counter."""
        return self._read() if self._read is not None else None

    def _rapl(self, domains: List[Path]) -> Optional[float]:
        """Joules since the first call. The counters of RAPL wrap at their range: read them at least that often, which is about a minute under load."""
        try:
            now = [int((d / "energy_uj").read_text()) for d in domains]
        except (OSError, ValueError):
            return None
        for value, before, wrap in zip(now, self._before, self._wraps):
            self._total += (value - before if value >= before else value + wrap - before) / 1e6
        self._before = now
        return self._total


def _domains(root: Path) -> List[Path]:
    """The folders of the processor packages; each counts its subfolders."""
    return sorted(d for d in (root / "sys/class/powercap").glob("*-rapl:*") if re.fullmatch(r"[a-z]+-rapl:\d+", d.name) and (_text(d / "name") or "").startswith("package"))


def _nvidia(device: Any) -> "Optional[Callable[[], Optional[float]]]":
    """The counter of NVML, which GPUs have since Volta."""
    import torch

    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        handle = ctypes.c_void_p()
        if nvml.nvmlInit_v2() != 0 or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(handle)) != 0:
            return None
    except (OSError, AttributeError):
        return None

    def read() -> Optional[float]:
        used = ctypes.c_ulonglong()
        if nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(used)) != 0:
            return None
        return used.value / 1e3

    return read
