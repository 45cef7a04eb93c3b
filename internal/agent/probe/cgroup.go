package probe

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
)

// Control groups (version 2) limit what a container or a service may use; the
// smallest limit on the way up holds. See the kernel's cgroup-v2.rst.

const cgroupRoot = "/sys/fs/cgroup"

// cgroupLimits reads a control file in this process's group and all above it.
func cgroupLimits(file string) []string {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var limits []string
	for dir := ownGroup(string(b)); ; dir = path.Dir(dir) {
		if b, err := os.ReadFile(path.Join(cgroupRoot, dir, file)); err == nil {
			limits = append(limits, strings.TrimSpace(string(b)))
		}
		if dir == "/" {
			return limits
		}
	}
}

// ownGroup finds the version 2 group in /proc/self/cgroup.
func ownGroup(text string) string {
	for line := range strings.Lines(text) {
		if group, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			return path.Clean("/" + group)
		}
	}
	return "/"
}

func cgroupCPUs() (cores float64, ok bool) { return leastCPUs(cgroupLimits("cpu.max")) }

// leastCPUs reads texts such as "150000 100000" (quota and period) and "max
// 100000".
func leastCPUs(limits []string) (cores float64, ok bool) {
	cores = math.Inf(1)
	for _, l := range limits {
		quota, period, _ := strings.Cut(l, " ")
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 {
			cores, ok = math.Min(cores, q/p), true
		}
	}
	return cores, ok
}

func cgroupMemory() (muster.Size, bool) { return leastMemory(cgroupLimits("memory.max")) }

// leastMemory reads texts such as "1073741824" and "max".
func leastMemory(limits []string) (least muster.Size, ok bool) {
	least = math.MaxInt64
	for _, l := range limits {
		if n, err := strconv.ParseInt(l, 10, 64); err == nil && n > 0 {
			least, ok = min(least, muster.Size(n)), true
		}
	}
	return least, ok
}
