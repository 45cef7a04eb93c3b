package devices

import (
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// noIndex is an index that no machine's devices have: Level Zero takes an empty
// mask for none, and one that names no device for all hidden.
const noIndex = "65535"

// Environ implements run.Devices. The variables of all makers are set, whatever
// devices were found: those that the worker's own environment hides are there as
// well.
//
//	CUDA_VISIBLE_DEVICES    UUIDs of NVIDIA; HIP takes it for its own unless
//	                        HIP_VISIBLE_DEVICES is set, so that always is
//	NVIDIA_VISIBLE_DEVICES  the same for the container toolkit, void for none
//	ROCR_VISIBLE_DEVICES    UUIDs of AMD, indexes of ROCm for cards without
//	HIP_VISIBLE_DEVICES     places in what ROCR_VISIBLE_DEVICES leaves
//	ZE_AFFINITY_MASK        indexes of Intel; they count cards and not tiles only
//	                        where ZE_FLAT_DEVICE_HIERARCHY says so
func (a *Allocator) Environ(g *muster.Grant) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	byVendor := map[string][]string{} // maker
	for _, uuid := range g.GPUs {
		if d, ok := a.devices[uuid]; ok {
			byVendor[d.Vendor] = append(byVendor[d.Vendor], visibleName(&d))
		}
	}
	cuda, rocm, intel := strings.Join(byVendor["nvidia"], ","), strings.Join(byVendor["amd"], ","), strings.Join(byVendor["intel"], ",")
	hip := indexes(len(byVendor["amd"]))
	env := []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "ROCR_VISIBLE_DEVICES=" + rocm, "HIP_VISIBLE_DEVICES=" + hip}
	if !a.hasVendor("nvidia") {
		cuda = hip // programs for HIP that know the older name only
	}
	env = append(env, "CUDA_VISIBLE_DEVICES="+cuda)
	if list := byVendor["nvidia"]; len(list) > 0 {
		env = append(env, "NVIDIA_VISIBLE_DEVICES="+strings.Join(list, ","))
	} else {
		env = append(env, "NVIDIA_VISIBLE_DEVICES=void")
	}
	if intel == "" {
		return append(env, "ZE_AFFINITY_MASK="+noIndex)
	}
	return append(env, "ZE_AFFINITY_MASK="+intel, "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE")
}

// visibleName is what a device is called by its maker's variable.
func visibleName(d *gpu.Device) string {
	if d.Vendor == "intel" || d.Vendor == "amd" && !strings.HasPrefix(d.UUID, "GPU-") {
		return strconv.Itoa(d.Index)
	}
	return d.UUID
}

// indexes counts from 0 to n-1.
func indexes(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ",")
}

// hasVendor says whether there are devices of a maker.
func (a *Allocator) hasVendor(vendor string) bool {
	for _, d := range a.devices {
		if d.Vendor == vendor {
			return true
		}
	}
	return false
}
