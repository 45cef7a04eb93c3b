package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// What a worker's own environment shows it is all that it may offer. The
// variables are read as their makers document them:
//
//	CUDA_VISIBLE_DEVICES     indexes or beginnings of UUIDs, in an order; nothing
//	                         after the first that names no device; empty is none
//	NVIDIA_VISIBLE_DEVICES   of the container toolkit: none; all, void and empty
//	                         say nothing; UUIDs; indexes of the machine
//	ROCR_VISIBLE_DEVICES     indexes or UUIDs, below all that follow
//	HIP_VISIBLE_DEVICES      indexes in what ROCR_VISIBLE_DEVICES left
//	CUDA_VISIBLE_DEVICES     as HIP_VISIBLE_DEVICES, where that is not set
//	ZE_AFFINITY_MASK         indexes, each with or without a tile (1.0)

// selectDevices returns the devices that a list names, in its order, up to the first
// name that fits none, or several, or one that is there already.
func selectDevices(all []Device, list string, matches func(d *Device, at int, want string) bool) []Device {
	var out []Device
	selected := make([]bool, len(all))
	for want := range strings.SplitSeq(list, ",") {
		want = strings.TrimSpace(want)
		before, physical := len(out), ""
		for i := range all {
			d := &all[i]
			if want == "" || !matches(d, i, want) {
				continue
			}
			uuid := cmp.Or(d.Parent, d.UUID)
			if selected[i] || physical != "" && physical != uuid {
				return out[:before]
			}
			selected[i], physical = true, uuid
			out = append(out, *d)
		}
		if physical == "" {
			break
		}
	}
	return out
}

// byCUDA says whether CUDA's name for a device is this one: its index, the
// beginning of its UUID, the same of its MIG instance, or MIG-GPU-<UUID>/1/0 as
// drivers before 470 had it. The index of a device in MIG mode means all of its
// instances here: they are handed out one by one.
func byCUDA(d *Device, _ int, want string) bool {
	if n, err := strconv.Atoi(want); err == nil {
		return n == d.Index
	}
	if parent, ok := strings.CutPrefix(want, "MIG-GPU-"); ok {
		return parent == strings.TrimPrefix(d.Parent, "GPU-")+"/"+d.Instance || d.UUID == want
	}
	if len(want) < len("GPU-0") {
		return false
	}
	return hasPrefixFold(d.UUID, want) || d.Parent != "" && hasPrefixFold(d.Parent, want)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func (h *host) visibleNVIDIA(all []Device) (visible []Device, notes []string) {
	visible = byToolkit(all, h.env("NVIDIA_VISIBLE_DEVICES"))
	list, set := h.lookup("CUDA_VISIBLE_DEVICES")
	if !set {
		return visible, nil
	}
	visible = selectDevices(visible, list, byCUDA)
	if h.env("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" && mixedModels(all) && slices.ContainsFunc(strings.Split(list, ","), isIndex) {
		notes = append(notes, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s is taken for indexes of nvidia-smi, which CUDA counts otherwise where GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name UUIDs", list))
	}
	return visible, notes
}

func isIndex(s string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return err == nil && n >= 0
}

// mixedModels says whether there are devices of several models.
func mixedModels(all []Device) bool {
	return slices.ContainsFunc(all, func(d Device) bool { return d.Name != all[0].Name })
}

// byToolkit heeds what the NVIDIA container toolkit was asked to show. It has
// done so by itself within a container that it made, and counts the devices of
// the machine: so indexes count only where more devices are there than they
// name. The value "void" is what CDI sets for containers that do have devices.
func byToolkit(all []Device, list string) []Device {
	switch list {
	case "", "all", "void":
		return all
	case "none":
		return nil
	}
	names := strings.Split(list, ",")
	var out []Device
	for i := range all {
		d := &all[i]
		if slices.ContainsFunc(names, func(want string) bool { return byHostName(d, strings.TrimSpace(want), len(all) > len(names)) }) {
			out = append(out, *d)
		}
	}
	return out
}

func byHostName(d *Device, want string, indexes bool) bool {
	index, _, instance := strings.Cut(want, ":") // 0:1 is a MIG instance by index
	if n, err := strconv.Atoi(index); err == nil {
		return !indexes || n == d.Index && (!instance || d.MIG != "")
	}
	if !strings.HasPrefix(want, "GPU-") && !strings.HasPrefix(want, "MIG-") {
		return true // a path or a CDI name: the runtime knew what it meant
	}
	return byCUDA(d, 0, want)
}

// byPosition says whether a name is the place of a device in a list, or its UUID.
func byPosition(d *Device, at int, want string) bool {
	if n, err := strconv.Atoi(want); err == nil {
		return n == at
	}
	return strings.EqualFold(d.UUID, want)
}

// visibleAMD heeds the variables of the HSA runtime, then of HIP above it. HIP
// takes CUDA_VISIBLE_DEVICES for its own; where there are NVIDIA devices it
// means those.
func (h *host) visibleAMD(all []Device, besideNVIDIA bool) []Device {
	if list, set := h.lookup("ROCR_VISIBLE_DEVICES"); set {
		all = selectDevices(all, list, byPosition)
	}
	list, set := h.lookup("HIP_VISIBLE_DEVICES")
	if !set && !besideNVIDIA {
		list, set = h.lookup("CUDA_VISIBLE_DEVICES")
	}
	if !set {
		return all
	}
	return selectDevices(all, list, byPosition)
}

// visibleIntel heeds the mask of Level Zero, which is empty where it does not
// limit.
func (h *host) visibleIntel(all []Device) []Device {
	mask := h.env("ZE_AFFINITY_MASK")
	if mask == "" || mask == "default" {
		return all
	}
	var out []Device
	for at := range all {
		if slices.ContainsFunc(strings.Split(mask, ","), func(want string) bool {
			want, _, _ = strings.Cut(strings.TrimSpace(want), ".")
			n, err := strconv.Atoi(want)
			return err == nil && n == at
		}) {
			out = append(out, all[at])
		}
	}
	return out
}
