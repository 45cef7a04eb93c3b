package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/muster-dev/muster"
)

const (
	minSpace     muster.Size = 1 << 30  // with less, tasks fail
	lowSpace     muster.Size = 10 << 30 // environments and images need more
	minInodes                = 10_000
	testFileSize             = 64 << 10 // bytes of the test file
)

func (r *inspection) data(context.Context) []Finding {
	info, err := os.Stat(r.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return r.missingData()
	case errors.Is(err, fs.ErrPermission):
		return single("data", Problem, "run the doctor as the user of the worker", "this user has no permission to read %s", r.Data)
	case err != nil:
		return single("data", Problem, "", "cannot read the data dir: %s", err)
	case !info.IsDir():
		return single("data", Problem, "use another one with --data", "%s is not a directory", r.Data)
	case !ownedByUser(info):
		if os.Geteuid() == 0 {
			return single("data", Note, "", "%s belongs to another user; a worker that runs as root can use it", r.Data)
		}
		return single("data", Problem, "run the worker as that user, or use another directory with --data", "%s belongs to another user", r.Data)
	case info.Mode().Perm()&0o066 != 0:
		return single("data", Warning, "`chmod go-rw "+r.Data+"`", "%s is open to other users (%s)", r.Data, info.Mode().Perm())
	}
	return single("data", OK, "", "%s exists and belongs to this user (%s)", r.Data, info.Mode().Perm())
}

// missingData checks whether the data dir can be created.
func (r *inspection) missingData() []Finding {
	parent := nearestExisting(r.Data)
	if info, err := os.Stat(parent); err == nil && !info.IsDir() {
		return single("data", Problem, "use another one with --data", "cannot create %s: %s is not a directory", r.Data, parent)
	}
	if fsType := r.facts().Disk.Type; slices.Contains(kernelFilesystems, fsType) {
		return single("data", Problem, "use a directory on a disk with --data", "%s does not exist, and cannot be created in %s, a file system of the kernel (%s)", r.Data, parent, fsType)
	}
	if err := checkMkdir(parent); err != nil {
		return single("data", Problem, "`sudo install -d -m 0700 -o \"$(id -un)\" "+r.Data+"`, or use another directory with --data", "%s does not exist, and this user cannot create it: %s", r.Data, pathErrorCause(err))
	}
	if err := tryMkdir(parent); err != nil {
		return single("data", Problem, "use another directory with --data", "%s does not exist, and cannot be created in %s: %s", r.Data, parent, pathErrorCause(err))
	}
	return single("data", Note, "`mkdir -p -m 0700 "+r.Data+"`; a worker creates it at its first start too", "%s does not exist yet", r.Data)
}

