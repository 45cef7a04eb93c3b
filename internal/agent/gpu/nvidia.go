package gpu

import (
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
	log, notes, err := queryLog(ctx)
	if err != nil {
		return nil, nil, err
	}
	listed, err := queryInstances(ctx, &log)
	if err != nil {
		notes = append(notes, err.Error())
	}
	var found []Device
	seen := map[string]bool{}
	for i := range log.devices {
		d := &log.devices[i]
		switch {
		case d.uuid == "" || seen[d.uuid]:
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: nvidia-smi reports no unique UUID for it", i, d.name))
			continue
		case h.inaccessible(d):
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: this user may not open its device files", i, d.name))
			continue
		}
		seen[d.uuid] = true
		if !d.mig {
			found = append(found, h.wholeDevice(i, d, &log))
			continue
		}
		instances := migInstances(i, d, &log, listed)
		if len(instances) == 0 {
			notes = append(notes, fmt.Sprintf("NVIDIA GPU %d (%s) is ignored: it is in MIG mode and has no usable instances", i, d.name))
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
func queryLog(ctx context.Context) (log smiLog, notes []string, err error) {
	out, err := tool.Output(ctx, "nvidia-smi", "-q", "-x")
	log, complete := parseLog(out)
	if at := strings.Index(out, lostDevice); at >= 0 {
		notes = append(notes, "an NVIDIA GPU does not answer and is ignored: "+tool.FirstLine(out[at:]))
	}
	switch {
	case complete && len(log.devices) > 0:
		if err != nil && notes == nil {
			notes = append(notes, "the list of NVIDIA GPUs may be incomplete: "+err.Error())
		}
		return log, notes, nil
	case strings.Contains(out, "No devices were found"), strings.Contains(out, "No devices found"):
		return smiLog{}, notes, nil
	case complete && err == nil:
		return log, notes, nil
	case err == nil:
		err = fmt.Errorf("nvidia-smi -q -x printed no log: %q", tool.FirstLine(out))
	case errors.Is(err, tool.ErrMissing):
		return smiLog{}, nil, err
	}
	if notes == nil {
		return smiLog{}, nil, fmt.Errorf("cannot list NVIDIA GPUs: %w", err)
	}
	return queryEach(ctx), notes, nil
}

func queryEach(ctx context.Context) (log smiLog) {
	list, _ := tool.Output(ctx, "nvidia-smi", "-L") // it fails because of the lost device
	for line := range strings.Lines(list) {
		m := listedGPU.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		out, _ := tool.Output(ctx, "nvidia-smi", "-q", "-x", "-i", m[3]) // it fails for the lost device
		if one, complete := parseLog(out); complete && len(one.devices) == 1 {
			log.driver, log.cuda = one.driver, one.cuda
			log.devices = append(log.devices, one.devices...)
		}
	}
	return log
}

// queryInstances queries properties of MIG instances that are not in the log.
func queryInstances(ctx context.Context, log *smiLog) ([]smiListEntry, error) {
	for i := range log.devices {
		if d := &log.devices[i]; d.mig && len(d.instances) > 0 {
			out, err := tool.Output(ctx, "nvidia-smi", "-L")
			if err != nil {
				return nil, fmt.Errorf("cannot list MIG instances: %w", err)
			}
			return parseList(out), nil
		}
	}
	return nil, nil
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

func (h *host) wholeDevice(index int, d *smiDevice, log *smiLog) Device {
	dev := baseDevice(d, log)
	dev.GPU = muster.GPU{UUID: strings.Clone(d.uuid), Index: index, Vendor: "nvidia", Name: strings.Clone(d.name)}
	if m := tool.Mebibytes(d.total); m != nil {
		dev.Memory = *m
	} else if sharesMemory(d.name) {
		dev.Memory = h.memory()
	}
	dev.Reading = d.reading
	dev.Reading.UUID, dev.Reading.Processes = dev.UUID, processesOf(d.processes, "")
	return dev
}

// baseDevice returns what a device and its MIG instances have in common.
func baseDevice(d *smiDevice, log *smiLog) Device {
	return Device{Driver: strings.Clone(log.driver), Runtime: strings.Clone(log.cuda), PowerLimit: d.powerLimit, Bus: d.bus}
}

// migInstances returns the MIG instances of a device.
func migInstances(index int, d *smiDevice, log *smiLog, listed []smiListEntry) (instances []Device) {
	for i := range d.instances {
		p := &d.instances[i]
		profile := ""
		for _, l := range listed {
			if l.parent == d.uuid && l.index == p.index {
				profile = l.profile
				if p.uuid == "" {
					p.uuid = l.uuid
				}
			}
		}
		if p.uuid == "" || p.total == nil {
			continue
		}
		dev := baseDevice(d, log)
		dev.PowerLimit = nil // it applies to all together
		dev.Instance = strings.Clone(p.instance)
		dev.GPU = muster.GPU{
			UUID: strings.Clone(p.uuid), Index: index, Vendor: "nvidia", Name: strings.Clone(d.name) + " MIG " + profile,
			Memory: *p.total, MIG: profile, Parent: strings.Clone(d.uuid),
		}
		if profile == "" {
			dev.MIG, dev.Name = "unknown", strings.Clone(d.name)+" MIG"
		}
		dev.Reading = p.reading(d)
		dev.Reading.UUID = dev.UUID
		instances = append(instances, dev)
	}
	return instances
}

// reading returns the state of a MIG instance. Temperature and faults are those of its device; its utilization and power are unknown.
func (p *smiInstance) reading(d *smiDevice) Reading {
	r := Reading{ECC: p.ecc, Faults: d.reading.Faults, Processes: processesOf(d.processes, p.instance)}
	r.Memory, r.Temperature = p.used, d.reading.Temperature
	return r
}

// addKernelFaults adds recent faults from the kernel's log.
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
