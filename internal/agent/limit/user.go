package limit

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

// lookUp finds the user that tasks are to run as, by name or number, with its groups.
func lookUp(name string) (*run.User, error) {
	if os.Geteuid() != 0 {
		return nil, muster.Errorf(muster.Invalid, "only a worker that is run by root can run its tasks as another user: leave --task-user out")
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, muster.Errorf(muster.Invalid, "there is no user %s on this machine: make one with useradd --system %s", name, name)
		}
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "the groups of the user %s cannot be read: %w", name, err)
	}
	who := &run.User{Groups: []uint32{}, Name: u.Username}
	if who.UID, err = id(u.Uid); err == nil {
		who.GID, err = id(u.Gid)
	}
	for _, g := range groups {
		n, e := id(g)
		who.Groups, err = append(who.Groups, n), errors.Join(err, e)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "tasks cannot run as %s: %w", name, err)
	}
	if who.UID == 0 {
		return nil, muster.Errorf(muster.Invalid, "%s is the superuser by another name: give --task-user a user without privileges, or root", name)
	}
	return who, nil
}

// Reach returns what tells whether the user of tasks can come to a folder; nil if
// tasks run as the worker's own. It may be called at any time, and keeps its answers.
func (c *Config) Reach() func(dir string) bool {
	t, err := c.tenant(c.reachable(commonPaths(c)))
	if err != nil {
		return nil // Check says so
	}
	users := t.examples()
	if len(users) == 0 {
		return nil
	}
	u := users[0]
	var mu sync.Mutex
	known := map[string]bool{}
	return func(dir string) bool {
		mu.Lock()
		defer mu.Unlock()
		if _, asked := known[dir]; !asked {
			known[dir] = t.reach(u, dir)
		}
		return known[dir]
	}
}

// reach tells whether a user can come to a folder. It is tried only where modes do not tell.
func (t *tenant) reach(u *run.User, dir string) bool {
	if !filepath.IsAbs(dir) || !exists(dir) {
		return false
	}
	if end, err := filepath.EvalSymlinks(dir); err == nil && end == filepath.Clean(dir) && closedTo(u, end+"/") == "" {
		return true
	}
	return reach(u, t.view, dir) == nil
}

func id(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// give makes u the owner of a folder with all that is in it. Nothing that is done
// to the folder meanwhile makes it reach outside: links are not followed, and a
// file that has other names elsewhere is refused.
func give(dir string, u *run.User) error {
	g := giver{u: u}
	if err := g.walk(dir); err != nil || g.linked == nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for of, n := range g.linked {
		if n.seen < of.names {
			return fmt.Errorf("%s has other names elsewhere, and cannot be given to the user of tasks", filepath.Join(dir, n.path))
		}
		if err := root.Lchown(n.path, int(u.UID), int(u.GID)); err != nil {
			return err
		}
	}
	return nil
}

// giver gives what is in a folder, but for files with several names, which it counts.
type giver struct {
	u      *run.User
	linked map[facts]*names
}

// slowly goes through a folder by paths.
func (g *giver) slowly(dir string) error {
	return each(dir, func(root *os.Root, path string, d fs.DirEntry, of facts) error {
		if g.hasOr(path, of, d.IsDir()) {
			return nil
		}
		return root.Lchown(path, int(g.u.UID), int(g.u.GID))
	})
}

// hasOr reports whether a file is the user's, or has been counted.
func (g *giver) hasOr(path string, of facts, folder bool) bool {
	if of.uid == g.u.UID && of.gid == g.u.GID {
		return true
	}
	if folder || of.names == 1 {
		return false
	}
	if g.linked == nil {
		g.linked = map[facts]*names{}
	}
	n := g.linked[of]
	if n == nil {
		n = &names{path: path}
		g.linked[of] = n
	}
	n.seen++
	return true
}

// names counts those of a file in a folder.
type names struct {
	path string // one of them
	seen uint64
}

// each calls do for a folder and all that is in it.
func each(dir string, do func(root *os.Root, path string, d fs.DirEntry, of facts) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return ifThere(err)
		}
		info, err := d.Info()
		if err != nil {
			return ifThere(err)
		}
		of, _ := factsOf(info)
		return do(root, path, d, of)
	})
}

// share lets all members of a group change a folder with all that is in it, and will be in it. Tasks may
// be at it at the same time: what has gone meanwhile is no error.
func share(dir string, gid uint32) error {
	const forGroup = 0o070
	return each(dir, func(root *os.Root, path string, d fs.DirEntry, of facts) error {
		info, err := d.Info()
		if err != nil || d.Type()&fs.ModeSymlink != 0 || of.names > 1 && !d.IsDir() {
			return ifThere(err)
		}
		wanted := info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSticky) | info.Mode()&0o700>>3
		if d.IsDir() {
			wanted |= forGroup | fs.ModeSetgid
		}
		if of.gid != gid {
			err = root.Lchown(path, -1, int(gid))
		}
		if err == nil && (of.gid != gid || info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != wanted) {
			err = root.Chmod(path, wanted&^fs.ModeSetuid)
		}
		return ifThere(err)
	})
}

// own makes u the owner of a folder of the worker's own with all that is in it, whatever other names that has.
func own(dir string, u *run.User) error {
	return each(dir, func(root *os.Root, path string, _ fs.DirEntry, of facts) error {
		if of.uid == u.UID && of.gid == u.GID {
			return nil
		}
		return ifThere(root.Lchown(path, int(u.UID), int(u.GID)))
	})
}

func ifThere(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// lead lets other users pass through the folders from top, which is the worker's own,
// to path.
func lead(top, path string) error {
	rest, err := filepath.Rel(top, path)
	if err != nil || !filepath.IsLocal(rest) {
		return fmt.Errorf("%s is not in %s", path, top)
	}
	at := top
	for _, part := range append([]string{"."}, strings.Split(rest, string(filepath.Separator))...) {
		at = filepath.Join(at, part)
		if err := widen(at, 0o001); err != nil {
			return err
		}
	}
	return nil
}

// widen adds rights to a file's mode.
func widen(path string, rights fs.FileMode) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.Mode().Perm()&rights == rights {
		return nil
	}
	return os.Chmod(path, st.Mode().Perm()|rights)
}

// show lets other users read a folder of the worker's with all that is in it.
func show(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rights := fs.FileMode(0o004)
		if info.Mode().Perm()&0o100 != 0 {
			rights |= 0o001
		}
		return widen(path, rights)
	})
}
