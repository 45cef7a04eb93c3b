package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// probeIntel returns the devices that xpu-smi 1.2 to 2.1 reports.
func (h *host) probeIntel(ctx context.Context) (found []Device, notes []string, err error) {
	out, err := tool.Output(ctx, "xpu-smi", "discovery", "-j")
	if err != nil {
		return nil, nil, err
	}
	if found, err = parseDiscovery(out); err != nil {
		return nil, nil, fmt.Errorf("cannot list Intel GPUs: %w", err)
	}
	found, notes = h.openable(ctx, h.visibleIntel(found), h.renderFiles, "add it to the group render")
	for i := range found {
		d := &found[i] // the list has only names
		if out, err := tool.Output(ctx, "xpu-smi", "discovery", "-d", strconv.Itoa(d.Index), "-j"); err != nil {
			notes = append(notes, fmt.Sprintf("the memory of Intel GPU %d (%s) is unknown: %v", d.Index, d.Name, err))
		} else if one, err := parseDiscovery(out); err == nil && len(one) == 1 {
			d.Memory, d.Driver = one[0].Memory, one[0].Driver
		}
	}
	return found, notes, nil
}

// renderFiles returns the render node of a device, if the kernel lists it.
func (h *host) renderFiles(d *Device) []string {
	render, _ := filepath.Glob(filepath.Join(h.root, "sys/bus/pci/devices", d.Bus, "drm/renderD*"))
	if d.Bus == "" || len(render) == 0 {
		return nil
	}
	return []string{"/dev/dri/" + filepath.Base(render[0])}
}

// openable returns the devices whose files this user may open, and a note with a fix for each of the others.
func (h *host) openable(ctx context.Context, found []Device, filesOf func(*Device) []string, fix string) (usable []Device, notes []string) {
	var files []string
	for i := range found {
		files = append(files, filesOf(&found[i])...)
	}
	slices.Sort(files)
	denied := tool.Inaccessible(ctx, h.root, slices.Compact(files))
	for _, d := range found {
		own := filesOf(&d)
		if slices.ContainsFunc(own, func(f string) bool { return denied[f] }) {
			name := map[string]string{"amd": "AMD", "intel": "Intel"}[d.Vendor]
			notes = append(notes, fmt.Sprintf("%s GPU %d (%s) is ignored: this user may not open %s: %s", name, d.Index, d.Name, strings.Join(own, " and "), fix))
			continue
		}
		usable = append(usable, d)
	}
	return usable, notes
}

// xpuDevice is a device in xpu-smi discovery -j. Numbers are JSON numbers or strings.
type xpuDevice struct {
	ID     amdValue `json:"device_id"`
	Name   amdValue `json:"device_name"`
	Type   amdValue `json:"device_type"`
	UUID   amdValue `json:"uuid"`
	Bus    amdValue `json:"pci_bdf_address"`
	Driver amdValue `json:"driver_version"`
	Memory amdValue `json:"memory_physical_size_byte"`
}

// parseDiscovery parses xpu-smi discovery -j: a list of devices, or with -d one device.
func parseDiscovery(out string) (found []Device, err error) {
	var p struct {
		List []xpuDevice `json:"device_list"`
		xpuDevice
		Error amdValue `json:"error"`
	}
	at := strings.Index(out, "{")
	if at < 0 {
		if strings.Contains(out, "No GPU device") || strings.Contains(out, "No device") {
			return nil, nil
		}
		return nil, fmt.Errorf("xpu-smi printed no JSON: %q", tool.FirstLine(out))
	}
	if err := json.NewDecoder(strings.NewReader(out[at:])).Decode(&p); err != nil {
		return nil, fmt.Errorf("cannot parse the JSON of xpu-smi: %w", err)
	}
	if p.Error.text != "" {
		return nil, fmt.Errorf("xpu-smi failed: %s", tool.FirstLine(p.Error.text))
	}
	if p.UUID.text != "" {
		p.List = append(p.List, p.xpuDevice)
	}
	seen := map[string]bool{}
	for _, x := range p.List {
		index, err := strconv.Atoi(x.ID.text)
		uuid := tool.Text(x.UUID.text)
		if err != nil || index < 0 || uuid == "" || seen[uuid] || x.Type.text != "" && x.Type.text != "GPU" {
			continue
		}
		seen[uuid] = true
		d := Device{Driver: tool.Text(x.Driver.text), Bus: tool.PCIAddress(x.Bus.text)}
		d.GPU = muster.GPU{UUID: uuid, Index: index, Vendor: "intel", Name: tool.Text(x.Name.text)}
		x.Memory.unit = "B"
		if m := x.Memory.size(); m != nil {
			d.Memory = *m
		}
		d.Reading.UUID = uuid
		found = append(found, d)
	}
	return found, nil
}
