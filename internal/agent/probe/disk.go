package probe

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	gopsdisk "github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
)

// Disk is a file system on a disk of this machine.
type Disk struct {
	Path     string      `json:"path"`             // the data dir, or the mount point
	Device   string      `json:"device,omitempty"` // such as /dev/sda1
	Type     string      `json:"type,omitempty"`   // such as ext4
	Kind     string      `json:"kind,omitempty"`   // ssd or hdd, if known
	ReadOnly bool        `json:"readonly,omitempty"`
	Total    muster.Size `json:"total,omitempty"`
	Free     muster.Size `json:"free,omitempty"` // for this user
}

const maxDisks = 64

// disk returns the file system that contains the data dir, which need not exist.
func (h *host) disk(ctx context.Context, dir string, mounts []procfs.Mount) (Disk, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Disk{}, fmt.Errorf("cannot resolve the data dir: %w", err)
	}
	d := Disk{Path: dir}
	existing := dir
	for {
		if _, err := os.Stat(existing); err == nil || existing == filepath.Dir(existing) {
			break
		}
		existing = filepath.Dir(existing)
	}
	u, err := gopsdisk.UsageWithContext(ctx, existing)
	if err != nil {
		return d, fmt.Errorf("cannot read the size of the disk under %s: %w", existing, err)
	}
	d.Total, d.Free = muster.Size(u.Total), muster.Size(u.Free)
	if target, err := filepath.EvalSymlinks(existing); err == nil {
		existing = target
	}
	if m := mountOf(mounts, existing); m != nil {
		d.Device, d.Type, d.ReadOnly, d.Kind = m.Source, m.Type, m.ReadOnly, h.diskKind(m)
	}
	return d, nil
}

// disks returns the file systems on local disks, each once.
func (h *host) disks(ctx context.Context, mounts []procfs.Mount) []Disk {
	disks := []Disk{}
	for _, m := range localMounts(mounts) {
		if len(disks) == maxDisks || ctx.Err() != nil {
			break
		}
		if info, err := os.Stat(m.Point); err != nil || !info.IsDir() {
			continue // such as a container's /etc/hosts
		}
		u, err := gopsdisk.UsageWithContext(ctx, m.Point)
		if err != nil || u.Total == 0 {
			continue
		}
		disks = append(disks, Disk{
			Path: m.Point, Device: m.Source, Type: m.Type, Kind: h.diskKind(&m), ReadOnly: m.ReadOnly,
			Total: muster.Size(u.Total), Free: muster.Size(u.Free),
		})
	}
	slices.SortFunc(disks, func(a, b Disk) int { return cmp.Compare(a.Path, b.Path) })
	return disks
}

func (h *host) mounts(ctx context.Context) []procfs.Mount {
	if h.os == "linux" {
		return slices.Collect(procfs.Mounts(h.readText("/proc/self/mountinfo")))
	}
	parts, err := gopsdisk.PartitionsWithContext(ctx, false)
	if err != nil {
		return nil
	}
	var all []procfs.Mount
	for _, p := range parts {
		all = append(all, procfs.Mount{Point: p.Mountpoint, Source: p.Device, Type: p.Fstype, ReadOnly: slices.Contains(p.Opts, "ro")})
	}
	return all
}

// mountOf returns the mount that contains a path. A later mount hides an earlier one at the same point.
func mountOf(mounts []procfs.Mount, name string) *procfs.Mount {
	var best *procfs.Mount
	for i := range mounts {
		m := &mounts[i]
		rest, ok := strings.CutPrefix(name, m.Point)
		inside := ok && (rest == "" || strings.HasSuffix(m.Point, "/") || strings.HasPrefix(rest, "/") || os.IsPathSeparator(rest[0]))
		if inside && (best == nil || len(m.Point) >= len(best.Point)) {
			best = m
		}
	}
	return best
}

// localMounts returns the file systems on disks, each once, with the shortest of their mount points: others show parts of it.
func localMounts(mounts []procfs.Mount) []procfs.Mount {
	first := map[string]int{}
	var all []procfs.Mount
	for _, m := range mounts {
		disk := strings.HasPrefix(m.Source, "/dev/") || m.Type == "zfs" || filepath.VolumeName(m.Source) != ""
		if !disk || strings.HasPrefix(m.Source, "/dev/loop") || m.Type == "squashfs" || m.Type == "iso9660" || m.Type == "devfs" {
			continue
		}
		if i, seen := first[m.Source]; !seen {
			first[m.Source] = len(all)
			all = append(all, m)
		} else if len(m.Point) < len(all[i].Point) {
			all[i] = m
		}
	}
	return all
}

// diskKind returns whether a disk rotates. Virtual disks often report that they do without knowing.
func (h *host) diskKind(m *procfs.Mount) string {
	name := h.blockDevice(m)
	if name == "" {
		return ""
	}
	rotational, ok := h.readInt(path.Join("/sys/block", name, "queue/rotational"))
	virtual := strings.HasPrefix(name, "vd") || strings.HasPrefix(name, "xvd")
	switch {
	case ok && rotational == 0:
		return "ssd"
	case ok && !virtual:
		return "hdd"
	default:
		return ""
	}
}

// blockDevice returns the name in /sys/block of the disk that contains a file system, or "".
func (h *host) blockDevice(m *procfs.Mount) string {
	for _, name := range h.readDir("/sys/block") {
		if name == path.Base(m.Source) || h.readText(path.Join("/sys/block", name, "dev")) == m.Device {
			return name
		}
		for _, part := range h.readDir(path.Join("/sys/block", name)) {
			if strings.HasPrefix(part, name) && (part == path.Base(m.Source) || h.readText(path.Join("/sys/block", name, part, "dev")) == m.Device) {
				return name
			}
		}
	}
	return ""
}
