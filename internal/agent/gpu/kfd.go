package gpu

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// The kernel describes AMD's devices in files: the compute driver (kfd) lists devices and the processes that hold their memory, the
// graphics driver (amdgpu) has sensors. See the kernel's amdgpu documentation, "GPU power/thermal controls and monitoring". Reading
// them needs no program and takes some tens of microseconds.

const kfdRoot = "sys/class/kfd/kfd"

// kfdNodes returns the devices of the compute driver in its order, which is that of ROCm, without those that a container may not
// use.
func (h *host) kfdNodes() []Device {
	dirs, _ := filepath.Glob(filepath.Join(h.root, kfdRoot, "topology/nodes/*"))
	slices.SortFunc(dirs, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) }) // by number
	var found []Device
	for _, dir := range dirs {
		p := parseProperties(read(filepath.Join(dir, "properties")))
		if p["simd_count"] == 0 { // it is a processor
			continue
		}
		d := Device{Bus: kfdBus(p)}
		v := p["gfx_target_version"] // 90402 is gfx942
		d.GPU = muster.GPU{Index: len(found), Vendor: "amd", Name: fmt.Sprintf("AMD gfx%d%x%x", v/10000, v/100%100, v%100)}
		if p["unique_id"] != 0 {
			d.UUID = fmt.Sprintf("GPU-%016x", p["unique_id"])
		}
		banks, _ := filepath.Glob(filepath.Join(dir, "mem_banks/*/properties"))
		for _, b := range banks {
			bank := parseProperties(read(b))
			if heap := bank["heap_type"]; (heap == 1 || heap == 2) && bank["size_in_bytes"] < tool.MaxMemory {
				d.Memory = min(tool.MaxMemory, d.Memory+muster.Size(bank["size_in_bytes"]))
			}
		}
		found = append(found, d)
	}
	return found
}

func kfdBus(p map[string]uint64) string {
	return fmt.Sprintf("%04x:%02x:%02x.%d", p["domain"], p["location_id"]>>8&0xff, p["location_id"]>>3&0x1f, p["location_id"]&7)
}

// parseProperties parses lines such as "simd_count 304".
func parseProperties(text string) map[string]uint64 {
	p := map[string]uint64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			p[name] = n
		}
	}
	return p
}

// kfdProcesses returns the processes that hold memory of a device, or nil if the kernel does not list them.
func (h *host) kfdProcesses(bus string) []Process {
	all, err := os.ReadDir(filepath.Join(h.root, kfdRoot, "proc"))
	id := h.kfdID(bus)
	if err != nil || id == "" {
		return nil
	}
	found := []Process{}
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid <= 0 {
			continue
		}
		n := tool.Count(read(filepath.Join(h.root, kfdRoot, "proc", e.Name(), "vram_"+id)))
		if n == nil || *n == 0 || *n > tool.MaxMemory {
			continue
		}
		name := tool.FirstLine(read(filepath.Join(h.root, "proc", e.Name(), "comm")))
		found = append(found, Process{PID: pid, Name: name, Memory: muster.Size(*n)})
	}
	return found
}

// kfdID returns the name of a device in the files of the compute driver.
func (h *host) kfdID(bus string) string {
	dirs, _ := filepath.Glob(filepath.Join(h.root, kfdRoot, "topology/nodes/*"))
	for _, dir := range dirs {
		p := parseProperties(read(filepath.Join(dir, "properties")))
		if p["simd_count"] > 0 && kfdBus(p) == bus {
			return tool.FirstLine(read(filepath.Join(dir, "gpu_id")))
		}
	}
	return ""
}

func (h *host) amdReading(bus string) (r Reading) {
	if bus == "" {
		return r
	}
	dir := filepath.Join(h.root, "sys/bus/pci/devices", bus)
	r.Utilization = tool.Fraction(read(filepath.Join(dir, "gpu_busy_percent")))
	if n := tool.Count(read(filepath.Join(dir, "mem_info_vram_used"))); n != nil && *n <= tool.MaxMemory {
		r.Memory = new(muster.Size(*n))
	}
	sensors, _ := filepath.Glob(filepath.Join(dir, "hwmon/hwmon*"))
	for _, s := range sensors {
		// The hottest sensor first: the card throttles by it.
		for _, f := range []string{"temp2_input", "temp1_input"} {
			if t, ok := tool.Number(read(filepath.Join(s, f))); ok && r.Temperature == nil {
				r.Temperature = new(t / 1000)
			}
		}
		for _, f := range []string{"power1_average", "power1_input"} {
			if w, ok := tool.Number(read(filepath.Join(s, f))); ok && r.Power == nil && w >= 0 {
				r.Power = new(w / 1e6)
			}
		}
	}
	blocks, _ := filepath.Glob(filepath.Join(dir, "ras/*_err_count"))
	for _, b := range blocks {
		for line := range strings.Lines(read(b)) {
			v, ok := strings.CutPrefix(strings.TrimSpace(line), "ue:")
			if n := tool.Count(v); ok && n != nil {
				if r.ECC != nil {
					*n += *r.ECC
				}
				r.ECC = n
			}
		}
	}
	return r
}
