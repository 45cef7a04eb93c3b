package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/limit/view"
	"github.com/muster-dev/muster/internal/agent/run"
)

// Superuser is the TaskUser that lets tasks run as root.
const Superuser = "root"

// taskName is what the environment of tasks says of a user that has no name.
const taskName = "muster"

// tenant is whom the tasks of a worker run as, and what they see of the machine.
type tenant struct {
	named    *run.User // nil for none
	accounts *accounts // nil where tasks are root's, or the worker's that is not root
	super    error     // why tasks run as root, nil if they do not
	view     *run.View // nil for all of the machine
	noView   error     // why there is none
}

// tenant finds out whom tasks run as. reach are paths that they are to come to besides the worker's data dir.
func (c *Config) tenant(reach []string) (*tenant, error) {
	t := &tenant{}
	if os.Geteuid() != 0 {
		if c.TaskUser != "" {
			_, err := lookUp(c.TaskUser)
			return nil, err
		}
		return t, nil
	}
	if c.asksSuper() {
		t.super = errAsked
	} else if err := t.find(c); err != nil {
		return nil, err
	}
	whole := &run.View{}
	if t.super == nil {
		if c.Data != "" { // which is shown with all that is in it
			reach = slices.DeleteFunc(reach, func(path string) bool { return inside(path, c.Data) || inside(path, resolved(c.Data)) })
		}
		whole = viewFor(t.examples(), append(reach, c.Data))
	} else if c.Sandbox == Off {
		t.noView = errNoSandbox
		return t, nil
	}
	if t.noView = view.Make(whole); t.noView == nil {
		t.view = whole
		return t, nil
	}
	if u := t.tool(); u != nil && (closedTo(u, c.Data) != "" || closedTo(u, resolved(c.Data)) != "") {
		t.accounts = nil
		if t.named == nil {
			t.super = fmt.Errorf("users of their own cannot reach the data dir %s, which lies in a folder that is closed to them, and cannot be shown it in another way (%w): "+
				"give --data a folder in a place that all users may pass through, such as /var/lib/muster", c.Data, t.noView)
		}
	}
	return t, nil
}

// asksSuper reports whether tasks are to run as root.
func (c *Config) asksSuper() bool { return c.TaskUser == Superuser || c.TaskUser == "0" }

// find finds the users of tasks that are not to run as root.
func (t *tenant) find(c *Config) error {
	cannot := canBecome()
	if cannot == nil {
		if t.accounts = newAccounts(resolved(c.Data), mapped); t.accounts == nil {
			cannot = errUnmapped
		}
	}
	if c.TaskUser == "" {
		t.super = cannot
		return nil
	}
	var err error
	t.named, err = lookUp(c.TaskUser)
	return err
}

var (
	errAsked     = errors.New("--task-user is root")
	errUnmapped  = errors.New("the user namespace that this worker is in has no users to spare")
	errNoSandbox = errors.New("tasks run as root, and --sandbox is off")
)

// examples are users as those of tasks are, and of what is done for them. There are none if they are the worker's own.
func (t *tenant) examples() []*run.User {
	var list []*run.User
	if t.named != nil {
		list = append(list, t.named)
	}
	if u := t.tool(); u != nil {
		list = append(list, u)
	}
	return list
}

// tool is the user of programs of the worker's own that may run what tasks chose, nil for the worker's.
func (t *tenant) tool() *run.User {
	if t.accounts == nil {
		return nil
	}
	uid := t.accounts.builder()
	return &run.User{UID: uid, GID: uid, Groups: []uint32{}, Name: taskName}
}

// own reports whether each attempt has a user of its own.
func (t *tenant) own() bool { return t.accounts != nil && t.named == nil }

// attempt returns the user of a new attempt, nil for the worker's own. It is to be given back.
func (t *tenant) attempt(shares, gpus bool) (*run.User, error) {
	if !t.own() {
		return t.named, nil
	}
	uid, err := t.accounts.take()
	if err != nil {
		return nil, run.Failf(muster.WorkerInternal, "the task cannot have a user of its own: %w", err)
	}
	u := &run.User{UID: uid, GID: uid, Groups: []uint32{}, Name: taskName, Dynamic: true, Shares: shares}
	if shares {
		u.Groups = append(u.Groups, t.accounts.shared())
	}
	if gpus {
		u.Groups = append(u.Groups, deviceGroups()...)
	}
	return u, nil
}

// end gives the user of an attempt back.
func (t *tenant) end(c *run.Confine) {
	if c != nil && c.User != nil && c.User.Dynamic && t.accounts != nil {
		t.accounts.free(c.User.UID)
	}
}

// keep notes the user of an attempt of an earlier life.
func (t *tenant) keep(c *run.Confine) {
	if c != nil && c.User != nil && c.User.Dynamic && t.accounts != nil {
		t.accounts.reserve(c.User.UID)
	}
}

// deviceGroups are the groups that may use the GPUs of this machine, such as video and render.
func deviceGroups() []uint32 {
	var list []uint32
	add := func(path string) {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&fs.ModeCharDevice == 0 || info.Mode().Perm()&0o060 != 0o060 {
			return
		}
		if of, ok := factsOf(info); ok && of.gid != 0 && !slices.Contains(list, of.gid) {
			list = append(list, of.gid)
		}
	}
	for _, pattern := range gpuDevices {
		for _, path := range matches(pattern) {
			add(path)
			for _, inner := range matches(filepath.Join(path, "*")) {
				add(inner)
			}
		}
	}
	return list
}

// viewFor returns what shows users some paths also where they lie in folders that one of them may not pass through: such
// a folder looks empty to them, but for these paths.
func viewFor(users []*run.User, paths []string) *run.View {
	v := &run.View{}
	var shown []string
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			continue
		}
		for _, name := range []string{filepath.Clean(path), resolved(path)} {
			for _, u := range users {
				if closed := closedTo(u, name); closed != "" && (u.Name == taskName || reach(u, nil, filepath.Dir(name)) != nil) { // else by an access control list
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
		if within(path, v.Hide) && !slices.Contains(v.Hide, path) {
			v.Show = append(v.Show, path)
		}
	}
	return v
}

// closedTo returns the outermost folder above a path that a user may not pass through, "" for none.
func closedTo(u *run.User, path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		dir := path[:i]
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && !mayPass(u, info) {
			return dir
		}
	}
	return ""
}

// mayPass reports whether the mode of a folder lets a user through.
func mayPass(u *run.User, info fs.FileInfo) bool {
	switch of, _ := factsOf(info); {
	case of.uid == u.UID:
		return info.Mode()&0o100 != 0
	case of.gid == u.GID || slices.Contains(u.Groups, of.gid):
		return info.Mode()&0o010 != 0
	}
	return info.Mode()&0o001 != 0
}
