package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// accelerators are the tags of compute accelerators by their driver in the kernel.
var accelerators = map[string][]string{
	"habanalabs": {"habana"},
	"intel_vpu":  {"npu", "openvino:npu"},
	"amdxdna":    {"npu"},
	"qaic":       {"qaic"},
	"rocket":     {"npu"},
}

// deviceFiles are those of accelerators with vendor drivers.
var deviceFiles = []struct{ glob, tag string }{
	{"dev/hl[0-9]*", "habana"},
	{"dev/neuron[0-9]*", "neuron"},
	{"dev/hailo[0-9]*", "hailo"},
	{"dev/apex_[0-9]*", "coral"},
	{"dev/tenstorrent/[0-9]*", "tenstorrent"},
}

// Accelerators returns tags for this machine's accelerators other than GPUs that this user may open: habana, tpu, neuron, hailo,
// coral, npu, qaic, tenstorrent; and for what OpenVINO can use besides processors: openvino:gpu, openvino:npu. They are found by
// their device files. Tasks do not get exclusive accelerators.
func Accelerators() []string { return (&host{root: "/"}).accelerators() }

func (h *host) accelerators() (tags []string) {
	usable := func(glob string) (files []string) {
		all, _ := filepath.Glob(filepath.Join(h.root, glob))
		return slices.DeleteFunc(all, tool.AccessDenied)
	}
	for _, d := range deviceFiles {
		if len(usable(d.glob)) > 0 {
			tags = append(tags, d.tag)
		}
	}
	for _, f := range usable("dev/accel/accel[0-9]*") {
		tags = append(tags, accelerators[h.driver("sys/class/accel", filepath.Base(f))]...)
	}
	for _, f := range usable("dev/dri/renderD*") {
		if d := h.driver("sys/class/drm", filepath.Base(f)); d == "i915" || d == "xe" {
			tags = append(tags, "openvino:gpu")
		}
	}
	// Cloud TPUs are files of Google's driver; since the fifth generation programs drive them through vfio.
	tpus := usable("dev/accel[0-9]*")
	if len(tpus) == 0 {
		tpus = usable("dev/vfio/[0-9]*")
	}
	if len(tpus) > 0 && h.onBus("pci", "vendor", "0x1ae0") {
		tags = append(tags, "tpu")
	}
	// A Coral on USB has different IDs before and after its first use.
	if h.onBus("usb", "idVendor", "1a6e") || h.onBus("usb", "idProduct", "9302") {
		tags = append(tags, "coral")
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// driver returns the name of the driver of a device.
func (h *host) driver(class, device string) string {
	link, err := os.Readlink(filepath.Join(h.root, class, device, "device/driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// onBus reports whether a device on a bus has a value in a file.
func (h *host) onBus(bus, file, value string) bool {
	all, _ := filepath.Glob(filepath.Join(h.root, "sys/bus", bus, "devices/*", file))
	return slices.ContainsFunc(all, func(f string) bool { return strings.TrimSpace(read(f)) == value })
}
