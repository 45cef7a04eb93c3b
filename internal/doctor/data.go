package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/muster-dev/muster"
)

const (
	minSpace     muster.Size = 1 << 30  // without it no task of any use runs
	lowSpace     muster.Size = 10 << 30 // environments and images need more
	minInodes                = 10_000
	testFileSize             = 64 << 10 // bytes of the file that is tried
)

// data looks at the worker's data dir.
func (r *inspection) data(context.Context) []Finding {
	info, err := os.Stat(r.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return r.missingData()
	case errors.Is(err, fs.ErrPermission):
		return single("data", Problem, "run the doctor as the user whom the worker runs as", "this user may not look into %s", r.Data)
	case err != nil:
		return single("data", Problem, "", "the data dir cannot be looked at: %s", err)
	case !info.IsDir():
		return single("data", Problem, "name another one with --data", "%s is no folder", r.Data)
	case !ownedByUser(info):
		if os.Geteuid() == 0 {
			return single("data", Note, "", "%s is another user's; root's worker can use it all the same", r.Data)
		}
		return single("data", Problem, "run the worker as that user, or name another folder with --data", "%s is another user's", r.Data)
	case info.Mode().Perm()&0o066 != 0:
		f := newFinding("data", Warning, "`chmod go-rw "+r.Data+"`", "%s is open to other users (%s)", r.Data, info.Mode().Perm())
		f.repair = removeModeBits([]string{r.Data}, 0o066)
		return []Finding{f}
	}
	return single("data", OK, "", "%s is there, and this user's (%s)", r.Data, info.Mode().Perm())
}

// missingData says whether the data dir can be made.
func (r *inspection) missingData() []Finding {
	parent := nearestExisting(r.Data)
	if info, err := os.Stat(parent); err == nil && !info.IsDir() {
		return single("data", Problem, "name another one with --data", "%s cannot be made: %s is no folder", r.Data, parent)
	}
	if fsType := r.facts().Disk.Type; slices.Contains(kernelFilesystems, fsType) {
		return single("data", Problem, "name a folder on a disk with --data", "%s is not there, and cannot be made in %s, which shows the kernel (%s)", r.Data, parent, fsType)
	}
	if err := checkMkdir(parent); err != nil {
		return single("data", Problem, "`sudo install -d -m 0700 -o \"$(id -un)\" "+r.Data+"`, or name another folder with --data", "%s is not there, and this user cannot make it: %s", r.Data, pathErrorCause(err))
	}
	if err := tryMkdir(parent); err != nil {
		return single("data", Problem, "name another folder with --data", "%s is not there, and cannot be made in %s: %s", r.Data, parent, pathErrorCause(err))
	}
	f := newFinding("data", Note, "`mkdir -p -m 0700 "+r.Data+"`; a worker makes it, too, when it first runs", "%s is not there yet", r.Data)
	f.repair = &repair{description: "make the folder " + r.Data, run: func(context.Context) error { return os.MkdirAll(r.Data, 0o700) }}
	return []Finding{f}
}

