package gpu

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A worker offers only the devices that its own environment shows. The variables have the meaning that their vendors document:
//
//	CUDA_VISIBLE_DEVICES     indexes or prefixes of UUIDs, in an order; nothing after the first that names no device; empty means none
//	NVIDIA_VISIBLE_DEVICES   of the container toolkit: none; all, void and empty have no effect; UUIDs; indexes of the machine
//	ROCR_VISIBLE_DEVICES     indexes or UUIDs; it applies before all that follow
//	HIP_VISIBLE_DEVICES      indexes in what ROCR_VISIBLE_DEVICES left
//	CUDA_VISIBLE_DEVICES     as HIP_VISIBLE_DEVICES, if that is not set
//	ZE_AFFINITY_MASK         indexes, each with or without a tile (1.0)

// selectDevices returns the devices that a list names, in its order, up to the first name that matches none, several, or one that was
// already selected.
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

// byCUDA reports whether want is CUDA's name for a device: its index, a prefix of its UUID or that of its MIG instance, or
// MIG-GPU-<UUID>/1/0 like drivers before 470. The index of a device in MIG mode means all of its instances here: they are granted
// one by one.
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
		notes = append(notes, fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s is read as indexes of nvidia-smi, but CUDA may number different GPUs in another order: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or use UUIDs", list))
	}
	return visible, notes
}

func isIndex(s string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return err == nil && n >= 0
}

func mixedModels(all []Device) bool {
	return slices.ContainsFunc(all, func(d Device) bool { return d.Name != all[0].Name })
}

// byToolkit applies the variable of the NVIDIA container toolkit. In a container the toolkit has applied it already, with indexes of the
// machine's devices: so indexes count only if there are more devices than names. CDI sets "void" in containers that do have devices.
func byToolkit(all []Device, list string) []Device {
	switch list {
	case "", "all", "void":
		return all
	case "none":
		return nil
	}
	names := strings.Split(list, ",")
	return slices.DeleteFunc(slices.Clone(all), func(d Device) bool {
		return !slices.ContainsFunc(names, func(want string) bool { return byHostName(&d, strings.TrimSpace(want), len(all) > len(names)) })
	})
}

func byHostName(d *Device, want string, indexes bool) bool {
	index, _, instance := strings.Cut(want, ":") // 0:1 is a MIG instance by index
	if n, err := strconv.Atoi(index); err == nil {
		return !indexes || n == d.Index && (!instance || d.MIG != "")
	}
	if !strings.HasPrefix(want, "GPU-") && !strings.HasPrefix(want, "MIG-") {
		return true // a path or a CDI name, which the runtime has applied
	}
	return byCUDA(d, 0, want)
}

// byPosition reports whether want is the position of a device in a list, or its UUID.
func byPosition(d *Device, at int, want string) bool {
	if n, err := strconv.Atoi(want); err == nil {
		return n == at
	}
	return strings.EqualFold(d.UUID, want)
}

// visibleAMD applies the variables of the HSA runtime, then of HIP above it. HIP uses CUDA_VISIBLE_DEVICES too; if there are NVIDIA devices
// it means those.
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

// visibleIntel applies the mask of Level Zero; an empty mask has no effect.
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
