package gpu

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
)

func recorded(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// bare is a host without an environment and without files.
func bare(t *testing.T, env ...string) *host {
	t.Helper()
	return &host{root: t.TempDir(), lookup: func(name string) (string, bool) {
		for _, e := range env {
			if k, v, _ := strings.Cut(e, "="); k == name {
				return v, true
			}
		}
		return "", false
	}}
}

// fake puts a tool first on the PATH.
func fake(t *testing.T, name, script string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the fake tool is a shell script")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func cat(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return "cat " + path
}

func load(u, t, p *float64, m *muster.Size) muster.GPULoad {
	return muster.GPULoad{Utilization: u, Temperature: t, Power: p, Memory: m}
}

func TestNVIDIA(t *testing.T) {
	for _, tc := range []struct {
		file string
		want Device
	}{
		{"418-quadro-p400.xml", Device{
			GPU:    muster.GPU{UUID: "GPU-8f750be4-dfbc-23b9-b33f-da729a536494", Name: "Quadro P400", Memory: 1998 << 20},
			Driver: "418.43", Runtime: "10.1", Bus: "0000:43:00.0",
			Reading: Reading{GPULoad: load(new(0.0), new(33.0), nil, new(muster.Size(0<<20))), Processes: []Process{}},
		}},
		{"515-tesla-t4.xml", Device{
			GPU:    muster.GPU{UUID: "GPU-d37e67a5-91dd-3774-a5cb-99096249601a", Name: "Tesla T4", Memory: 15360 << 20},
			Driver: "515.105.01", Runtime: "11.7", Bus: "0000:00:1e.0", PowerLimit: new(70.0),
			Reading: Reading{GPULoad: load(new(0.0), new(40.0), new(26.78), new(muster.Size(1032<<20))), ECC: new(uint64(0)), Processes: []Process{
				{PID: 675, Name: "/usr/lib/xorg/Xorg", Memory: 22 << 20, Graphics: true}, {PID: 5762, Name: "python", Memory: 1005 << 20},
			}},
		}},
		{"525-quadro-p2000.xml", Device{
			GPU:    muster.GPU{UUID: "GPU-396caaed-39ca-3199-2e68-717cdb786ec6", Name: "Quadro P2000", Memory: 5120 << 20},
			Driver: "525.125.06", Runtime: "12.0", Bus: "0000:17:00.0", PowerLimit: new(75.0),
			Reading: Reading{GPULoad: load(new(0.0), new(34.0), new(4.61), new(muster.Size(1<<20))), Processes: []Process{}},
		}},
		{"570-rtx-3060.xml", Device{
			GPU:    muster.GPU{UUID: "GPU-d6889ff6-2523-9142-ca3c-1ca3f396a625", Name: "NVIDIA GeForce RTX 3060", Memory: 12288 << 20},
			Driver: "570.124.04", Runtime: "12.8", Bus: "0000:2d:00.0", PowerLimit: new(170.0),
			Reading: Reading{GPULoad: load(new(0.0), new(42.0), new(11.6), new(muster.Size(116<<20))), Processes: []Process{}},
		}},
		{"595-rtx-4000-ada.xml", Device{
			GPU:    muster.GPU{UUID: "GPU-37037c3f-65c8-ec4d-24a9-420204ad8026", Name: "NVIDIA RTX 4000 SFF Ada Generation", Memory: 20475 << 20},
			Driver: "595.84", Runtime: "13.2", Bus: "0000:06:00.0", PowerLimit: new(70.0),
			Reading: Reading{GPULoad: load(new(0.0), new(38.0), new(8.81), new(muster.Size(3534<<20))), Processes: []Process{
				{PID: 1842, Name: "cosmic-comp", Memory: 410 << 20, Graphics: true},
				{PID: 3190, Name: "/usr/bin/code", Memory: 451 << 20, Graphics: true},
				{PID: 4937, Name: "python", Memory: 160 << 20},
				{PID: 34626, Name: "/usr/lib/chromium/chromium", Memory: 183 << 20}, // computes, too
			}},
		}},
	} {
		t.Run(tc.file, func(t *testing.T) {
			fake(t, "nvidia-smi", cat(t, tc.file))
			tc.want.Vendor, tc.want.Reading.UUID = "nvidia", tc.want.UUID
			found, notes, err := bare(t).probeNVIDIA(t.Context())
			if err != nil || len(notes) > 0 {
				t.Errorf("%v, notes %q", err, notes)
			}
			if d := cmp.Diff([]Device{tc.want}, found); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestMIG proves that the instances of a divided device are devices of their own
// in its place.
func TestMIG(t *testing.T) {
	list := `GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-513536b6-7d19-9063-b049-1e69664bb298)
  MIG 1g.20gb     Device  0: (UUID: MIG-a686709d-6dc2-542a-8851-0d2508448c10)
  MIG 1g.20gb     Device  1: (UUID: MIG-53864714-0a66-5df2-9007-9268e30d9a72)
  MIG 1g.20gb     Device  2: (UUID: MIG-d5a46a2e-1d77-575d-99e3-1f96c8555a2e)
`
	fake(t, "nvidia-smi", "case $1 in -L) cat <<'END'\n"+list+"END\n;; *) "+cat(t, "535-a100-mig.xml")+";; esac")
	found, notes, err := bare(t).probeNVIDIA(t.Context())
	if err != nil || len(notes) > 0 || len(found) != 3 { // the fourth has no UUID: it was made in between
		t.Fatalf("%v, notes %q, devices %+v", err, notes, found)
	}
	want := Device{
		GPU: muster.GPU{
			UUID: "MIG-53864714-0a66-5df2-9007-9268e30d9a72", Vendor: "nvidia", Name: "NVIDIA A100-SXM4-80GB MIG 1g.20gb",
			Memory: 19968 << 20, MIG: "1g.20gb", Parent: "GPU-513536b6-7d19-9063-b049-1e69664bb298",
		},
		Driver: "535.54.03", Runtime: "12.2", Bus: "0000:01:00.0", Instance: "4/0",
		Reading: Reading{GPULoad: load(nil, new(27.0), nil, new(muster.Size(12<<20))), ECC: new(uint64(0)), Processes: []Process{}},
	}
	want.Reading.UUID = want.UUID
	if d := cmp.Diff(want, found[1]); d != "" {
		t.Error(d)
	}
	fake(t, "nvidia-smi", "[ $1 = -L ] || "+cat(t, "535-a100-mig.xml"))
	if found, notes, err := bare(t).probeNVIDIA(t.Context()); err != nil || len(found) > 0 || len(notes) != 1 || !strings.Contains(notes[0], "MIG mode") {
		t.Errorf("without a list: %v, notes %q, devices %+v", err, notes, found)
	}
}

func TestMIGList(t *testing.T) {
	instances := parseList(recorded(t, "mig-list-h100.txt"))
	want := []smiListEntry{
		{"GPU-c08d91cb-e324-655c-71ba-7570956445bc", 0, "1c.3g.40gb", "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb"},
		{"GPU-c08d91cb-e324-655c-71ba-7570956445bc", 1, "1c.3g.40gb", "MIG-405bbda1-6b05-535f-9702-f95e8cd170ce"},
		{"GPU-c08d91cb-e324-655c-71ba-7570956445bc", 2, "1g.10gb", "MIG-b4b2228d-6933-5839-bc0e-41ab9edb61c6"},
	}
	if !slices.Equal(instances, want) {
		t.Errorf("got %+v", instances)
	}
	older := parseList("GPU 0: A100-SXM4-40GB (UUID: GPU-e86cb44c)\n  MIG 3g.20gb Device 0: (UUID: MIG-GPU-e86cb44c/1/0)\n")
	if len(older) != 1 || older[0].uuid != "MIG-GPU-e86cb44c/1/0" {
		t.Errorf("of a driver before 470: %+v", older)
	}
}

// TestNoAnswer tests output of nvidia-smi without devices.
func TestNoAnswer(t *testing.T) {
	good := cat(t, "570-rtx-3060.xml")
	for _, tc := range []struct {
		name, script string
		devices      int
		want         string // by a note or an error
	}{
		{"no devices", "echo 'No devices were found'; exit 6", 0, ""},
		{"no driver", `echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and running."; exit 9`, 0, "couldn't communicate"},
		{"driver of another version", "printf 'Failed to initialize NVML: Driver/library version mismatch\\nNVML library version: 580.173\\n'; exit 18", 0, "version mismatch"},
		{"no permission", "echo 'Failed to initialize NVML: Insufficient Permissions'; exit 4", 0, "Insufficient Permissions"},
		{"library missing", `echo "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system." >&2; exit 12`, 0, "libnvidia-ml.so"},
		{"one of two lost, and it continues", "echo 'Unable to determine the device handle for GPU1: 0000:34:00.0: Unknown Error'; " + good, 1, "0000:34:00.0: Unknown Error"},
		{"one of two lost, and it ends", `case $* in
			-L) echo 'Unable to determine the device handle for gpu 0000:34:00.0: GPU is lost.  Reboot the system to recover this GPU'
				echo 'GPU 1: NVIDIA GeForce RTX 3060 (UUID: GPU-d6889ff6-2523-9142-ca3c-1ca3f396a625)'; exit 15 ;;
			'-q -x -i GPU-d6889ff6-2523-9142-ca3c-1ca3f396a625') ` + good + ` ;;
			*) echo 'Unable to determine the device handle for GPU 0000:34:00.0: GPU is lost.  Reboot the system to recover this GPU'; exit 15 ;;
			esac`, 1, "GPU is lost"},
		{"garbage", "head -c 100000 /dev/urandom", 0, "printed no log"},
		{"nothing", "true", 0, "printed no log"},
		{"half a log", "head -n 200 " + strings.TrimPrefix(good, "cat "), 0, "printed no log"},
		{"too much", "yes '<nothing>aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' | head -c 9000000", 0, "more than 8 MiB"},
		{"a bad figure", "sed 's/>12288 MiB</>many MiB</' " + strings.TrimPrefix(good, "cat "), 1, ""},
		{"no unique UUID", "sed 's/<uuid>.*</<uuid>N\\/A</' " + strings.TrimPrefix(good, "cat "), 0, "no unique UUID"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fake(t, "nvidia-smi", tc.script)
			found, notes, err := bare(t).probeNVIDIA(t.Context())
			got := strings.Join(notes, "\n")
			if err != nil {
				got += err.Error()
			}
			if len(found) != tc.devices || !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("%d devices and %q, want %d and words of %q", len(found), got, tc.devices, tc.want)
			}
		})
	}
}

// TestBroken checks that a device that its driver reports as broken has a fault, and one that only lacks a sensor has none.
func TestBroken(t *testing.T) {
	complete := recorded(t, "570-rtx-3060.xml")
	for _, tc := range []struct{ from, to, fault string }{
		{"<gpu_temp>42 C<", "<gpu_temp>GPU requires reset<", "GPU requires reset"},
		{"<gpu_temp>42 C<", "<gpu_temp>Unknown Error<", "cannot read its temperature"},
		{"<used>116 MiB<", "<used>ERR!<", "cannot read its memory"},
		{"<reset_required>Requested functionality has been deprecated<", "<reset_required>Yes<", "GPU requires reset"},
		{"<gpu_recovery_action>None<", "<gpu_recovery_action>Drain and Reset<", "drain and reset"},
		{"<remapped_rows>N/A</remapped_rows>", "<remapped_rows>\n<remapped_row_failure>Yes</remapped_row_failure>\n</remapped_rows>", "bad rows"},
		{"<gpu_temp>42 C<", "<gpu_temp>N/A<", ""},
		{"<average_power_draw>11.60 W<", "<average_power_draw>Unknown Error<", ""},
		{"<gpu_util>0 %<", "<gpu_util>Not Supported<", ""},
	} {
		text := strings.Replace(complete, tc.from, tc.to, 1)
		if text == complete {
			t.Fatalf("the recording has no %s", tc.from)
		}
		devices, ok := parseLog(text)
		if !ok || len(devices) != 1 {
			t.Fatalf("%s: not read", tc.to)
		}
		got := strings.Join(devices[0].Reading.Faults, "; ")
		if !strings.Contains(got, tc.fault) || tc.fault == "" && got != "" {
			t.Errorf("%s: faults are %q, want %q", tc.to, got, tc.fault)
		}
	}
}

// TestSharedMemory checks that a device without its own memory offers that of its machine.
func TestSharedMemory(t *testing.T) {
	h := bare(t)
	write(t, h, "proc/meminfo", "MemTotal:       125513880 kB\nMemFree:  1 kB\n")
	complete := recorded(t, "570-rtx-3060.xml")
	for name, want := range map[string]muster.Size{"NVIDIA GB10": 125513880 << 10, "Orin (nvgpu)": 125513880 << 10, "NVIDIA GeForce 210": 0} {
		text := strings.Replace(strings.Replace(complete, "NVIDIA GeForce RTX 3060", name, 1), ">12288 MiB<", ">N/A<", 1)
		devices, _ := parseLog(text)
		if d := h.wholeDevice(0, &devices[0]); d.Memory != want || len(d.Reading.Faults) > 0 {
			t.Errorf("%s has %s and the faults %q, want %s", name, d.Memory, d.Reading.Faults, want)
		}
	}
}

func write(t *testing.T, h *host, name, text string) {
	t.Helper()
	path := filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
