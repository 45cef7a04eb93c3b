package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
)

func TestParseAMD(t *testing.T) {
	got, err := parseAMD(recorded(t, "amd-smi-static-7.json"))
	want := []Device{{
		GPU:    muster.GPU{UUID: "GPU-6f1f0a2b3c4d5e6f", Vendor: "amd", Name: "AMD Radeon RX 7800 XT", Memory: 16368 << 20},
		Driver: "6.14.14", Bus: "0000:03:00.0", PowerLimit: new(212.0),
	}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	got, err = parseAMD(recorded(t, "amd-smi-static-6.json"))
	want = []Device{
		{GPU: muster.GPU{UUID: "GPU-48c1f5f1b8a3d12e", Vendor: "amd", Name: "AMD Instinct MI300X", Memory: 196592 << 20}, Driver: "6.8.5", Bus: "0000:0c:00.0"},
		{GPU: muster.GPU{Index: 1, Vendor: "amd", Name: "AMD GPU"}, Driver: "6.8.5", Bus: "0000:22:00.0"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
}

// kfdHost is a host with two devices of AMD, in the order of the compute driver,
// as the kernel's files show it.
func kfdHost(t *testing.T) *host {
	t.Helper()
	h := bare(t)
	write(t, h, "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/10/properties", "simd_count 304\ngfx_target_version 90402\nlocation_id 8704\ndomain 0\nunique_id 5242869453117510958\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/10/gpu_id", "12345\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/10/mem_banks/0/properties", "heap_type 1\nsize_in_bytes 206141652992\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/2/properties", "simd_count 120\ngfx_target_version 110001\nlocation_id 768\ndomain 0\nunique_id 0\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/2/gpu_id", "777\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/2/mem_banks/0/properties", "heap_type 2\nsize_in_bytes 17163091968\n")
	write(t, h, "sys/class/kfd/kfd/topology/nodes/2/mem_banks/1/properties", "heap_type 5\nsize_in_bytes 4096\n")
	write(t, h, "sys/class/kfd/kfd/proc/4242/vram_777", "1073741824\n")
	write(t, h, "sys/class/kfd/kfd/proc/4242/vram_12345", "0\n")
	write(t, h, "proc/4242/comm", "python3\n")
	card := "sys/bus/pci/devices/0000:03:00.0/"
	write(t, h, card+"gpu_busy_percent", "42\n")
	write(t, h, card+"mem_info_vram_used", "14569963520\n")
	write(t, h, card+"hwmon/hwmon3/temp1_input", "39000\n")
	write(t, h, card+"hwmon/hwmon3/temp2_input", "41000\n")
	write(t, h, card+"hwmon/hwmon3/power1_average", "96000000\n")
	write(t, h, card+"ras/umc_err_count", "ue: 2\nce: 17\n")
	write(t, h, card+"ras/gfx_err_count", "ue: 1\nce: 0\n")
	write(t, h, card+"drm/renderD129/dev", "226:129\n")
	write(t, h, "opt/rocm/.info/version", "6.4.1-83\n")
	for _, file := range []string{"dev/kfd", "dev/dri/renderD129"} {
		write(t, h, file, "")
	}
	return h
}

// TestAMD proves that devices are those of the kernel, in its order, and named
// by a tool where there is one.
func TestAMD(t *testing.T) {
	h := kfdHost(t)
	fake(t, "amd-smi", cat(t, "amd-smi-static-7.json"))
	found, notes, err := h.probeAMD(t.Context())
	if err != nil || len(notes) > 0 {
		t.Fatalf("%v, notes %q", err, notes)
	}
	want := []Device{
		{
			GPU:    muster.GPU{UUID: "GPU-6f1f0a2b3c4d5e6f", Vendor: "amd", Name: "AMD Radeon RX 7800 XT", Memory: 16368 << 20},
			Driver: "6.14.14", Runtime: "6.4.1", Bus: "0000:03:00.0", PowerLimit: new(212.0),
			Reading: Reading{GPULoad: load(new(0.42), new(41.0), new(96.0), new(muster.Size(14569963520))), ECC: new(uint64(3)), Processes: []Process{{PID: 4242, Name: "python3", Memory: 1 << 30}}},
		},
		{
			GPU:     muster.GPU{UUID: "GPU-48c269fd5cd0d52e", Index: 1, Vendor: "amd", Name: "AMD gfx942", Memory: 206141652992},
			Runtime: "6.4.1", Bus: "0000:22:00.0", Reading: Reading{Processes: []Process{}},
		},
	}
	for i := range want {
		want[i].Reading.UUID = want[i].UUID
	}
	if d := cmp.Diff(want, found); d != "" {
		t.Error(d)
	}

	fake(t, "amd-smi", "exit 1")
	found, notes, err = h.probeAMD(t.Context())
	if err != nil || len(found) != 2 || found[0].UUID != "amd-0000:03:00.0-0" || found[0].Name != "AMD gfx1101" || len(notes) != 1 {
		t.Errorf("with tools that fail: %v, notes %q, devices %+v", err, notes, found)
	}
}

// TestOnlyDevicesThatOpenAreListed checks that a device whose file cannot be opened is omitted. File permissions do not apply to root, but a
// device file without a driver cannot be opened by any user.
func TestOnlyDevicesThatOpenAreListed(t *testing.T) {
	h := kfdHost(t)
	fake(t, "amd-smi", cat(t, "amd-smi-static-7.json"))
	denied := filepath.Join(h.root, "dev/dri/renderD129")
	if os.Geteuid() == 0 {
		if err := errors.Join(os.Remove(denied), mknod(denied)); err != nil {
			t.Skipf("device files cannot be created here: %v", err)
		}
	} else if err := os.Chmod(denied, 0); err != nil {
		t.Fatal(err)
	}
	found, notes, err := h.probeAMD(t.Context())
	if err != nil || len(found) != 1 || found[0].Bus != "0000:22:00.0" || len(notes) != 1 || !strings.Contains(notes[0], "renderD129") {
		t.Errorf("%v, notes %q, devices %+v", err, notes, found)
	}
	if err := os.Remove(filepath.Join(h.root, "dev/kfd")); err != nil {
		t.Fatal(err)
	}
	if found, _, err := h.probeAMD(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("without the driver's file: %v, devices %+v", err, found)
	}
	if _, err := os.Stat(filepath.Join(h.root, "dev/kfd")); err == nil {
		t.Error("reading created the file")
	}
}

func TestIntel(t *testing.T) {
	h := bare(t)
	fake(t, "xpu-smi", `case "$*" in 'discovery -j') `+cat(t, "xpu-smi-discovery-1.json")+` ;; *) `+cat(t, "xpu-smi-device-2.json")+` ;; esac`)
	found, notes, err := h.probeIntel(t.Context())
	want := Device{
		GPU:    muster.GPU{UUID: "00000000-0000-0000-0000-00b1000056c0", Index: 1, Vendor: "intel", Name: "Intel(R) Data Center GPU Flex 170", Memory: 25669140480},
		Driver: "1.32.0", Bus: "0000:b1:00.0",
	}
	want.Reading.UUID = want.UUID
	if err != nil || len(notes) > 0 || len(found) != 2 {
		t.Fatalf("%v, notes %q, devices %+v", err, notes, found)
	}
	if d := cmp.Diff(want, found[1]); d != "" {
		t.Error(d)
	}
	for out, bad := range map[string]string{
		"No GPU device found": "", `{"device_list": []}`: "", `{"error": "XPUM initialization failed", "errno": 1}`: "initialization failed", "level zero?": "no JSON", `{"device_list": 3}`: "cannot parse",
	} {
		found, err := parseDiscovery(out)
		if len(found) > 0 || (err == nil) != (bad == "") || err != nil && !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v, devices %+v", out, err, found)
		}
	}
}

func TestApple(t *testing.T) {
	got, err := parseApple(recorded(t, "apple-m2-max.json"))
	want := []Device{{
		GPU: muster.GPU{UUID: "apple-00000000-1111-2222-3333-444444444444-0", Vendor: "apple", Name: "Apple M2 Max", Memory: 48 << 30}, Runtime: "Metal 3",
	}}
	want[0].Reading.UUID = want[0].UUID
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	if got, err := parseApple(recorded(t, "apple-intel-mac.json")); err != nil || len(got) > 0 {
		t.Errorf("a Mac with other GPUs: %v, %+v", err, got)
	}
	if _, err := parseApple("2024-05-10 12:00:00.000 system_profiler[99:99] no"); err == nil {
		t.Error("garbage was read")
	}
}

// TestMissing checks that a machine without tools has no devices and one note about it, and another note for a supported card.
func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	h := bare(t)
	found, notes := h.probe(t.Context())
	if len(found) > 0 || len(notes) != 1 || !strings.Contains(notes[0], "on the PATH") {
		t.Errorf("devices %+v, notes %q", found, notes)
	}
	write(t, h, "sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
	write(t, h, "sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n")
	write(t, h, "sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n") // within the processor
	write(t, h, "sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n")
	if _, notes := h.probe(t.Context()); len(notes) != 2 || !strings.Contains(notes[0], "GPU of NVIDIA") {
		t.Errorf("notes %q", notes)
	}
}

// TestMixed checks that devices of several vendors are found in one machine, each with its own UUID.
func TestMixed(t *testing.T) {
	h := kfdHost(t)
	fake(t, "nvidia-smi", cat(t, "570-rtx-3060.xml"))
	fake(t, "amd-smi", cat(t, "amd-smi-static-7.json"))
	fake(t, "xpu-smi", `case "$*" in 'discovery -j') `+cat(t, "xpu-smi-discovery-1.json")+` ;; *) `+cat(t, "xpu-smi-device-2.json")+` ;; esac`)
	fake(t, "system_profiler", cat(t, "apple-m2-max.json"))
	found, notes := h.probe(t.Context())
	var vendors []string
	for _, d := range found {
		vendors = append(vendors, d.Vendor)
	}
	if !slices.Equal(vendors, []string{"nvidia", "amd", "amd", "intel", "intel", "apple"}) || len(notes) > 0 {
		t.Errorf("found %q, notes %q", vendors, notes)
	}
}
