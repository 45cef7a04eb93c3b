package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/gpu/tool"
)

// accelerators by the driver of a device of the kernel's compute accelerators.
var accelerators = map[string][]string{
	"habanalabs": {"habana"},
	"intel_vpu":  {"npu", "openvino:npu"},
	"amdxdna":    {"npu"},
	"qaic":       {"qaic"},
	"rocket":     {"npu"},
}

// deviceFiles of accelerators whose drivers are their makers' own.
var deviceFiles = []struct{ glob, tag string }{
	{"dev/hl[0-9]*", "habana"},
	{"dev/neuron[0-9]*", "neuron"},
	{"dev/hailo[0-9]*", "hailo"},
	{"dev/apex_[0-9]*", "coral"},
	{"dev/tenstorrent/[0-9]*", "tenstorrent"},
}

// Accelerators returns tags for the accelerators of this machine that this user
// may open and that are no GPUs: habana, tpu, neuron, hailo, coral, npu, qaic,
// tenstorrent; and for what OpenVINO can use beside processors: openvino:gpu,
// openvino:npu. They are told by their files; no task is given one for itself.
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
	// Cloud TPUs come as files of Google's driver, since the fifth generation as
	// devices that a program drives by itself.
	tpus := usable("dev/accel[0-9]*")
	if len(tpus) == 0 {
		tpus = usable("dev/vfio/[0-9]*")
	}
	if len(tpus) > 0 && h.onBus("pci", "vendor", "0x1ae0") {
		tags = append(tags, "tpu")
	}
	// A Coral on USB is known by its maker before it is first used, and after.
	if h.onBus("usb", "idVendor", "1a6e") || h.onBus("usb", "idProduct", "9302") {
		tags = append(tags, "coral")
	}
	slices.Sort(tags)
	return slices.Compact(tags)
}

// driver is the name of the driver of a device of a class.
func (h *host) driver(class, device string) string {
	link, err := os.Readlink(filepath.Join(h.root, class, device, "device/driver"))
	if err != nil {
		return ""
	}
	return filepath.Base(link)
}

// onBus says whether a device on a bus has a value in a file.
func (h *host) onBus(bus, file, value string) bool {
	all, _ := filepath.Glob(filepath.Join(h.root, "sys/bus", bus, "devices/*", file))
	return slices.ContainsFunc(all, func(f string) bool { return strings.TrimSpace(read(f)) == value })
}
