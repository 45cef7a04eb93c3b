package devices

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/gpu"
)

// noIndex is an index that no device has. Level Zero ignores an empty mask, and hides all devices if the mask names none.
const noIndex = "65535"

// Environ implements run.DeviceAllocator. It sets the variables of all vendors, whatever devices were found: a device that the
// worker's own environment hides exists as well.
//
//	CUDA_VISIBLE_DEVICES    UUIDs of NVIDIA; HIP uses it too unless HIP_VISIBLE_DEVICES is set, so that always is
//	NVIDIA_VISIBLE_DEVICES  the same for the container toolkit, void for none
//	ROCR_VISIBLE_DEVICES    UUIDs of AMD, ROCm indexes for cards without
//	HIP_VISIBLE_DEVICES     positions in ROCR_VISIBLE_DEVICES
//	ZE_AFFINITY_MASK        indexes of Intel; they count cards, not tiles, only if ZE_FLAT_DEVICE_HIERARCHY says so
func (a *Allocator) Environ(g *muster.Grant) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	byVendor := map[string][]string{}
	for _, uuid := range g.GPUs {
		if d, ok := a.devices[uuid]; ok {
			byVendor[d.Vendor] = append(byVendor[d.Vendor], visibleName(&d))
		}
	}
	cuda, rocm, intel := strings.Join(byVendor["nvidia"], ","), strings.Join(byVendor["amd"], ","), strings.Join(byVendor["intel"], ",")
	hip := indexes(len(byVendor["amd"]))
	env := []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "ROCR_VISIBLE_DEVICES=" + rocm, "HIP_VISIBLE_DEVICES=" + hip}
	if !a.hasVendor("nvidia") {
		cuda = hip // for HIP programs that know only the older name
	}
	env = append(env, "CUDA_VISIBLE_DEVICES="+cuda, "NVIDIA_VISIBLE_DEVICES="+cmp.Or(strings.Join(byVendor["nvidia"], ","), "void"))
	if intel == "" {
		return append(env, "ZE_AFFINITY_MASK="+noIndex)
	}
	return append(env, "ZE_AFFINITY_MASK="+intel, "ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE")
}

// visibleName is the name of a device in its vendor's variable.
func visibleName(d *gpu.Device) string {
	if d.Vendor == "intel" || d.Vendor == "amd" && !strings.HasPrefix(d.UUID, "GPU-") {
		return strconv.Itoa(d.Index)
	}
	return d.UUID
}

// indexes returns 0,1,...,n-1.
func indexes(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Itoa(i)
	}
	return strings.Join(list, ",")
}

// hasVendor reports whether the machine has devices of a vendor. The caller holds the lock.
func (a *Allocator) hasVendor(vendor string) bool {
	for _, d := range a.devices {
		if d.Vendor == vendor {
			return true
		}
	}
	return false
}
