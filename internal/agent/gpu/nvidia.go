package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/gpu/xid"
)

// The formats of nvidia-smi are those of its manual page, and of the drivers 418 to 595 whose output is in testdata.

// probeNVIDIA returns NVIDIA's devices. A device in MIG mode cannot be used as a whole: its instances take its place.
func (h *host) probeNVIDIA(ctx context.Context) ([]Device, []string, error) {
	devices, notes, err := queryLog(ctx)
	if err != nil {
		return nil, nil, err
	}
	listed, err := queryInstances(ctx, devices)
	if err != nil {
		notes = append(notes, err.Error())
	}
	var found []Device
	seen := map[string]bool{}
	for i := range devices {
		d := &devices[i]
		switch {
		case d.UUID == "" || seen[d.UUID]:
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: nvidia-smi reports no unique UUID for it", i, d.Name))
			continue
		case h.inaccessible(d):
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: this user may not open its device files", i, d.Name))
			continue
		}
		seen[d.UUID] = true
		if !d.mig {
			found = append(found, h.wholeDevice(i, d))
			continue
		}
		instances := migInstances(i, d, listed)
		if len(instances) == 0 {
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: it is in MIG mode and has no usable instances", i, d.Name))
		}
		for _, p := range instances {
			if !seen[p.UUID] {
				seen[p.UUID] = true
				found = append(found, p)
			}
		}
	}
	found, more := h.visibleNVIDIA(found)
	h.addKernelFaults(found)
	return found, append(notes, more...), nil
}

// lostDevice is the message of nvidia-smi for a device that does not respond. Newer versions continue with the others, older ones stop
// there.
const lostDevice = "Unable to determine the device handle"

// queryLog queries all devices at once, or each by itself if one of them is so broken that the tool does not report the others.
func queryLog(ctx context.Context) (devices []smiDevice, notes []string, err error) {
	out, err := tool.Output(ctx, "nvidia-smi", "-q", "-x")
	devices, complete := parseLog(out)
	if at := strings.Index(out, lostDevice); at >= 0 {
		notes = append(notes, "an NVIDIA GPU does not answer and is ignored: "+tool.FirstLine(out[at:]))
	}
	switch {
	case complete && len(devices) > 0:
		if err != nil && notes == nil {
			notes = append(notes, "the list of NVIDIA GPUs may be incomplete: "+err.Error())
		}
		return devices, notes, nil
	case strings.Contains(out, "No devices were found"), strings.Contains(out, "No devices found"), complete && err == nil:
		return nil, notes, nil
	case err == nil:
		err = fmt.Errorf("nvidia-smi -q -x printed no log: %q", tool.FirstLine(out))
	case errors.Is(err, tool.ErrMissing):
		return nil, nil, err
	}
	if notes == nil {
		return nil, nil, fmt.Errorf("cannot list NVIDIA GPUs: %w", err)
	}
	return queryEach(ctx), notes, nil
}

func queryEach(ctx context.Context) (devices []smiDevice) {
	list, _ := tool.Output(ctx, "nvidia-smi", "-L") // it fails because of the lost device
	for line := range strings.Lines(list) {
		m := listedGPU.Get().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		out, _ := tool.Output(ctx, "nvidia-smi", "-q", "-x", "-i", m[3]) // it fails for the lost device
		if one, complete := parseLog(out); complete && len(one) == 1 {
			devices = append(devices, one...)
		}
	}
	return devices
}

// queryInstances queries properties of MIG instances that are not in the log.
func queryInstances(ctx context.Context, devices []smiDevice) ([]smiListEntry, error) {
	if !slices.ContainsFunc(devices, func(d smiDevice) bool { return d.mig && len(d.instances) > 0 }) {
		return nil, nil
	}
	out, err := tool.Output(ctx, "nvidia-smi", "-L")
	if err != nil {
		return nil, fmt.Errorf("cannot list MIG instances: %w", err)
	}
	return parseList(out), nil
}

// inaccessible reports whether the files of a device exist and are closed to this user. It does not open them: that wakes a sleeping
// device, and nvidia-smi has just done it.
func (h *host) inaccessible(d *smiDevice) bool {
	files := []string{"/dev/nvidiactl"}
	if d.minor >= 0 {
		files = append(files, "/dev/nvidia"+strconv.Itoa(d.minor))
	}
	return slices.ContainsFunc(files, func(f string) bool { return tool.AccessDenied(filepath.Join(h.root, f)) })
}

func (h *host) wholeDevice(index int, d *smiDevice) Device {
	dev := d.Device
	dev.Index = index
	if dev.Memory == 0 && sharesMemory(dev.Name) {
		dev.Memory = h.memory()
	}
	dev.Reading.UUID, dev.Reading.Processes = dev.UUID, processesOf(d.processes, "")
	return dev
}

func migInstances(index int, d *smiDevice, listed []smiListEntry) (instances []Device) {
	for i := range d.instances {
		p := &d.instances[i]
		profile := ""
		for _, l := range listed {
			if l.parent == d.UUID && l.index == p.index {
				profile, p.uuid = l.profile, cmp.Or(p.uuid, l.uuid)
			}
		}
		if p.uuid == "" || p.total == nil {
			continue
		}
		dev := d.Device
		dev.PowerLimit = nil // it applies to all together
		dev.Instance, dev.Reading = p.id, p.readingOf(d)
		dev.GPU = muster.GPU{
			UUID: p.uuid, Index: index, Vendor: d.Vendor, Name: strings.TrimSpace(d.Name + " MIG " + profile),
			Memory: *p.total, MIG: cmp.Or(profile, "unknown"), Parent: d.UUID,
		}
		dev.Reading.UUID = dev.UUID
		instances = append(instances, dev)
	}
	return instances
}

// readingOf returns the state of a MIG instance of d. Temperature and faults are those of d; its utilization and power are unknown.
func (p *smiInstance) readingOf(d *smiDevice) Reading {
	r := Reading{ECC: p.ecc, Faults: d.Reading.Faults, Processes: processesOf(d.processes, p.id)}
	r.Memory, r.Temperature = p.used, d.Reading.Temperature
	return r
}

func (h *host) addKernelFaults(found []Device) {
	if len(found) == 0 || h.root != "/" {
		return
	}
	kernel := xid.Open()
	if kernel == nil {
		return
	}
	defer kernel.Close()
	kernel.Read(func(message string, age time.Duration) {
		x, ok := xid.Parse(message)
		for i := range found {
			if r := &found[i].Reading; ok && age < xid.FaultTTL && x.Matches(found[i].Bus, found[i].Instance) {
				r.Faults = appendFault(slices.Clone(r.Faults), x.Reason)
			}
		}
	})
}

// sharesMemory reports whether a device uses the machine's memory, like CUDA on these models: nvidia-smi reports no memory then.
func sharesMemory(name string) bool {
	return slices.ContainsFunc([]string{"GB10", "Orin", "Thor", "Xavier", "Tegra", "Jetson"}, func(model string) bool { return strings.Contains(name, model) })
}
