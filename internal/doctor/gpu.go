package doctor

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// gpus reports the devices that a worker would offer, and those that it cannot offer.
func (r *inspection) gpus(context.Context) []Finding {
	f := r.facts()
	var list []Finding
	for i := range f.GPUs {
		list = append(list, gpuFinding(&f.GPUs[i]))
	}
	noGPUs := len(f.GPUs) == 0 && len(r.pciVendors()) == 0
	for _, note := range f.Notes {
		switch {
		case !strings.Contains(note, "GPU") && !strings.Contains(note, "nvidia-smi") && !strings.Contains(note, "MIG"):
			// it is not about GPUs
		case strings.HasPrefix(note, "no GPUs:"):
			if !noGPUs {
				list = append(list, newFinding("gpus", Warning, "install the vendor's tools, such as `nvidia-smi` with the driver", "this machine has GPUs (%s), and %s", strings.Join(r.pciVendors(), ", "), strings.TrimPrefix(note, "no GPUs: ")))
			}
		case isVersionMismatch(note):
			// driver reports it
		default:
			list = append(list, newFinding("gpus", Warning, fixForNote(note), "%s", note))
		}
	}
	if len(list) == 0 {
		return single("gpus", Note, "", "this machine has no GPUs: tasks that need some run on other workers")
	}
	return list
}

func gpuFinding(d *gpu.Device) Finding {
	desc := fmt.Sprintf("%s, %s", d.Name, d.Memory)
	if d.Driver != "" {
		desc += ", driver " + d.Driver
	}
	r := &d.Reading
	switch {
	case len(r.Faults) > 0:
		return newFinding("gpus", Problem, "stop its programs and reset it: `sudo nvidia-smi --gpu-reset -i "+d.UUID+"`, or restart the machine; if it happens again, the device or its power supply is faulty",
			"%s: %s", desc, strings.Join(r.Faults, ", "))
	case r.ECC != nil && *r.ECC > 0:
		return newFinding("gpus", Warning, "check `nvidia-smi -q -d ECC,ROW_REMAPPER`, and reset it when it is idle", "%s: %d uncorrectable memory errors since the driver was loaded", desc, *r.ECC)
	case len(r.Processes) == 1:
		return newFinding("gpus", Note, "", "%s: in use by 1 process", desc)
	case len(r.Processes) > 1:
		return newFinding("gpus", Note, "", "%s: in use by %d processes", desc, len(r.Processes))
	}
	return newFinding("gpus", OK, "", "%s", desc)
}

func fixForNote(note string) string {
	switch {
	case strings.Contains(note, "may not open"):
		return "give this user permission: `sudo usermod -aG render,video " + userName() + "`, and log in again"
	case strings.Contains(note, "did not answer"), strings.Contains(note, "hangs"):
		return "keep the driver loaded: `sudo nvidia-smi -pm 1`; if the tool still hangs, restart the machine"
	case strings.Contains(note, "PATH"):
		return "add the tool to the PATH of the worker"
	case strings.Contains(note, "does not answer"):
		return "restart the machine; if it happens again, the device or its power supply is faulty"
	case strings.Contains(note, "MIG"):
		return "create instances, such as with `sudo nvidia-smi mig -cgi 0 -C`, or disable MIG: `sudo nvidia-smi -mig 0`"
	}
	return "check the driver: `dmesg | grep -iE 'nvrm|nvidia|amdgpu|i915|xe'`"
}

// pciVendors returns the vendors of accelerators on the PCI bus whose drivers Muster supports.
func (r *inspection) pciVendors() []string {
	var all []string
	for _, vendor := range []struct{ name, pci string }{{"NVIDIA", "0x10de"}, {"AMD", "0x1002"}} {
		if gpu.HasCard(r.hostPath("/"), vendor.pci) {
			all = append(all, vendor.name)
		}
	}
	return all
}

// isVersionMismatch reports whether nvidia-smi reported that its library does not match the driver.
func isVersionMismatch(note string) bool { return strings.Contains(note, "version mismatch") }

var (
	moduleVersion  = lazyregexp.New(`NVRM version:.*?\s(\d+\.\d+(?:\.\d+)?)\s`)
	libraryVersion = lazyregexp.New(`^lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)$`)
)

// libraryDirs are the distributions' directories of driver libraries.
var libraryDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib"}

// loadedDriver returns the version of the NVIDIA driver in the kernel, "" if there is none.
func (r *inspection) loadedDriver() string {
	if m := moduleVersion.Get().FindStringSubmatch(r.readText("/proc/driver/nvidia/version") + "\n"); m != nil {
		return m[1]
	}
	return ""
}

