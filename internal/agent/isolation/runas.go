package isolation

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// RootUser is the TaskUser that lets tasks run as root.
const RootUser = "root"

// taskUserName is the name, in the environment of tasks, of users without one.
const taskUserName = "muster"

// runAs is the users of a worker's tasks, and what they see of the machine.
type runAs struct {
	named      *run.User // the user that the owner chose; may be nil
	uids       *uidPool  // nil if tasks run as root, or the worker does not run as root
	rootReason error     // why tasks run as root; nil if they do not
	view       *run.View // nil: tasks see the machine as it is
	viewErr    error     // why view is nil
	ipcErr     error     // why tasks have the machine's shared memory; nil if they have their own
}

// runAs resolves the users of tasks. exposed are paths that they must reach besides the worker's data dir.
func (c *Config) runAs(exposed []string) (*runAs, error) {
	t := &runAs{ipcErr: errNotRoot}
	if os.Geteuid() != 0 {
		if c.TaskUser != "" {
			_, err := lookupUser(c.TaskUser)
			return nil, err
		}
		return t, nil
	}
	if c.wantsRoot() {
		t.rootReason = errRootRequested
	} else if err := t.resolve(c); err != nil {
		return nil, err
	}
	machineView := &run.View{}
	if t.rootReason == nil {
		if c.Data != "" { // shown with all that is in it
			exposed = slices.DeleteFunc(exposed, func(path string) bool { return inside(path, c.Data) || inside(path, ResolvePath(c.Data)) })
		}
		machineView = viewFor(t.sampleUsers(), append(exposed, c.Data))
	} else if c.Sandbox == Off {
		t.viewErr, t.ipcErr = errNoSandbox, errNoSandbox
		return t, nil
	}
	machineView.NoUserNamespaces = c.unfiltered() == nil
	if t.viewErr = view.Ensure(machineView); t.viewErr == nil {
		t.view = machineView
		if slices.ContainsFunc(c.Write, func(path string) bool { return inside(path, sharedMemory) }) {
			t.ipcErr = errSharedMemory
		} else {
			t.ipcErr = view.TryIPC(machineView)
		}
		return t, nil
	}
	t.ipcErr = t.viewErr
	if u := t.toolUser(); u != nil && (untraversable(u, c.Data) != "" || untraversable(u, ResolvePath(c.Data)) != "") {
		t.uids = nil
		if t.named == nil {
			t.rootReason = fmt.Errorf("the users of tasks cannot reach the data dir %s, which is in a folder that is closed to them, and a mount namespace cannot show it (%w): "+
				"move --data to a folder that all users may pass through, such as /var/lib/muster", c.Data, t.viewErr)
		}
	}
	return t, nil
}

func (c *Config) wantsRoot() bool { return c.TaskUser == RootUser || c.TaskUser == "0" }

// resolve sets the users of tasks that do not run as root.
func (t *runAs) resolve(c *Config) error {
	reason := canSwitchUsers()
	if reason == nil {
		if t.uids = newUIDPool(ResolvePath(c.Data), idsMapped); t.uids == nil {
			reason = errNoMappedUIDs
		}
	}
	if c.TaskUser == "" {
		t.rootReason = reason
		return nil
	}
	var err error
	t.named, err = lookupUser(c.TaskUser)
	return err
}

var (
	errRootRequested = errors.New("--task-user is root")
	errNoMappedUIDs  = errors.New("the worker's user namespace has no free users")
	errNotRoot       = errors.New("the worker does not run as root")
	errSharedMemory  = errors.New("--allow-write gives tasks the machine's " + sharedMemory)
	errNoSandbox     = errors.New("tasks run as root, and --sandbox is off")
)

// sampleUsers returns users like those of tasks and tools; none if they run as the worker's own user.
func (t *runAs) sampleUsers() []*run.User {
	var list []*run.User
	if t.named != nil {
		list = append(list, t.named)
	}
	if u := t.toolUser(); u != nil {
		list = append(list, u)
	}
	return list
}

// toolUser returns the user of tools that may run code that tasks chose; nil means the worker's own user.
func (t *runAs) toolUser() *run.User {
	if t.uids == nil {
		return nil
	}
	uid := t.uids.builderUID()
	return &run.User{UID: uid, GID: uid, Groups: []uint32{}, Name: taskUserName}
}

// sharedMemory is where programs share memory by files.
const sharedMemory = "/dev/shm"

// perAttempt reports whether each attempt has a user of its own.
func (t *runAs) perAttempt() bool { return t.uids != nil && t.named == nil }

// acquire returns the user of a new attempt, nil for the worker's own. The caller releases it.
func (t *runAs) acquire(shares, gpus bool) (*run.User, error) {
	if !t.perAttempt() {
		return t.named, nil
	}
	uid, err := t.uids.acquire()
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "cannot give the task a user of its own: %w", err)
	}
	u := &run.User{UID: uid, GID: uid, Groups: []uint32{}, Name: taskUserName, Dynamic: true, GroupWritable: shares}
	if shares {
		u.Groups = append(u.Groups, t.uids.sharedGID())
	}
	if gpus {
		u.Groups = append(u.Groups, deviceGroups()...)
	}
	return u, nil
}

