package probe

import (
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Control groups limit the resources of a container or a service; the lowest limit of a group and its ancestors applies. See the
// kernel's cgroup-v2.rst and cgroup-v1/.

const cgroupRoot = "/sys/fs/cgroup"

// ownCgroups are the control groups of this process by controller, "" for version 2.
type ownCgroups map[string]string

// parseOwnCgroups parses /proc/self/cgroup. Without a line for version 2 that is the root.
func parseOwnCgroups(text string) ownCgroups {
	g := ownCgroups{"": "/"}
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		for c := range strings.SplitSeq(controllers, ",") {
			g[c] = path.Clean("/" + group)
		}
	}
	return g
}

// limits reads control files in a group and all its ancestors. In a container the group's own name may be that outside; then the
// root has the container's limits.
func (h *host) limits(mount, group string, files ...string) [][]string {
	var all [][]string
	for dir := group; ; dir = path.Dir(dir) {
		values := make([]string, len(files))
		known := false
		for i, file := range files {
			values[i] = h.readText(path.Join(mount, dir, file))
			known = known || values[i] != ""
		}
		if known {
			all = append(all, values)
		}
		if dir == "/" {
			return all
		}
	}
}

// cgroupCPUs returns how many cores this process's groups let it use.
func (h *host) cgroupCPUs() (cores float64, ok bool) {
	own := parseOwnCgroups(h.readText("/proc/self/cgroup"))
	cores = math.Inf(1)
	for _, limit := range h.limits(cgroupRoot, own[""], "cpu.max") { // such as "150000 100000" or "max 100000"
		quota, period, _ := strings.Cut(limit[0], " ")
		cores = math.Min(cores, quotaCPUs(quota, period))
	}
	if group, v1 := own["cpu"]; v1 {
		for _, limit := range h.limits(path.Join(cgroupRoot, "cpu"), group, "cpu.cfs_quota_us", "cpu.cfs_period_us") {
			cores = math.Min(cores, quotaCPUs(limit[0], limit[1]))
		}
	}
	return cores, !math.IsInf(cores, 1)
}

// quotaCPUs returns quota/period, or infinity if there is no limit.
func quotaCPUs(quota, period string) float64 {
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || !(q > 0 && p > 0) || math.IsInf(q, 0) || math.IsInf(p, 0) {
		return math.Inf(1)
	}
	return q / p
}

// unlimited is the least value of version 1 that means no limit: the greatest number of bytes in whole pages.
const unlimited = math.MaxInt64 &^ (1<<16 - 1)

// cgroupMemory returns how much memory this process's groups let it use.
func (h *host) cgroupMemory() (least muster.Size, ok bool) {
	own := parseOwnCgroups(h.readText("/proc/self/cgroup"))
	limits := h.limits(cgroupRoot, own[""], "memory.max")
	if group, v1 := own["memory"]; v1 {
		limits = append(limits, h.limits(path.Join(cgroupRoot, "memory"), group, "memory.limit_in_bytes")...)
	}
	least = math.MaxInt64
	for _, limit := range limits {
		if n, err := strconv.ParseInt(limit[0], 10, 64); err == nil && n > 0 && n < unlimited {
			least, ok = min(least, muster.Size(n)), true
		}
	}
	return least, ok
}
