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
)

// Disk is a file system on a disk of this machine.
type Disk struct {
	Path     string      `json:"path"`               // the data dir, or where the file system is mounted
	Device   string      `json:"device,omitempty"`   // such as /dev/sda1
	Type     string      `json:"type,omitempty"`     // such as ext4
	Kind     string      `json:"kind,omitempty"`     // ssd or hdd, where that is told
	ReadOnly bool        `json:"readonly,omitempty"` //
	Total    muster.Size `json:"total,omitempty"`
	Free     muster.Size `json:"free,omitempty"` // for this user
}

const maxDisks = 64

// disk is the file system that holds the data dir, which need not be there yet.
func (h *host) disk(ctx context.Context, dir string, mounts []mount) (Disk, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Disk{}, fmt.Errorf("the data dir is unknown: %w", err)
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
		return d, fmt.Errorf("the size of the disk under %s is unknown: %w", existing, err)
	}
	d.Total, d.Free = muster.Size(u.Total), muster.Size(u.Free)
	if target, err := filepath.EvalSymlinks(existing); err == nil {
		existing = target
	}
	if m := mountOf(mounts, existing); m != nil {
		d.Device, d.Type, d.ReadOnly, d.Kind = m.device, m.fstype, m.readonly, h.diskKind(m)
	}
	return d, nil
}

// disks are the file systems on local disks, each once.
func (h *host) disks(ctx context.Context, mounts []mount) []Disk {
	disks := []Disk{}
	for _, m := range localMounts(mounts) {
		if len(disks) == maxDisks || ctx.Err() != nil {
			break
		}
		if info, err := os.Stat(m.point); err != nil || !info.IsDir() {
			continue // a container's /etc/hosts is a mount, too
		}
		u, err := gopsdisk.UsageWithContext(ctx, m.point)
		if err != nil || u.Total == 0 {
			continue
		}
		disks = append(disks, Disk{
			Path: m.point, Device: m.device, Type: m.fstype, Kind: h.diskKind(&m), ReadOnly: m.readonly,
			Total: muster.Size(u.Total), Free: muster.Size(u.Free),
		})
	}
	slices.SortFunc(disks, func(a, b Disk) int { return cmp.Compare(a.Path, b.Path) })
	return disks
}

// mount is a mounted file system.
type mount struct {
	number   string // the device's, as major:minor
	point    string
	device   string
	fstype   string
	readonly bool
}

func (h *host) mounts(ctx context.Context) []mount {
	if h.os == "linux" {
		return parseMounts(h.readText("/proc/self/mountinfo"))
	}
	parts, err := gopsdisk.PartitionsWithContext(ctx, false)
	if err != nil {
		return nil
	}
	var all []mount
	for _, p := range parts {
		all = append(all, mount{point: p.Mountpoint, device: p.Device, fstype: p.Fstype, readonly: slices.Contains(p.Opts, "ro")})
	}
	return all
}

// parseMounts reads mountinfo; see proc_pid_mountinfo(5).
func parseMounts(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 2 {
			continue
		}
		all = append(all, mount{
			number: f[2], point: unescape(f[4]), device: unescape(g[1]), fstype: g[0],
			readonly: slices.Contains(strings.Split(f[5], ","), "ro"),
		})
	}
	return all
}

// unescape undoes the kernel's way to write white space and backslashes.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// mountOf returns the mount that a path is on. A later mount covers an earlier one
// on the same folder.
func mountOf(mounts []mount, name string) *mount {
	var best *mount
	for i := range mounts {
		m := &mounts[i]
		rest, ok := strings.CutPrefix(name, m.point)
		inside := ok && (rest == "" || strings.HasSuffix(m.point, "/") || strings.HasPrefix(rest, "/") || os.IsPathSeparator(rest[0]))
		if inside && (best == nil || len(m.point) >= len(best.point)) {
			best = m
		}
	}
	return best
}

// localMounts picks the file systems on disks, each once, where it is mounted with the
// shortest path: others are views of parts of it.
func localMounts(mounts []mount) []mount {
	first := map[string]int{}
	var all []mount
	for _, m := range mounts {
		disk := strings.HasPrefix(m.device, "/dev/") || m.fstype == "zfs" || filepath.VolumeName(m.device) != ""
		if !disk || strings.HasPrefix(m.device, "/dev/loop") || m.fstype == "squashfs" || m.fstype == "iso9660" || m.fstype == "devfs" {
			continue
		}
		if i, seen := first[m.device]; !seen {
			first[m.device] = len(all)
			all = append(all, m)
		} else if len(m.point) < len(all[i].point) {
			all[i] = m
		}
	}
	return all
}

// diskKind says whether a disk turns. What a hypervisor lends often says so
// without knowing.
func (h *host) diskKind(m *mount) string {
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

// blockDevice returns the name in /sys/block of the disk that a file system is
// on, or "".
func (h *host) blockDevice(m *mount) string {
	for _, name := range h.readDir("/sys/block") {
		if name == path.Base(m.device) || h.readText(path.Join("/sys/block", name, "dev")) == m.number {
			return name
		}
		for _, part := range h.readDir(path.Join("/sys/block", name)) {
			if strings.HasPrefix(part, name) && (part == path.Base(m.device) || h.readText(path.Join("/sys/block", name, part, "dev")) == m.number) {
				return name
			}
		}
	}
	return ""
}
