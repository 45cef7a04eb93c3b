package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// findParent returns the group in which the worker's group can be created, and its usable controllers. It changes nothing.
// The error is for the worker's owner.
func (t *hierarchy) findParent() (dir string, controllers []string, err error) {
	if !t.unified {
		if err := checkWritable(t.self, "cgroup.procs"); err != nil {
			return "", nil, fmt.Errorf("tasks have no control groups for %s: %w", strings.Join(t.controllers, ", "), err)
		}
		return t.self, t.controllers, nil
	}
	if isRootGroup(t.self) && !intersects(t.controllers, supportedControllers) {
		return "", nil, errNoControllers
	}
	if t.kernelTooOld {
		return "", nil, errors.New("tasks have no control groups: version 2 of them needs Linux 5.7 or newer")
	}
	own := t.self
	if strings.HasSuffix(own, workerSuffix) {
		own = filepath.Dir(own) // this worker moved there before it was restarted
	}
	if above := filepath.Dir(own); own != t.mount && !delegated(own) && delegated(above) && !limited(own) {
		// The service manager starts the worker in a subgroup of the group that it delegated (DelegateSubgroup= of systemd).
		// Every start has to use the delegated group: with groups below the subgroup, that could get no process again.
		if controllers, err = t.usableControllers(above, false); err == nil {
			return above, controllers, nil
		}
	}
	var first error
	for dir = own; ; dir = filepath.Dir(dir) {
		controllers, err = t.usableControllers(dir, dir == own)
		if err == nil {
			return dir, controllers, nil
		}
		if first == nil {
			first = err
		}
		if dir == t.mount || limited(dir) {
			// Above it the worker's own limits would not apply to its tasks.
			return "", nil, fmt.Errorf("tasks have no control groups: %w", first)
		}
	}
}

// errNoControllers means that version 2 is mounted beside version 1, which has the controllers.
var errNoControllers = errors.New("version 2 of control groups has no controllers here")

// usableControllers returns the controllers for groups in dir, or an error if the worker may not create groups there.
func (t *hierarchy) usableControllers(dir string, own bool) ([]string, error) {
	for _, file := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		if err := checkWritable(dir, file); err != nil {
			return nil, fmt.Errorf("%w: run the worker as a service with Delegate=yes, or in systemd-run --user --scope -p Delegate=yes", err)
		}
	}
	var controllers []string
	for _, c := range readWords(filepath.Join(dir, "cgroup.controllers")) {
		if slices.Contains(supportedControllers, c) {
			controllers = append(controllers, c)
		}
	}
	if len(controllers) == 0 {
		return nil, fmt.Errorf("%s has no controllers", dir)
	}
	if isRootGroup(dir) {
		return controllers, nil
	}
	pids, err := readProcs(dir)
	if err != nil {
		return nil, err
	}
	mayMove := own && (dir == t.mount || delegated(dir) || runOurBinary(pids))
	if len(pids) > 0 && !mayMove {
		return nil, fmt.Errorf("other processes are in the worker's control group %s", dir)
	}
	return controllers, nil
}

// limited reports whether a group of version 2 has a limit of memory or processor time.
func limited(dir string) bool {
	for _, file := range []string{"memory.max", "cpu.max"} {
		if w := readWords(filepath.Join(dir, file)); len(w) > 0 && w[0] != "max" {
			return true
		}
	}
	return false
}

// checkWritable opens a control file for writing, and returns the error.
func checkWritable(dir, file string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// runOurBinary reports whether all processes run the worker's program: the worker and its shims.
func runOurBinary(pids []int) bool {
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(pids, func(pid int) bool {
		exe, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
		return err != nil || !os.SameFile(self, exe)
	})
}
