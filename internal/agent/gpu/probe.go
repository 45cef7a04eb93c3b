package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// Probe returns the devices of all vendors that this user may open and that the environment of this process does not hide. Notes explain
// what is unknown. It takes less than ten seconds even if tools hang, and never fails.
func Probe(ctx context.Context) ([]Device, []string) {
	return (&host{root: "/", lookup: os.LookupEnv}).probe(ctx)
}

// host is the part of the machine that is read without tools.
type host struct {
	root   string // of /dev, /sys and /proc
	lookup func(name string) (value string, set bool)
}

func (h *host) env(name string) string {
	value, _ := h.lookup(name)
	return value
}

type vendorProbe struct {
	name, pci, tools string
	find             func(context.Context) ([]Device, []string, error)

	devices []Device
	notes   []string
	missing bool
	latency float64 // seconds
}

func (h *host) probe(ctx context.Context) (found []Device, notes []string) {
	vendors := []*vendorProbe{
		{name: "NVIDIA", pci: "0x10de", tools: "nvidia-smi", find: h.probeNVIDIA},
		{name: "AMD", pci: "0x1002", tools: "amd-smi", find: h.probeAMD},
		{name: "Intel", pci: "0x8086", tools: "xpu-smi", find: h.probeIntel},
		{name: "Apple", tools: "system_profiler", find: h.probeApple},
	}
	var wg sync.WaitGroup
	for _, m := range vendors {
		wg.Go(func() {
			// All queries of one vendor together have the time of one.
			ctx, cancel := context.WithTimeout(ctx, tool.Timeout)
			defer cancel()
			var err error
			asked := time.Now()
			m.devices, m.notes, err = m.find(ctx)
			m.latency = time.Since(asked).Seconds()
			if m.missing = errors.Is(err, tool.ErrMissing); err != nil && !m.missing {
				m.notes = append(m.notes, err.Error())
			}
		})
	}
	wg.Wait()

	none := true
	for _, m := range vendors {
		if m.name == "AMD" && len(m.devices) > 0 {
			m.devices = h.visibleAMD(m.devices, len(vendors[0].devices) > 0)
		}
		for i := range m.devices {
			m.devices[i].Reading.Latency = &m.latency
		}
		found = append(found, m.devices...)
		notes = append(notes, m.notes...)
		none = none && m.missing
		if m.missing && m.pci != "" && HasCard(h.root, m.pci) {
			notes = append(notes, fmt.Sprintf("this machine has a GPU of %s that is not usable: %s is not on the PATH", m.name, m.tools))
		}
	}
	if none {
		notes = append(notes, "no GPUs: none of nvidia-smi, amd-smi, xpu-smi and system_profiler is on the PATH")
	}
	return found, notes
}

// HasCard reports whether an accelerator of a vendor, such as 0x10de, is on the PCI bus: a 3D controller, or a display controller that is
// not part of an Intel processor. root is a prefix of all paths.
func HasCard(root, vendor string) bool {
	cards, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices/*/vendor"))
	for _, c := range cards {
		class := tool.FirstLine(read(filepath.Join(filepath.Dir(c), "class")))
		discrete := strings.HasPrefix(class, "0x0302") || strings.HasPrefix(class, "0x03") && vendor != "0x8086"
		if discrete && tool.FirstLine(read(c)) == vendor {
			return true
		}
	}
	return false
}

// memory returns the memory of the machine, 0 if unknown.
func (h *host) memory() muster.Size {
	var kib muster.Size // the first line
	if _, err := fmt.Sscanf(read(filepath.Join(h.root, "proc/meminfo")), "MemTotal: %d kB", &kib); err != nil || kib < 0 || kib >= tool.MaxMemory>>10 {
		return 0
	}
	return kib << 10
}

// read returns the content of a small file, "" if it cannot be read.
func read(path string) string {
	b, _ := os.ReadFile(path)
	return string(b)
}