// driver compares the loaded NVIDIA driver with the libraries that programs use.
func (r *inspection) driver(context.Context) []Finding {
	loaded := r.loadedDriver()
	var libraries []string
	for _, dir := range libraryDirs {
		files, _ := filepath.Glob(r.hostPath(dir) + "/lib*.so.*")
		for _, file := range files {
			if m := libraryVersion.Get().FindStringSubmatch(filepath.Base(file)); m != nil && !slices.Contains(libraries, m[1]) {
				libraries = append(libraries, m[1])
			}
		}
	}
	mismatch := ""
	if i := slices.IndexFunc(r.facts().Notes, isVersionMismatch); i >= 0 {
		mismatch = r.facts().Notes[i]
	}
	const reload = "restart the machine; or, when no program uses the GPUs, `sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia`"
	switch {
	case loaded != "" && len(libraries) > 0 && !slices.Contains(libraries, loaded):
		return single("driver", Problem, reload, "the kernel runs the NVIDIA driver %s, but the libraries have version %s: programs find no GPU until both match", loaded, strings.Join(libraries, ", "))
	case mismatch != "":
		return single("driver", Problem, reload, "%s (the kernel runs %s)", mismatch, cmp.Or(loaded, "an unknown version"))
	case loaded != "" && len(libraries) > 1:
		return single("driver", Warning, "remove the packages of other versions", "the kernel runs the NVIDIA driver %s, but libraries of several versions are installed: %s", loaded, strings.Join(libraries, ", "))
	case loaded != "" && len(libraries) == 0:
		return single("driver", Warning, "install the libraries of the driver "+loaded, "the kernel runs the NVIDIA driver %s, but none of its libraries was found", loaded)
	case loaded == "" && slices.Contains(r.pciVendors(), "NVIDIA"):
		return single("driver", Warning, "install the driver, and check `dmesg | grep -i nvrm` if it is installed", "this machine has an NVIDIA GPU, but the kernel runs no NVIDIA driver")
	case loaded == "":
		return nil
	}
	return single("driver", OK, "", "the kernel and the libraries have the NVIDIA driver %s", loaded)
}

func (r *inspection) devices(context.Context) []Finding {
	var denied []string
	seen := 0
	for _, pattern := range []string{"/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/kfd", "/dev/dri/renderD*"} {
		files, _ := filepath.Glob(r.hostPath(pattern))
		for _, file := range files {
			seen++
			if tool.AccessDenied(file) { // without opening it: that may wake it, or hang in its driver
				denied = append(denied, file)
			}
		}
	}
	switch {
	case len(denied) > 0:
		groups := []string{}
		for _, file := range denied {
			if g := groupOf(file); !slices.Contains(groups, g) && g != "root" && g != "docker" {
				groups = append(groups, g)
			}
		}
		fix := "give this user permission: `sudo usermod -aG " + cmp.Or(strings.Join(groups, ","), "render,video") + " " + userName() + "`, and log in again"
		return single("devices", Problem, fix, "this user may not open %s", strings.Join(denied, ", "))
	case seen > 0:
		return single("devices", OK, "", "this user may open %s of GPUs", term.Plural(seen, "device file"))
	}
	return nil
}

// toolkit checks what gives containers access to GPUs.
func (r *inspection) toolkit(context.Context) []Finding {
	if !slices.ContainsFunc(r.facts().GPUs, func(d gpu.Device) bool { return d.Vendor == "nvidia" }) {
		return nil // other vendors need only device files
	}
	var list []Finding
	for _, e := range r.engineList() {
		if e.err != nil {
			continue
		}
		specs := docker.CDISpecs(os.DirFS(r.hostPath("/")), e.about.CDI)
		specs = slices.DeleteFunc(specs, func(s docker.CDISpec) bool { return s.Kind != "nvidia.com/gpu" })
		runtime := slices.Contains(e.about.Runtimes, "nvidia")
		switch {
		case !runtime && len(specs) == 0 && e.about.Name == "podman":
			list = append(list, newFinding("gpu-toolkit", Warning, "install nvidia-container-toolkit and create a CDI spec: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`", "podman at %s cannot give containers NVIDIA GPUs: there is no CDI spec of them", e.host))
		case !runtime && len(specs) == 0:
			list = append(list, newFinding("gpu-toolkit", Warning, "install nvidia-container-toolkit, then `sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`", "%s at %s cannot give containers NVIDIA GPUs", e.about.Name, e.host))
		case !runtime && r.staleCDI(specs):
			list = append(list, newFinding("gpu-toolkit", Warning, "`sudo nvidia-ctk cdi generate --output="+specs[0].Path+"`", "the CDI spec %s is of another driver version than the one that runs", specs[0].Path))
		default:
			list = append(list, newFinding("gpu-toolkit", OK, "", "%s at %s can give containers NVIDIA GPUs", e.about.Name, e.host))
		}
	}
	return list
}

// staleCDI reports whether no spec names a library of the running driver, which has the version in its name.
func (r *inspection) staleCDI(specs []docker.CDISpec) bool {
	loaded := r.loadedDriver()
	return loaded != "" && !slices.ContainsFunc(specs, func(s docker.CDISpec) bool { return strings.Contains(s.Text, ".so."+loaded) })
}