// tryMkdir creates a directory and removes it: permission is not enough in directories that are not on a disk, such as /proc.
func tryMkdir(in string) error {
	dir, err := os.MkdirTemp(in, ".doctor-*")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// nearestExisting returns the path itself, or its nearest ancestor that exists.
func nearestExisting(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// write tries the writes of a worker.
func (r *inspection) write(context.Context) []Finding {
	if info, err := os.Stat(r.Data); err != nil || !info.IsDir() {
		return nil // data reports it
	}
	elapsed, err := tryWrite(r.Data)
	fix := "free space: `du -xh --max-depth=2 " + r.Data + " | sort -h | tail`"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return single("write", Problem, fix, "cannot write to %s: %s", r.Data, pathErrorCause(err))
	case errors.Is(err, syscall.EROFS):
		return single("write", Problem, "find out with `dmesg` why its file system is read-only, or use another directory with --data", "%s is on a read-only file system", r.Data)
	case errors.Is(err, fs.ErrPermission):
		return single("write", Problem, "run the worker as its owner, or use another directory with --data", "this user has no permission to write to %s", r.Data)
	case err != nil:
		return single("write", Problem, "check the disk: `dmesg`", "writing to %s fails: %s", r.Data, pathErrorCause(err))
	case elapsed > r.effectiveTimeouts().disk:
		return single("write", Warning, "move the data dir to a faster disk with --data", "writing and syncing a file of %d KiB took %s", testFileSize>>10, formatMillis(elapsed))
	}
	return single("write", OK, "", "a file of %d KiB was written, synced and removed in %s", testFileSize>>10, formatMillis(elapsed))
}

func tryWrite(dir string) (elapsed time.Duration, err error) {
	start := time.Now()
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err != nil {
		return 0, err
	}
	_, err = f.Write(make([]byte, testFileSize))
	err = errors.Join(err, f.Sync(), f.Close())
	return time.Since(start), errors.Join(err, os.Remove(f.Name()))
}

// pathErrorCause returns an error without its path.
func pathErrorCause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

func (r *inspection) space(context.Context) []Finding {
	d := r.facts().Disk
	if d.Total == 0 {
		return single("space", Warning, "", "the free space of %s is unknown", r.Data)
	}
	status, fix := OK, ""
	const advice = "free space, or use a directory on another disk with --data"
	switch {
	case d.Free < minSpace:
		status, fix = Problem, advice
	case d.Free < lowSpace:
		status, fix = Warning, advice+": Python environments and images need tens of GiB"
	}
	list := single("space", status, fix, "%s of %s are free", d.Free, d.Total)
	usage := diskUsage(r.Data)
	if usage.InodesTotal > 0 && usage.InodesFree < minInodes {
		list = append(list, newFinding("inodes", Problem, "remove small files: `find "+nearestExisting(r.Data)+" -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail`", "%d of %d inodes are free: a Python environment needs more", usage.InodesFree, usage.InodesTotal))
	}
	return list
}

// diskUsage returns the use of the file system of a path, which need not exist; zero if it is unknown.
func diskUsage(path string) disk.UsageStat {
	if u, err := disk.Usage(nearestExisting(path)); err == nil {
		return *u
	}
	return disk.UsageStat{}
}

// kernelFilesystems are the types of the kernel's virtual file systems.
var kernelFilesystems = []string{"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore", "devpts"} //nolint:gochecknoglobals // a constant

func (r *inspection) filesystem(context.Context) []Finding {
	d := r.facts().Disk
	fsType := d.Type
	switch {
	case fsType == "":
		return single("filesystem", Note, "", "the file system of %s is unknown", r.Data)
	case d.ReadOnly:
		return single("filesystem", Problem, "use a directory on another disk with --data", "%s is on a read-only file system (%s)", r.Data, fsType)
	case slices.Contains(kernelFilesystems, fsType):
		return single("filesystem", Problem, "use a directory on a disk with --data", "%s is on a file system of the kernel (%s), which stores no files", r.Data, fsType)
	case slices.Contains([]string{"tmpfs", "ramfs"}, fsType):
		return single("filesystem", Warning, "use a directory on a disk with --data", "%s is in memory (%s): a restart of the machine loses the worker's identity and results that were not uploaded, and files count as memory", r.Data, fsType)
	case slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "9p", "fuse.sshfs", "fuse.glusterfs"}, fsType):
		return single("filesystem", Warning, "use a directory on a disk of this machine with --data", "%s is on a network file system (%s): locks and sockets may not work there, and all writes of tasks go over the network", r.Data, fsType)
	case fsType == "overlay":
		return single("filesystem", Note, "in a container, mount a volume there", "%s is in a container's own layer: the worker's data is lost with the container", r.Data)
	}
	return single("filesystem", OK, "", "%s is on %s", r.Data, strings.TrimSpace(fsType+" "+d.Device))
}

// secrets checks the permissions of files with keys, of the worker and of a server on this machine.
func (r *inspection) secrets(context.Context) []Finding {
	var open []string
	seen := 0
	for _, pattern := range []string{
		filepath.Join(r.Data, "identity.json*"), filepath.Join(r.Data, "reports.db"), filepath.Join(r.Data, "shim", "*", "key"), filepath.Join(r.Server.Data, "muster.db"), filepath.Join(r.Server.Data, "muster.db-wal"), filepath.Join(r.Server.Data, "tls", "ca.key"),
	} {
		if !filepath.IsAbs(pattern) {
			continue // no server runs here
		}
		files, _ := filepath.Glob(pattern) // the pattern is valid
		for _, path := range files {
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			seen++
			if openToOthers(info) {
				open = append(open, path)
			}
		}
	}
	switch {
	case len(open) > 0:
		return single("secrets", Problem, "`chmod go= "+strings.Join(open, " ")+"`", "files with keys are open to other users: %s", strings.Join(open, ", "))
	case seen == 0:
		return nil
	}
	return single("secrets", OK, "", "only their owner can access the %d files with keys", seen)
}
