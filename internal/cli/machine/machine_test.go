package machine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/probe"
	"github.com/muster-dev/muster/internal/agent/userns"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/workerd"
)

func draw(t *testing.T, f *probe.Facts, width int, wide bool) string {
	t.Helper()
	kinds := &workerd.KindOffer{
		Offered:  []string{"echo", "process"},
		Withheld: []workerd.Withheld{{Kinds: []string{"data", "training"}, Reason: "the interpreter lacks pandas"}, {Reason: "kinds/x: no program"}},
	}
	var b bytes.Buffer
	a := &app.App{Out: term.Screen{Writer: &b, Width: width}}
	if err := Draw(a, f, kinds, wide); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDraw(t *testing.T) {
	half, used, degrees, watts, most, errors := 0.5, muster.Size(3<<30), 61.0, 143.4, 300.0, uint64(2)
	f := &probe.Facts{
		Hostname: "box", System: probe.System{OS: "linux", Arch: "amd64", Platform: "debian 12", Kernel: "6.1.0", Virtual: "kvm"},
		CPU:    probe.CPU{Count: 3.5, Model: "AMD EPYC", Sockets: 1, Cores: 4, Threads: 8, Features: []string{"avx2", "avx512"}, Load: []float64{0.5, 0.25, 1}},
		Memory: probe.Memory{Usable: 8 << 30, Total: 16 << 30, Available: 10 << 30, SwapTotal: 1 << 30, SwapFree: 1 << 29},
		Disk:   probe.Disk{Path: "/data/muster", Free: 1 << 40, Total: 2 << 40, Type: "xfs", Kind: "ssd", Device: "/dev/nvme0n1p1"},
		Disks:  []probe.Disk{{Path: "/", Free: 1 << 30, Total: 2 << 30, Type: "ext4", Kind: "hdd", Device: "/dev/sda1", ReadOnly: true}},
		Network: probe.Network{Bandwidth: 20 << 20, Interfaces: []probe.Interface{
			{Name: "eth0", Up: true, Addresses: []string{"10.0.0.5/24"}, Speed: 2.5e9, MTU: 1500}, {Name: "eth1", Speed: 1e8},
		}},
		GPUs: []gpu.Device{
			{
				GPU: muster.GPU{UUID: "GPU-1", Name: "NVIDIA L4", Memory: 24 << 30, MIG: "1g.6gb"}, Runtime: "12.4", Driver: "550.54", PowerLimit: &most,
				Reading: gpu.Reading{
					GPULoad: muster.GPULoad{Utilization: &half, Memory: &used, Temperature: &degrees, Power: &watts},
					ECC:     &errors, Faults: []string{"XID 79: it has fallen off the bus"}, Processes: []gpu.Process{{PID: 4711}},
				},
			},
			{GPU: muster.GPU{UUID: "GPU-2", Index: 1, Name: "GB10"}},
		},
		Engines: []probe.Engine{{Name: "docker", Version: "24.0.7", Socket: "/var/run/docker.sock", Rootless: true, Users: &probe.Users{Of: userns.None, Why: "it has no ids"}, Runtimes: []string{"nvidia", "runc"}, GPUs: []string{"nvidia"}}},
		Python:  []probe.Python{{Path: "/usr/bin/python3", Version: "3.11.2", Default: true, Packages: map[string]string{"torch": "2.4.0", "numpy": "2.0.1"}, Torch: "cuda 12.1"}},
		UV:      &probe.UV{Path: "/usr/bin/uv", Version: "0.4.1"},
		Models:  []probe.ModelCache{{Library: "huggingface", Path: "/root/.cache", Size: 5 << 30, Models: []string{"a", "b", "c", "d", "e", "f"}, Partial: true}},
		Limits:  &probe.Limits{Cgroups: "v2", Controllers: []string{"cpu"}, CPUs: isolation.Enforcement{By: isolation.ByKernel}, Disk: isolation.Enforcement{By: isolation.ByWatch, Why: "no quota"}, Landlock: 5, User: "tasks"},
		Tags:    []string{"linux", "gpu"}, Resources: muster.Resources{CPUs: 3.5, Slots: 7, Memory: 8 << 30, Disk: 1 << 40},
		Notes: []string{"podman is not offered: no response at /run/podman/podman.sock; start its service if it is wanted"},
		Took:  map[string]probe.Seconds{"gpus": 0.043},
	}
	text := draw(t, f, 0, false)
	for _, want := range []string{
		"system     debian 12, linux amd64, kernel 6.1.0, virtualized by kvm\n", "4 cores, 8 threads, 1 socket; limited to 3.5",
		"16GiB, 10GiB available, limited to 8GiB; swap 1GiB, 512MiB free", "the worker's data", "read-only",
		"NETWORK (transfers limited to 20MiB/s)", "2.5Gbit/s", "100Mbit/s", "GPUS (probed in 43ms)", "3GiB/24GiB", "50%", "61°C", "143/300W", "shared",
		"XID 79: it has fallen off the bus, MIG 1g.6gb, 2 memory errors, used by 1", "nvidia runc", "rootless", "numpy 2.0.1, torch 2.4.0 (cuda 12.1)",
		"builds environments", "over 5GiB", "a b c d e …", "monitored; a task above it is killed: no quota", "version 5", "tasks run as        tasks", "root in containers  docker: root of the machine: it has no ids\n",
		"offers       3.5 cpus, 7 slots, 8GiB memory, 1TiB disk, 0 gpus\n", "tags         linux gpu\n", "kinds        echo process\n", "not offered  data, training: the interpreter lacks pandas\n", "not offered  kinds/x: no program\n", "start its service if it is wanted\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if !strings.Contains(draw(t, f, 0, true), "a b c d e f") {
		t.Error("wide omits names of models")
	}
	for _, width := range []int{40, 60, 80, 120} {
		narrow := draw(t, f, width, false)
		for line := range strings.Lines(narrow) {
			if w := term.Width(strings.TrimRight(line, "\n")); w > width {
				t.Errorf("a line takes %d columns of %d: %q", w, width, line)
			}
		}
		if !strings.Contains(strings.Join(strings.Fields(narrow), " "), "start its service if it is wanted") {
			t.Errorf("with %d columns the end of a note is cut off", width)
		}
	}
}

// TestDrawNothing checks that missing facts are omitted.
func TestDrawNothing(t *testing.T) {
	text := draw(t, &probe.Facts{}, 80, false)
	for _, title := range []string{"CONTAINERS", "PYTHON", "MODELS", "LIMITS", "NETWORK"} {
		if strings.Contains(text, title) {
			t.Errorf("nothing is documented under %s:\n%s", title, text)
		}
	}
	if !strings.Contains(text, "GPUS\nnone  accessible to this user\n") || strings.HasPrefix(text, "\n") {
		t.Errorf("drawn is\n%s", text)
	}
}