// tryMkdir makes a folder in another and removes it: that this user has the right to says nothing of folders that
// are not on a disk, such as /proc.
func tryMkdir(in string) error {
	dir, err := os.MkdirTemp(in, ".doctor-*")
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// nearestExisting is the path itself, or the nearest one above it that is there.
func nearestExisting(path string) string {
	for {
		if _, err := os.Lstat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// write tries what a worker does all the time.
func (r *inspection) write(context.Context) []Finding {
	if info, err := os.Stat(r.Data); err != nil || !info.IsDir() {
		return nil // data tells of it
	}
	elapsed, err := tryWrite(r.Data)
	fix := "make room: `du -xh --max-depth=2 " + r.Data + " | sort -h | tail`"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return single("write", Problem, fix, "nothing can be written to %s: %s", r.Data, pathErrorCause(err))
	case errors.Is(err, syscall.EROFS):
		return single("write", Problem, "look with `dmesg` why its file system is read-only, or name another folder with --data", "%s is on a file system that is read-only", r.Data)
	case errors.Is(err, fs.ErrPermission):
		return single("write", Problem, "run the worker as the user who owns it, or name another folder with --data", "this user may not write to %s", r.Data)
	case err != nil:
		return single("write", Problem, "look at the disk: `dmesg`", "writing to %s fails: %s", r.Data, pathErrorCause(err))
	case elapsed > r.effectiveTimeouts().disk:
		return single("write", Warning, "put the data dir on a faster disk with --data", "a file of %d KiB took %s to be on disk", testFileSize>>10, formatMillis(elapsed))
	}
	return single("write", OK, "", "a file of %d KiB was written, on disk and removed in %s", testFileSize>>10, formatMillis(elapsed))
}

// tryWrite writes a file, has it put on disk and removes it.
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

// pathErrorCause is what happened, without the path.
func pathErrorCause(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// space looks at how much room there is.
func (r *inspection) space(context.Context) []Finding {
	d := r.facts().Disk
	if d.Total == 0 {
		return single("space", Warning, "", "how much room %s has is not known", r.Data)
	}
	status, fix := OK, ""
	const advice = "make room, or name a folder on another disk with --data"
	switch {
	case d.Free < minSpace:
		status, fix = Problem, advice
	case d.Free < lowSpace:
		status, fix = Warning, advice+": Python environments and images need tens of GiB"
	}
	list := single("space", status, fix, "%s of %s are free", d.Free, d.Total)
	free, all := inodes(nearestExisting(r.Data))
	if all > 0 && free < minInodes {
		list = append(list, newFinding("inodes", Problem, "remove small files: `find "+nearestExisting(r.Data)+" -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail`", "room for %d more files, of %d: a Python environment has more", free, all))
	}
	return list
}

// kernelFilesystems are the types of file systems that show the kernel.
var kernelFilesystems = []string{"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore", "devpts"} //nolint:gochecknoglobals // a constant

// filesystem looks at what the data dir is on.
func (r *inspection) filesystem(context.Context) []Finding {
	d := r.facts().Disk
	fsType := d.Type
	switch {
	case fsType == "":
		return single("filesystem", Note, "", "what file system %s is on is not known", r.Data)
	case d.ReadOnly:
		return single("filesystem", Problem, "name a folder on another disk with --data", "%s is on a file system that is read-only (%s)", r.Data, fsType)
	case slices.Contains(kernelFilesystems, fsType):
		return single("filesystem", Problem, "name a folder on a disk with --data", "%s is no place for files: it shows the kernel (%s)", r.Data, fsType)
	case slices.Contains([]string{"tmpfs", "ramfs"}, fsType):
		return single("filesystem", Warning, "name a folder on a disk with --data", "%s is in memory (%s): a restart of the machine loses the worker's identity and what it has not handed over, and files count as memory", r.Data, fsType)
	case slices.Contains([]string{"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "beegfs", "9p", "fuse.sshfs", "fuse.glusterfs"}, fsType):
		return single("filesystem", Warning, "name a folder on a disk of this machine with --data", "%s is on a network file system (%s): locks and sockets may not work there, and all that tasks write goes over the network", r.Data, fsType)
	case fsType == "overlay":
		return single("filesystem", Note, "in a container, mount a volume there", "%s is in a container's own layer: what the worker keeps goes with the container", r.Data)
	}
	return single("filesystem", OK, "", "%s is on %s", r.Data, strings.TrimSpace(fsType+" "+d.Device))
}

// secrets looks at the files with keys in them, of the worker and of a server on this machine.
func (r *inspection) secrets(context.Context) []Finding {
	var fixable, foreign []string
	seen := 0
	for _, pattern := range []string{
		filepath.Join(r.Data, "identity.json*"), filepath.Join(r.Data, "reports.db"), filepath.Join(r.Data, "shim", "*", "key"), filepath.Join(r.Server.Data, "muster.db"), filepath.Join(r.Server.Data, "muster.db-wal"),
	} {
		if !filepath.IsAbs(pattern) {
			continue // no server runs here
		}
		files, _ := filepath.Glob(pattern) // the pattern is right
		for _, path := range files {
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			seen++
			switch {
			case openToOthers(info) && ownedByUser(info):
				fixable = append(fixable, path)
			case openToOthers(info):
				foreign = append(foreign, path)
			}
		}
	}
	if len(fixable)+len(foreign) > 0 {
		all := slices.Concat(fixable, foreign)
		f := newFinding("secrets", Problem, "`chmod go= "+strings.Join(all, " ")+"`", "open to other users, and with keys in them: %s", strings.Join(all, ", "))
		if len(fixable) > 0 {
			f.repair = removeModeBits(fixable, 0o077)
		}
		return []Finding{f}
	}
	if seen == 0 {
		return nil
	}
	return single("secrets", OK, "", "%d files with keys in them are for their owner only", seen)
}

// removeModeBits takes rights off files.
func removeModeBits(paths []string, bits fs.FileMode) *repair {
	return &repair{description: "close to other users: " + strings.Join(paths, ", "), run: func(context.Context) error {
		var errs []error
		for _, path := range paths {
			info, err := os.Lstat(path)
			if err == nil && info.Mode()&fs.ModeSymlink == 0 {
				err = os.Chmod(path, info.Mode().Perm()&^bits)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}}
}

// plural writes a number of things.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