// release releases the user of an attempt.
func (t *runAs) release(c *run.IsolationSpec) {
	if c != nil && c.User != nil && c.User.Dynamic && t.uids != nil {
		t.uids.release(c.User.UID)
	}
}

// reserve marks the user of an attempt from before a restart of the worker as used.
func (t *runAs) reserve(c *run.IsolationSpec) {
	if c != nil && c.User != nil && c.User.Dynamic && t.uids != nil {
		t.uids.reserve(c.User.UID)
	}
}

// deviceGroups returns the groups that may use the GPUs of this machine, such as video and render.
func deviceGroups() []uint32 {
	var list []uint32
	add := func(path string) {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 || info.Mode().Perm()&0o060 != 0o060 {
			return
		}
		if stat, ok := fileStatOf(info); ok && stat.gid != 0 && !slices.Contains(list, stat.gid) {
			list = append(list, stat.gid)
		}
	}
	for _, pattern := range gpuDevices {
		for _, path := range glob(pattern) {
			add(path)
			for _, inner := range glob(filepath.Join(path, "*")) {
				add(inner)
			}
		}
	}
	return list
}

// viewFor returns the view that shows paths to users even if they are in folders that one of them may not pass through: such a
// folder looks empty to them except for these paths.
func viewFor(users []*run.User, paths []string) *run.View {
	v := &run.View{}
	var shown []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			continue
		}
		for _, name := range []string{filepath.Clean(path), ResolvePath(path)} {
			for _, u := range users {
				if closed := untraversable(u, name); closed != "" && (u.Name == taskUserName || tryReach(u, nil, filepath.Dir(name)) != nil) { // an access control list may allow it
					v.Hide = append(v.Hide, closed)
				}
			}
			shown = append(shown, name)
		}
	}
	v.Hide = outermost(v.Hide)
	slices.Sort(v.Hide)
	slices.Sort(shown)
	for _, path := range slices.Compact(shown) {
		if insideAny(path, v.Hide) && !slices.Contains(v.Hide, path) {
			v.Show = append(v.Show, path)
		}
	}
	return v
}

// untraversable returns the outermost folder above a path that a user may not pass through, "" if there is none.
func untraversable(u *run.User, path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		dir := path[:i]
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && !canTraverse(u, info) {
			return dir
		}
	}
	return ""
}

// canTraverse reports whether the mode of a folder lets a user pass through.
func canTraverse(u *run.User, info fs.FileInfo) bool {
	switch stat, _ := fileStatOf(info); {
	case stat.uid == u.UID:
		return info.Mode()&0o100 != 0
	case stat.gid == u.GID || slices.Contains(u.Groups, stat.gid):
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}

// The users of tasks of workers that run as root, unless the owner chooses one. No system assigns these numbers to people, services
// or containers: they are above those of shadow, systemd and directories, and below those of systemd's foreign images.
const (
	firstUID      = 0x78000000
	lastUID       = 0x7ffdffff
	uidsPerWorker = 1 << 16
)

// The range where only 16 bits are mapped, as in most user namespaces: systemd's for the same purpose.
const (
	firstNarrowUID = 61184
	lastNarrowUID  = 65519
)

// uidPool is the users of one worker's tasks. The first two are reserved: the first number is that of the group of folders that
// tasks share, the second is the user that builds packages for tasks.
type uidPool struct {
	first, count uint32

	mu   sync.Mutex
	next uint32
	used map[uint32]bool
}

const reservedUIDs = 2

// newUIDPool returns the pool of a worker with this data dir. mapped reports whether a range exists here. The pools of two
// workers of one machine are equal with a chance of one in two thousand; other means separate their tasks as well.
func newUIDPool(data string, mapped func(first, count uint32) bool) *uidPool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(data))
	const workers = (lastUID - firstUID + 1) / uidsPerWorker
	a := &uidPool{first: firstUID + h.Sum32()%workers*uidsPerWorker, count: uidsPerWorker, used: map[uint32]bool{}}
	if !mapped(a.first, a.count) {
		a.first, a.count = firstNarrowUID, lastNarrowUID-firstNarrowUID+1
		if !mapped(a.first, a.count) {
			return nil
		}
	}
	a.next = rand.Uint32N(a.count - reservedUIDs) //nolint:gosec // no secret: files of earlier tasks rarely belong to the same user
	return a
}

// sharedGID returns the group of folders that all tasks may change.
func (a *uidPool) sharedGID() uint32 { return a.first }

// builderUID returns the user that builds packages for tasks.
func (a *uidPool) builderUID() uint32 { return a.first + 1 }

// acquire returns a free user: the one that has been free for the longest time.
func (a *uidPool) acquire() (uint32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	size := a.count - reservedUIDs
	for range size {
		uid := a.first + reservedUIDs + a.next%size
		a.next = (a.next + 1) % size
		if !a.used[uid] {
			a.used[uid] = true
			return uid, nil
		}
	}
	return 0, errors.New("all users for tasks are in use")
}

// reserve marks a user as used.
func (a *uidPool) reserve(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[uid] = true
}

// release frees a user.
func (a *uidPool) release(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, uid)
}
