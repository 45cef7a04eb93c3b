package gpu

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/xid"
)

var metricFields = []string{"timestamp", "uuid", "utilization.gpu", "memory.used", "temperature.gpu", "power.draw", "ecc.errors.uncorrected.volatile.total"}

// metricLines are as drivers print them, from 390 to 590 and of devices that lack
// this or that.
var metricLines = []string{
	"2024/05/10 12:00:00.123, GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f, 97, 30521, 61, 287.13, 0",
	"2021/08/02 09:30:11.002, GPU-1b1c3a7e-1f0e-9d62-5a1f-7c2f2d1e4a55, [Not Supported], 310, 44, [Not Supported], [Not Supported]",
	"2022/01/20 10:00:00.500, GPU-19d6d965-2acc-f646-00f8-4c76979aabb4, 3, 1128, 31, 22.78, [N/A]",
	"2024/09/01 00:00:00.000, GPU-aa, [N/A], [N/A], [N/A], [N/A], [N/A]",
	"2025/11/30 23:59:59.999, GPU-bb, 0, 12, 38, [Unknown Error], 4",
	"2025/11/30 23:59:59.999, GPU-cc, [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset]",
	"2025/11/30 23:59:59.999, GPU-dd, ERR!, [Unknown Error], ERR!, ERR!, ERR!",
	"2025/11/30 23:59:59.999, GPU-ee, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost]",
	"2026/01/01 00:00:00.000, MIG-ff, [Insufficient Permissions], 12, 40, [Insufficient Permissions], 0",
}

func TestParseFigures(t *testing.T) {
	for i, want := range []Reading{
		{GPULoad: load(new(0.97), new(61.0), new(287.13), new(muster.Size(30521<<20))), ECC: new(uint64(0))},
		{GPULoad: load(nil, new(44.0), nil, new(muster.Size(310<<20)))},
		{GPULoad: load(new(0.03), new(31.0), new(22.78), new(muster.Size(1128<<20)))},
		{},
		{GPULoad: load(new(0.0), new(38.0), nil, new(muster.Size(12<<20))), ECC: new(uint64(4))},
		{Faults: []string{"GPU requires reset"}},
		{Faults: []string{"the driver cannot read its memory", "the driver cannot read its temperature"}},
		{Faults: []string{"GPU is lost"}},
		{GPULoad: load(nil, new(40.0), nil, new(muster.Size(12<<20))), ECC: new(uint64(0))},
	} {
		uuid, got, asked := parseMetrics(metricLines[i], metricFields)
		want.UUID = uuid
		if d := cmp.Diff(want, got); d != "" || uuid == "" || asked.IsZero() {
			t.Errorf("%s: %q at %s: %s", metricLines[i], uuid, asked, d)
		}
	}
	for _, line := range []string{
		"", "No devices were found", "2024/05/10 12:00:00.123, GPU-5c", "a, b, c, d, e, f, g", "2024/05/10 12:00:00.123, GPU-a, 1, 2, 3, 4, 5, 6",
		"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
	} {
		if uuid, _, _ := parseMetrics(line, metricFields); uuid != "" {
			t.Errorf("%q is taken for %s", line, uuid)
		}
	}
}

// TestLatency proves that the latency of a reading is that from when the driver
// was asked, and that a clock that was set does not show.
func TestLatency(t *testing.T) {
	_, _, asked := parseMetrics(metricLines[0], metricFields)
	if want := time.Date(2024, 5, 10, 12, 0, 0, 123e6, time.UTC); !asked.Equal(want) {
		t.Fatalf("requested at %s, want %s", asked, want)
	}
	for late, want := range map[time.Duration]time.Duration{31 * time.Millisecond: 31 * time.Millisecond, 3 * time.Second: 3 * time.Second, -time.Hour: unknownLatency, time.Hour: unknownLatency} {
		if took := latency(asked, asked.Add(late), 5*time.Second); took != want {
			t.Errorf("%s late: took %s, want %s", late, took, want)
		}
	}
	if took := latency(time.Time{}, asked, 5*time.Second); took != unknownLatency {
		t.Errorf("took %s since never", took)
	}
}

// TestUnknownField proves that a driver that does not know a field is asked
// without it the next time.
func TestUnknownField(t *testing.T) {
	s := NewStream([]Device{{GPU: muster.GPU{UUID: "GPU-a", Vendor: "nvidia"}}}, 5*time.Second, slog.New(slog.DiscardHandler))
	f := s.nvidiaMetrics()
	first := f.Args()
	if !strings.Contains(first[0], "ecc.errors") || !slices.Equal(first[2:], []string{"-l", "5"}) {
		t.Fatalf("requested %q", first)
	}
	r := f.Reader()
	r.Line(time.Now(), `Field "ecc.errors.uncorrected.volatile.total" is not a valid field to query.`)
	r.Line(time.Now(), `Field "uuid" is not a valid field to query.`)
	if again := f.Args(); strings.Contains(again[0], "ecc.errors") || !strings.Contains(again[0], "uuid") {
		t.Fatalf("requested again %q", again)
	}
	if !f.Reader().Line(time.Now(), "2024/05/10 12:00:00.123, GPU-a, 97, 30521, 61, 287.13") {
		t.Error("a line without that field is not read")
	}
}

