from types import SimpleNamespace

import pytest
from muster_core import system

pytest.importorskip("torch")
CPU = SimpleNamespace(type="cpu")


def test_what_others_compute_is_counted(tmp_path, monkeypatch):
    stat = tmp_path / "proc/stat"
    stat.parent.mkdir()
    stat.write_text("cpu  100 0 50 9000 3 1 1 0 0 0\ncpu0 100 0 50 9000 3 1 1 0 0 0\n")
    now, own = iter([10.0, 12.0]), iter([1.0, 2.0])
    monkeypatch.setattr(system, "time", SimpleNamespace(monotonic=lambda: next(now), process_time=lambda: next(own)))
    monkeypatch.setattr(system.os, "sysconf", lambda name: 100)
    others = system.Others(str(tmp_path))
    stat.write_text("cpu  300 50 100 9000 3 1 101 0 0 0\n")  # four seconds of work, one of them ours, in two
    assert others.cores() == pytest.approx(1.5)


def test_what_the_machine_is(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_CUDA_STREAMS", "4")
    monkeypatch.setenv("MUSTER_OPTIMIZE_FOR", "latency")
    for name, text in {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7B13\nmodel name\t: AMD EPYC 7B13\n",
        "proc/meminfo": "MemTotal:       16309480 kB\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    described = system.describe(CPU, root=str(tmp_path))
    assert (described["cpu"], described["memory"], described["governor"]) == ("AMD EPYC 7B13", 16309480 << 10, "performance")
    assert (described["cuda_streams"], described["optimize_for"], described["mixed_precision"]) == (4, "latency", False)
    assert described["packages"]["torch"] and "gpu" not in described


def test_energy_of_all_processors(tmp_path):
    """The counter starts anew at its range; what is inside of a package is not counted twice."""
    for name, what in (("intel-rapl:0", "package-0"), ("intel-rapl:0:0", "core"), ("intel-rapl:1", "package-1"), ("intel-rapl:2", "psys")):
        folder = tmp_path / "sys/class/powercap" / name
        folder.mkdir(parents=True)
        (folder / "name").write_text(what + "\n")
        (folder / "energy_uj").write_text("9000000\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
    energy = system.Energy(CPU, str(tmp_path))
    assert energy.joules() == 0
    (tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj").write_text("9500000\n")
    (tmp_path / "sys/class/powercap/intel-rapl:1/energy_uj").write_text("1000000\n")
    assert energy.joules() == pytest.approx(2.5)
    assert energy.source


def test_energy_is_not_made_up(tmp_path):
    energy = system.Energy(CPU, str(tmp_path))
    assert (energy.joules(), energy.source) == (None, "")
