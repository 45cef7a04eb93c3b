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
	who := &run.User{Groups: []uint32{}}
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
		return nil, muster.Errorf(muster.Invalid, "tasks must not run as the superuser %s: give --task-user a user without privileges", name)
	}
	return who, nil
}

// Reach returns what tells whether the user of tasks can come to a folder; nil if
// tasks run as the worker's own. It may be called at any time, and keeps its answers.
func (c *Config) Reach() func(dir string) bool {
	if c.TaskUser == "" {
		return nil
	}
	u, err := lookUp(c.TaskUser)
	if err != nil {
		return nil // Check says so
	}
	var mu sync.Mutex
	known := map[string]bool{}
	return func(dir string) bool {
		mu.Lock()
		defer mu.Unlock()
		if _, asked := known[dir]; !asked {
			known[dir] = reach(u, dir) == nil
		}
		return known[dir]
	}
}

func id(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// give makes u the owner of a folder with all that is in it. Nothing that is done
// to the folder meanwhile makes it reach outside: links are not followed, and a
// file with other names, which may lie anywhere, is refused.
func give(dir string, u *run.User) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		owned, alone := owner(info, u)
		if owned {
			return nil
		}
		if !alone && !d.IsDir() {
			return fmt.Errorf("%s has other names elsewhere, and cannot be given to the user of tasks", filepath.Join(dir, path))
		}
		return root.Lchown(path, int(u.UID), int(u.GID))
	})
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