// pidLog is what nvidia-smi -q -d PIDS prints.
const pidLog = `
==============NVSMI LOG==============

Timestamp                                 : Mon Apr 24 16:22:39 2023
Driver Version                            : 515.105.01
CUDA Version                              : 11.7

Attached GPUs                             : 3
GPU 00000000:01:00.0
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 675
            Type                          : G
            Name                          : /usr/lib/xorg/Xorg
            Used GPU Memory               : 22 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 5762
            Type                          : C
            Name                          : python: a -x
            Used GPU Memory               : 1005 MiB
GPU 00000000:02:00.0
    Processes                             : None
GPU 00000000:03:00.0
    Processes                             : N/A
`

func TestPIDs(t *testing.T) {
	var devices []Device
	for _, bus := range []string{"0000:01:00.0", "0000:02:00.0", "0000:03:00.0"} {
		devices = append(devices, Device{GPU: muster.GPU{UUID: "GPU-" + bus, Vendor: "nvidia"}, Bus: bus})
	}
	older := strings.NewReplacer("        GPU instance ID                   : N/A\n", "", "        Compute instance ID               : N/A\n", "").Replace(pidLog)
	for _, text := range []string{pidLog, older} {
		s := NewStream(devices, time.Second, slog.New(slog.DiscardHandler))
		r := &processReader{s: s}
		for line := range strings.Lines(text) {
			if r.Line(time.Now(), strings.TrimRight(line, "\n")) {
				t.Error("a sample before the end of the first")
			}
		}
		if !r.FlushIdle(time.Now()) || r.FlushIdle(time.Now()) {
			t.Error("not one sample")
		}
		want := [][]Process{{{PID: 675, Name: "/usr/lib/xorg/Xorg", Memory: 22 << 20, Graphics: true}, {PID: 5762, Name: "python: a", Memory: 1005 << 20}}, {}, nil}
		for i := range want {
			if d := cmp.Diff(want[i], s.states[i].processes); d != "" {
				t.Error(i, d)
			}
		}
	}
}

// TestFaultsInTheLog checks that a fault in the kernel's log counts for a while.
func TestFaultsInTheLog(t *testing.T) {
	s := NewStream([]Device{{GPU: muster.GPU{UUID: "GPU-a", Vendor: "nvidia"}, Bus: "0000:01:00.0"}, {GPU: muster.GPU{UUID: "GPU-b", Vendor: "nvidia"}, Bus: "0000:02:00.0"}},
		time.Second, slog.New(slog.DiscardHandler))
	log := func(message string, age time.Duration) { s.recordFault(time.Now(), message, age) }
	log("NVRM: Xid (PCI:0000:01:00): 31, pid=9, name=python, MMU Fault", 0)
	log("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", xid.FaultTTL)
	if _, ok := s.Latest(); ok {
		t.Fatal("a program's fault, or an old one, counts")
	}
	log("NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus.", time.Second)
	log("NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.", time.Second)
	r, ok := s.Latest()
	if !ok || len(r.Devices[0].Faults) > 0 || !slices.Equal(r.Devices[1].Faults, []string{"XID 79: GPU has fallen off the bus"}) {
		t.Errorf("got %+v", r)
	}
	s.ForgetFaults("GPU-b", time.Now())
	log("NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.", time.Second) // read once more
	if r, ok = s.Latest(); ok {
		t.Errorf("events before the reset count: %+v", r)
	}
	log("NVRM: GPU 0000:02:00.0: GPU has fallen off the bus.", 0)
	if r, ok = s.Latest(); !ok || len(r.Devices[1].Faults) != 1 {
		t.Errorf("events after the reset do not count: %+v", r)
	}
}

// BenchmarkSample is what one sample of eight devices costs this process, from
// the lines of both streams to readings.
func BenchmarkSample(b *testing.B) {
	var devices []Device
	var lines, log []string
	for i := range 8 {
		bus := string(rune('1' + i))
		devices = append(devices, Device{GPU: muster.GPU{UUID: "GPU-" + bus, Vendor: "nvidia"}, Bus: "0000:0" + bus + ":00.0"})
		lines = append(lines, "2024/05/10 12:00:00.123, GPU-"+bus+", 97, 30521, 61, 287.13, 0")
		log = append(log, "GPU 00000000:0"+bus+":00.0", "    Processes")
		log = append(log, strings.Split(pidLog, "\n")[10:22]...)
	}
	s := NewStream(devices, time.Second, slog.New(slog.DiscardHandler))
	figures, pids := &metricsReader{s: s, fields: metricFields}, &processReader{s: s}
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		for _, line := range lines {
			figures.Line(now, line)
		}
		for _, line := range log {
			pids.Line(now, line)
		}
		pids.FlushIdle(now)
		if r, ok := s.Latest(); !ok || len(r.Devices[7].Processes) != 2 {
			b.Fatal(r)
		}
	}
}

// BenchmarkSampleOfParts is BenchmarkSample with devices in MIG mode, whose values are only in the complete log.
func BenchmarkSampleOfParts(b *testing.B) {
	text := strings.Split(recorded(b, "535-a100-mig.xml"), "\n")
	s := NewStream([]Device{{GPU: muster.GPU{UUID: "MIG-a", MIG: "1g.20gb", Parent: "GPU-513536b6-7d19-9063-b049-1e69664bb298"}, Instance: "3/0"}}, time.Second, slog.New(slog.DiscardHandler))
	r := &logReader{s: s, interval: time.Second}
	b.ReportAllocs()
	for b.Loop() {
		for _, line := range text {
			r.Line(time.Now(), line)
		}
		if s.states[0].reading.Memory == nil {
			b.Fatal("not read")
		}
	}
}
