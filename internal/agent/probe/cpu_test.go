package probe

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
)

// fakeHost is a Linux machine with only these files.
func fakeHost(files map[string]string) *host {
	tree := fstest.MapFS{}
	for name, text := range files {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return &host{fs: tree, env: func(string) string { return "" }, os: "linux"}
}

// TestCPUInfo reads what the kernels of several machines print, shortened.
func TestCPUInfo(t *testing.T) {
	for _, tc := range []struct {
		file     string
		model    string
		features string
		threads  int
		sockets  int
		cores    int
	}{
		{"xeon", "Intel(R) Xeon(R) Processor @ 2.80GHz", "sse4_2 avx f16c fma avx2 avx512 avx512bw avx512dq avx512vl avx512_vnni sha", 2, 1, 2},
		{"epyc", "AMD EPYC 9654P 96-Core Processor", "sse4_2 avx f16c fma avx2 avx512 avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 sha", 2, 1, 2},
		{"graviton3", "Neoverse-V1", "neon fp16 dotprod bf16 i8mm sve sha", 2, 0, 0},
		{"raspberry4", "Cortex-A72", "neon", 4, 0, 0},
		{"rk3588", "Cortex-A55 + Cortex-A76", "neon fp16 dotprod sha", 8, 0, 0},
		{"armv7", "Cortex-A53", "neon sha", 4, 0, 0},
		{"riscv", "sifive,u74-mc", "", 2, 0, 0},
		{"k1", "Spacemit(R) X60", "rvv", 2, 0, 0},
		{"power9", "POWER9, altivec supported", "", 2, 0, 0},
	} {
		t.Run(tc.file, func(t *testing.T) {
			info := parseCPUInfo(recorded(t, "cpuinfo/"+tc.file))
			if info.model != tc.model || info.threads != tc.threads || len(info.sockets) != tc.sockets || len(info.cores) != tc.cores {
				t.Errorf("%q with %d threads, %d cores, %d sockets", info.model, info.threads, len(info.cores), len(info.sockets))
			}
			if got := strings.Join(info.features, " "); got != tc.features {
				t.Errorf("features %s", got)
			}
		})
	}
}

func TestTopology(t *testing.T) {
	files := map[string]string{
		"proc/cpuinfo":                       "processor\t: 0\nmodel name\t: X\n",
		"sys/devices/system/cpu/cpufreq/x":   "",
		"sys/devices/system/cpu/cpuidle/x":   "",
		"sys/devices/system/cpu/cpu8/online": "0", // off: it has no topology
		"sys/devices/system/cpu/possible":    "0-8",
		"proc/self/cgroup":                   "0::/\n",
	}
	for i, at := range [][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}, {"1", "1"}, {"0", "0"}, {"0", "1"}, {"1", "0"}, {"1", "1"}} {
		dir := "sys/devices/system/cpu/cpu" + string(rune('0'+i)) + "/topology/"
		files[dir+"physical_package_id"], files[dir+"core_id"] = at[0], at[1]
	}
	c := fakeHost(files).cpus(t.Context())
	if c.Sockets != 2 || c.Cores != 4 || c.Threads != 8 || c.Model != "X" {
		t.Errorf("%+v", c)
	}
}

func TestLimitsOfContainers(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		cores  float64 // 0 means no limit
		memory muster.Size
	}{
		"no groups": {nil, 0, 0},
		"version 2, the smallest on the way up": {map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "150000 100000\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
			"sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/b/memory.max": "2147483648\n",
		}, 1.5, 1 << 30},
		"version 2 in a container": {map[string]string{
			"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n", "sys/fs/cgroup/memory.max": "max\n",
		}, 0.5, 0},
		"version 1": {map[string]string{
			"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/x\n2:cpuset:/\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes":     "536870912\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":       "9223372036854771712\n",
			"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us":             "200000\n",
			"sys/fs/cgroup/cpu/x/cpu.cfs_period_us":            "100000\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":               "-1\n",
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":              "100000\n",
			"sys/fs/cgroup/cpuset/cpuset.effective_cpus":       "0-3\n",
			"sys/fs/cgroup/memory/x/memory.max_usage_in_bytes": "1\n",
		}, 2, 512 << 20},
		"version 1 in a container, which does not see its own name": {map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/5f3c\n3:cpu,cpuacct:/docker/5f3c\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "268435456\n",
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":         "25000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
		}, 0.25, 256 << 20},
		"nonsense": {map[string]string{
			"proc/self/cgroup": "what\n0::\n::\n", "sys/fs/cgroup/cpu.max": "0 0\n", "sys/fs/cgroup/memory.max": "-1\n",
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(tc.files)
			if cores, ok := h.cgroupCPUs(); ok != (tc.cores > 0) || ok && cores != tc.cores {
				t.Errorf("cores %v, %v", cores, ok)
			}
			if memory, ok := h.cgroupMemory(); ok != (tc.memory > 0) || ok && memory != tc.memory {
				t.Errorf("memory %v, %v", memory, ok)
			}
		})
	}
}

// FuzzCPUInfo checks for any content that features are unique and known.
func FuzzCPUInfo(f *testing.F) {
	for _, name := range []string{"xeon", "epyc", "graviton3", "raspberry4", "rk3588", "armv7", "riscv", "k1", "power9"} {
		f.Add(recorded(f, "cpuinfo/"+name))
	}
	known := []string{"rvv"}
	for _, n := range featureNames {
		known = append(known, n.name)
	}
	f.Fuzz(func(t *testing.T, text string) {
		info := parseCPUInfo(text)
		for i, name := range info.features {
			if !slices.Contains(known, name) || slices.Contains(info.features[:i], name) {
				t.Errorf("features %q", info.features)
			}
		}
		if info.threads > strings.Count(text, "processor") || len(info.cores) > strings.Count(text, "core id") {
			t.Errorf("%d threads, %d cores", info.threads, len(info.cores))
		}
	})
}

func TestCPUsOfThisMachine(t *testing.T) {
	c := thisHost().cpus(t.Context())
	if c.Count <= 0 || c.Threads < c.Cores || c.Features == nil {
		t.Errorf("%+v", c)
	}
	if d := cmp.Diff(slices.Compact(slices.Sorted(slices.Values(c.Features))), slices.Sorted(slices.Values(c.Features))); d != "" {
		t.Error(d)
	}
}
