package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/agent/gpu"
	"github.com/muster-dev/muster/internal/agent/gpu/tool"
	"github.com/muster-dev/muster/internal/agent/run"
)

// addDevices adds the GPUs of a grant to a plan and hides all others. It overrides the spec's variables that show devices to a container
// runtime.
func (c *Containers) addDevices(p *docker.ContainerSpec, g *muster.Grant, about *docker.Info) error {
	byVendor := map[string][]gpu.Device{}
	for _, uuid := range g.GPUs {
		known := c.cfg.Devices()
		index := slices.IndexFunc(known, func(d gpu.Device) bool { return d.UUID == uuid })
		if index < 0 {
			return run.Failf(muster.WorkerInternal, "unknown device %s on this worker", uuid)
		}
		byVendor[known[index].Vendor] = append(byVendor[known[index].Vendor], known[index])
	}
	p.Env = slices.DeleteFunc(p.Env, func(entry string) bool { return strings.HasPrefix(entry, "NVIDIA_VISIBLE_DEVICES=") })
	visible := "void" // needed even without GPUs: the NVIDIA runtime may be the default, and the image may set "all"
	for vendor, devices := range byVendor {
		var err error
		switch vendor {
		case "nvidia":
			if visible, err = addNVIDIA(p, devices, about, "/"); err != nil {
				return err
			}
		case "amd", "intel":
			if err := addDeviceFiles(p, vendor, devices, "/"); err != nil {
				return err
			}
		default:
			return run.Failf(muster.Dependency, "containers cannot use %s devices: set isolation: process", vendor)
		}
	}
	p.Env = append(p.Env, "NVIDIA_VISIBLE_DEVICES="+visible)
	return nil
}

// addNVIDIA requests devices by UUID from the toolkit's runtime (Docker's driver nvidia), or by CDI, the Container Device Interface, if
// they have CDI descriptions. It returns the value of NVIDIA_VISIBLE_DEVICES. root is a prefix of all paths.
func addNVIDIA(p *docker.ContainerSpec, devices []gpu.Device, about *docker.Info, root string) (string, error) {
	uuids := make([]string, len(devices))
	for i := range devices {
		uuids[i] = devices[i].UUID
	}
	if about.Name == "docker" && (slices.Contains(about.Runtimes, "nvidia") || hasNVIDIAHook()) {
		p.GPUDriver, p.GPUs = "nvidia", uuids
		return strings.Join(uuids, ","), nil
	}
	specs := docker.CDISpecs(os.DirFS(root), about.CDI)
	var names []string
	for i := range devices {
		if name := cdiName(&devices[i], specs); name != "" {
			names = append(names, name)
		}
	}
	if len(names) == len(devices) && supportsCDI(about) {
		p.GPUDriver, p.GPUs = "cdi", names
		return "void", nil // CDI adds the devices
	}
	if about.Name == "podman" {
		return "", run.Failf(muster.Dependency, "the worker's Podman %s does not support NVIDIA devices in containers: install nvidia-container-toolkit and Podman 5 or newer, and run nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", about.Version)
	}
	return "", run.Failf(muster.Dependency, "the worker's Docker does not support NVIDIA devices in containers: install nvidia-container-toolkit, run nvidia-ctk runtime configure --runtime=docker, and restart Docker")
}

// hasNVIDIAHook reports whether the toolkit's hook is installed, which Docker uses without a configured runtime.
func hasNVIDIAHook() bool {
	_, err := exec.LookPath("nvidia-container-runtime-hook")
	return err == nil
}

// supportsCDI reports whether an engine's API supports CDI names: Docker 25 or newer if CDI is enabled, Podman 5 or newer. Older
// versions silently ignore them.
func supportsCDI(about *docker.Info) bool {
	major, _, _ := strings.Cut(about.Version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && len(about.CDI) > 0 && (about.Name == "podman" && n >= 5 || about.Name == "docker" && n >= 25)
}

// cdiName returns the name of a device in CDI specs, by UUID or index, "" if it has none.
func cdiName(d *gpu.Device, specs []docker.CDISpec) string {
	names := []string{d.UUID, strconv.Itoa(d.Index)}
	if d.MIG != "" {
		names = names[:1] // the index is not the machine's
	}
	for _, spec := range specs {
		for _, name := range names {
			named := regexp.MustCompile(`(?m)"?name"?:\s*["']?` + regexp.QuoteMeta(name) + `["']?\s*(,|}|$)`)
			if spec.Kind == "nvidia.com/gpu" && named.MatchString(spec.Text) {
				return spec.Kind + "=" + name
			}
		}
	}
	return ""
}

// addDeviceFiles adds the device files of AMD and Intel devices, with the groups that may open them. Programs number them from 0,
// because the container sees no others.
func addDeviceFiles(p *docker.ContainerSpec, vendor string, devices []gpu.Device, root string) error {
	add := func(path string) error {
		file := filepath.Join(root, path)
		if _, err := os.Stat(file); err != nil {
			return run.Failf(muster.Dependency, "containers cannot use this worker's %s devices: %w: install the driver", vendor, err)
		}
		p.Devices = append(p.Devices, path)
		if gid := tool.OwnerGroup(file); gid > 0 && !slices.Contains(p.GroupAdd, strconv.Itoa(gid)) {
			p.GroupAdd = append(p.GroupAdd, strconv.Itoa(gid))
		}
		return nil
	}
	if vendor == "amd" {
		if err := add("/dev/kfd"); err != nil {
			return err
		}
	}
	indices := make([]string, len(devices))
	for i := range devices {
		indices[i] = strconv.Itoa(i)
		nodes, _ := filepath.Glob(filepath.Join(root, "sys/bus/pci/devices", devices[i].Bus, "drm/renderD*"))
		if devices[i].Bus == "" || len(nodes) == 0 {
			return run.Failf(muster.Dependency, "device %s has no device file on this worker: load its driver", devices[i].UUID)
		}
		if err := add("/dev/dri/" + filepath.Base(nodes[0])); err != nil {
			return err
		}
	}
	variables := []string{"ZE_AFFINITY_MASK"}
	if vendor == "amd" {
		variables = []string{"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"}
	}
	for _, name := range variables {
		p.Env = slices.DeleteFunc(p.Env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
		p.Env = append(p.Env, fmt.Sprintf("%s=%s", name, strings.Join(indices, ",")))
	}
	return nil
}
