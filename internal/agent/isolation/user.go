package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// lookupUser returns the user of tasks, by name or number, with its groups.
func lookupUser(name string) (*run.User, error) {
	if os.Geteuid() != 0 {
		return nil, muster.Errorf(muster.Invalid, "only a worker that runs as root can run its tasks as another user: omit --task-user")
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, muster.Errorf(muster.Invalid, "no such user: %s; create it with useradd --system %s", name, name)
		}
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot read the groups of the user %s: %w", name, err)
	}
	found := &run.User{Groups: []uint32{}, Name: u.Username}
	if found.UID, err = parseID(u.Uid); err == nil {
		found.GID, err = parseID(u.Gid)
	}
	for _, g := range groups {
		n, e := parseID(g)
		found.Groups, err = append(found.Groups, n), errors.Join(err, e)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot run tasks as %s: %w", name, err)
	}
	if found.UID == 0 {
		return nil, muster.Errorf(muster.Invalid, "the user %s is root: use a --task-user without privileges, or root itself", name)
	}
	return found, nil
}

// CanReach returns a function that reports whether the user of tasks can reach a folder; nil if tasks run as the worker's own user.
// The function is safe for concurrent use, and caches its results.
func (c *Config) CanReach() func(dir string) bool {
	ra, err := c.runAs(c.exposedPaths(c.paths(false)))
	if err != nil {
		return nil // Check reports it
	}
	users := ra.sampleUsers()
	if len(users) == 0 {
		return nil
	}
	u := users[0]
	var mu sync.Mutex
	known := map[string]bool{}
	return func(dir string) bool {
		mu.Lock()
		defer mu.Unlock()
		if _, ok := known[dir]; !ok {
			known[dir] = ra.canReach(u, dir)
		}
		return known[dir]
	}
}

// canReach reports whether a user can reach a folder. It starts a process only if modes do not decide it.
func (t *runAs) canReach(u *run.User, dir string) bool {
	if !filepath.IsAbs(dir) || !exists(dir) {
		return false
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil && target == filepath.Clean(dir) && untraversable(u, target+"/") == "" {
		return true
	}
	return tryReach(u, t.view, dir) == nil
}

func parseID(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// chownTree makes u the owner of a folder and all that is in it. Concurrent changes cannot make it change files outside: it does not
// follow links, and refuses a file with other names elsewhere.
func chownTree(dir string, u *run.User) error {
	g := treeChowner{u: u}
	if err := g.walk(dir); err != nil || g.linked == nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for stat, n := range g.linked {
		if n.seen < stat.nlink {
			return fmt.Errorf("cannot make the task's user the owner of %s: it has other names elsewhere", filepath.Join(dir, n.path))
		}
		if err := root.Lchown(n.path, int(u.UID), int(u.GID)); err != nil {
			return err
		}
	}
	return nil
}

// treeChowner changes owners in a folder, except of files with several names, which it counts.
type treeChowner struct {
	u      *run.User
	linked map[fileStat]*linkCount
}

// fileStat identifies a file and its owner.
type fileStat struct {
	uid, gid uint32
	dev, ino uint64
	nlink    uint64
}

func (g *treeChowner) walkPaths(dir string) error {
	return walkTree(dir, func(root *os.Root, path string, d fs.DirEntry, stat fileStat) error {
		if g.ownedOrLinked(path, stat, d.IsDir()) {
			return nil
		}
		return root.Lchown(path, int(g.u.UID), int(g.u.GID))
	})
}

// ownedOrLinked reports whether a file is the user's already, or has several names and was counted.
func (g *treeChowner) ownedOrLinked(path string, stat fileStat, isDir bool) bool {
	if stat.uid == g.u.UID && stat.gid == g.u.GID {
		return true
	}
	if isDir || stat.nlink == 1 {
		return false
	}
	if g.linked == nil {
		g.linked = map[fileStat]*linkCount{}
	}
	n := g.linked[stat]
	if n == nil {
		n = &linkCount{path: path}
		g.linked[stat] = n
	}
	n.seen++
	return true
}

// linkCount counts the names of a file that are in a folder.
type linkCount struct {
	path string // one of them
	seen uint64
}

// walkTree calls fn for a folder and all that is in it.
func walkTree(dir string, fn func(root *os.Root, path string, d fs.DirEntry, stat fileStat) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return ignoreNotExist(err)
		}
		info, err := d.Info()
		if err != nil {
			return ignoreNotExist(err)
		}
		stat, _ := fileStatOf(info)
		return fn(root, path, d, stat)
	})
}

// shareWithGroup lets all members of a group change a folder and all that is and will be in it. Tasks may change it at the same
// time: a file that was removed meanwhile is no error.
func shareWithGroup(dir string, gid uint32) error {
	const groupBits = 0o070
	return walkTree(dir, func(root *os.Root, path string, d fs.DirEntry, stat fileStat) error {
		info, err := d.Info()
		if err != nil || d.Type()&fs.ModeSymlink != 0 || stat.nlink > 1 && !d.IsDir() {
			return ignoreNotExist(err)
		}
		mode := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSticky) | info.Mode()&0o700>>3
		if d.IsDir() {
			mode |= groupBits | fs.ModeSetgid
		}
		if stat.gid != gid {
			err = root.Lchown(path, -1, int(gid))
		}
		if err == nil && (stat.gid != gid || info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != mode) {
			err = root.Chmod(path, mode&^fs.ModeSetuid)
		}
		return ignoreNotExist(err)
	})
}

// chownAll makes u the owner of a folder of the worker and all that is in it, even of files with other names.
func chownAll(dir string, u *run.User) error {
	return walkTree(dir, func(root *os.Root, path string, _ fs.DirEntry, stat fileStat) error {
		if stat.uid == u.UID && stat.gid == u.GID {
			return nil
		}
		return ignoreNotExist(root.Lchown(path, int(u.UID), int(u.GID)))
	})
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// allowTraverse lets other users pass through the folders from top, which is the worker's own, to path.
func allowTraverse(top, path string) error {
	rest, err := filepath.Rel(top, path)
	if err != nil || !filepath.IsLocal(rest) {
		return fmt.Errorf("%s is not in %s", path, top)
	}
	dir := top
	for _, name := range append([]string{"."}, strings.Split(rest, string(filepath.Separator))...) {
		dir = filepath.Join(dir, name)
		if err := addMode(dir, 0o001); err != nil {
			return err
		}
	}
	return nil
}

func addMode(path string, bits fs.FileMode) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm()&bits == bits {
		return nil
	}
	return os.Chmod(path, st.Mode().Perm()|bits)
}

// allowRead lets other users read a folder of the worker and all that is in it.
func allowRead(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		bits := fs.FileMode(0o004)
		if info.Mode().Perm()&0o100 != 0 {
			bits |= 0o001
		}
		return addMode(path, bits)
	})
}
