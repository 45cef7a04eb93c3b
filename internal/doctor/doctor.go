package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/isolation"
	"github.com/muster-dev/muster/internal/agent/probe"
)

// Status is how bad a finding is.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Note    Status = "note"    // good to know; nothing has to be done
	Warning Status = "warning" // it works, and some of it not as it could
	Problem Status = "problem" // something does not work
)

// The groups of findings, in the order in which they are told.
const (
	Server     = "server"
	Worker     = "worker"
	Containers = "containers"
	GPUs       = "gpus"
	Python     = "python"
	System     = "system"
)

// Finding is one thing that was looked at. Its JSON form is stable: docs/doctor.md
// documents it.
type Finding struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Fix    string `json:"fix"`   // what to do, with commands in back quotes; "" if there is nothing to do
	Fixed  bool   `json:"fixed"` // it was mended just now, and this is what was found after that

	repair *repair // nil: it is for people to do
}

// repair is what the doctor can do about a finding.
type repair struct {
	description string // such as "make the folder /var/lib/muster"
	run         func(ctx context.Context) error
}

// Repairable reports whether Doctor.Mend can do something about it.
func (f *Finding) Repairable() bool { return f.repair != nil }

// SavedServer is a server that this user has saved.
type SavedServer struct {
	URL       string
	Token     string // of an API key, "" for none
	JoinToken string // "" for none
	Data      string // its data folder, if it runs on this machine
}

// Config says what is looked at.
type Config struct {
	Server    SavedServer      // that is asked
	ServerSet bool             // somebody named or saved it; else it is where one would be by default
	SavedPath string           // the file of saved servers, "" for none
	SavedErr  error            // why it cannot be read, nil if it can
	Data      string           // the worker's data dir, absolute
	Listen    string           // where a server of this machine would listen
	ListenSet bool             // somebody named Listen
	Engine    string           // as work.Config has it: a URL, none, or auto
	ImageDisk muster.Size      // of images that tasks bring; 0 means work.DefaultImageDisk
	Version   string           // of this program
	Limits    isolation.Config // how a worker would hold its tasks; Data and Log are not asked for
	Online    bool             // ask the package index, too

	root     string   // stands before the paths of /proc, /sys, /etc, /dev and /usr; "" for this machine
	timeouts timeouts // usual if it is none
}

// timeouts are how long is waited for what.
type timeouts struct {
	total time.Duration // for all checks, those that hang, too; a second before, those that heed a context are to answer
	step  time.Duration // for a name, a connection, an answer
	disk  time.Duration // for a file to be on a disk that is not slow
}

var defaultTimeouts = timeouts{total: 11 * time.Second, step: 3 * time.Second, disk: time.Second} //nolint:gochecknoglobals // constants

// effectiveTimeouts is how long is waited.
func (c *Config) effectiveTimeouts() timeouts { return cmp.Or(c.timeouts, defaultTimeouts) }

// Doctor looks at one machine. Its methods must not be called at the same time.
type Doctor struct {
	cfg    Config
	checks []check
}

// New returns a Doctor that has looked at nothing yet.
func New(cfg Config) *Doctor {
	cfg.Limits.Data = cfg.Data
	return &Doctor{cfg: cfg, checks: checks()}
}

// inspection is one look at the machine. What several checks need to know is found out
// once.
type inspection struct {
	*Config

	facts      func() probe.Facts  // blocks up to 9 seconds
	probed     func() *serverProbe // of the server
	engineList func() []engine
}

// check looks at something. The findings are told in its group.
type check struct {
	group, name string // the name stands for all its findings if it does not answer
	run         func(*inspection, context.Context) []Finding
}

// checks are all that is looked at, in the order in which it is told.
func checks() []check {
	return []check{
		{Server, "server", (*inspection).server},
		{Server, "clock", (*inspection).skew},
		{Server, "version", (*inspection).version},
		{Server, "token", (*inspection).token},
		{Server, "join-token", (*inspection).joinToken},
		{Server, "saved", (*inspection).saved},
		{Worker, "data", (*inspection).data},
		{Worker, "write", (*inspection).write},
		{Worker, "space", (*inspection).space},
		{Worker, "filesystem", (*inspection).filesystem},
		{Worker, "secrets", (*inspection).secrets},
		{Worker, "identity", (*inspection).identity},
		{Worker, "running", (*inspection).running},
		{Worker, "leftovers", (*inspection).leftovers},
		{Worker, "groups", (*inspection).groups},
		{Containers, "engine", (*inspection).engines},
		{Containers, "leftover-containers", (*inspection).leftoverContainers},
		{Containers, "gpu-toolkit", (*inspection).toolkit},
		{GPUs, "gpus", (*inspection).gpus},
		{GPUs, "driver", (*inspection).driver},
		{GPUs, "devices", (*inspection).devices},
		{Python, "python", (*inspection).python},
		{Python, "uv", (*inspection).uv},
		{Python, "runtimes", (*inspection).runtimes},
		{Python, "index", (*inspection).index},
		{System, "cgroups", (*inspection).cgroups},
		{System, "sandbox", (*inspection).sandbox},
		{System, "task-user", (*inspection).taskUser},
		{System, "network", (*inspection).network},
		{System, "processes", (*inspection).processes},
		{System, "open-files", (*inspection).openFiles},
		{System, "clock-sync", (*inspection).clockSync},
		{System, "listen", (*inspection).listen},
		{System, "gang-ports", (*inspection).gangPorts},
	}
}

// Run looks at everything. Its error is that of ctx.
func (d *Doctor) Run(ctx context.Context) ([]Finding, error) {
	total := d.cfg.effectiveTimeouts().total
	hardCtx, cancel := context.WithTimeout(ctx, total)
	defer cancel()
	checkCtx, cancel := context.WithTimeout(hardCtx, total-time.Second)
	defer cancel()
	r := &inspection{Config: &d.cfg}
	limits := d.cfg.Limits
	r.facts = sync.OnceValue(func() probe.Facts {
		f, err := probe.New(probe.Config{Data: d.cfg.Data, CanReach: limits.CanReach(), Engine: d.cfg.Engine, Isolation: &limits}).Run(checkCtx)
		if err != nil {
			f.Notes = append(f.Notes, "the machine was not looked at: "+err.Error())
		}
		return f
	})
	r.probed = sync.OnceValue(func() *serverProbe { return r.probeServer(checkCtx) })
	r.engineList = sync.OnceValue(func() []engine { return r.findEngines(checkCtx) })
	results := make([]chan []Finding, len(d.checks))
	for i, c := range d.checks {
		results[i] = make(chan []Finding, 1)
		// A system call on a broken mount may never return: nobody can wait for that.
		go func() { results[i] <- c.run(r, checkCtx) }()
	}
	var list []Finding
	for i, c := range d.checks {
		found := []Finding{{Name: c.name, Status: Warning, Found: fmt.Sprintf("unknown: finding out takes more than %s", total), Fix: "something of this machine hangs, such as a network disk or a driver: look at `dmesg`"}}
		select {
		case found = <-results[i]:
		case <-hardCtx.Done():
			select { // both may be there
			case found = <-results[i]:
			default:
			}
		}
		for _, f := range found {
			f.Group = c.group
			if os.Geteuid() == 0 {
				f.Fix = strings.ReplaceAll(f.Fix, "sudo ", "") // which may not even be installed
			}
			list = append(list, f)
		}
	}
	return list, ctx.Err()
}

// Repair does what is safe about what was found, and looks at that again. It announces each thing
// before it does it, and returns all findings as they are then. What it could not do
// is told in the finding.
func (d *Doctor) Repair(ctx context.Context, found []Finding, announce func(description string)) ([]Finding, error) {
	done := map[string]error{}
	for i := range found {
		f := &found[i]
		if f.repair == nil || ctx.Err() != nil {
			continue
		}
		announce(f.repair.description)
		done[f.key()] = errors.Join(done[f.key()], f.repair.run(ctx))
	}
	if len(done) == 0 || ctx.Err() != nil {
		return found, ctx.Err()
	}
	// All checks, since one thing that is mended shows in others.
	after, err := d.Run(ctx)
	for i := range after {
		f := &after[i]
		failed, tried := done[f.key()]
		switch {
		case failed != nil:
			f.Found += "; mending it failed: " + failed.Error()
		case tried:
			f.Fixed = f.repair == nil
		}
		delete(done, f.key())
	}
	for i := range found {
		f := &found[i]
		if failed, tried := done[f.key()]; tried && failed == nil {
			delete(done, f.key())
			resolved := newFinding(f.Name, OK, "", "nothing is left of: %s", f.Found)
			resolved.Group, resolved.Fixed = f.Group, true
			after = slices.Insert(after, groupEnd(after, f.Group), resolved)
		}
	}
	return after, err
}

// key tells findings of one name from others.
func (f *Finding) key() string { return f.Group + "/" + f.Name }

// groupEnd is the place behind the last finding of a group.
func groupEnd(found []Finding, group string) int {
	for i, f := range slices.Backward(found) {
		if f.Group == group {
			return i + 1
		}
	}
	return len(found)
}

// Worst is the worst status of findings.
func Worst(found []Finding) Status {
	order := []Status{OK, Note, Warning, Problem}
	worst := 0
	for i := range found {
		worst = max(worst, slices.Index(order, found[i].Status))
	}
	return order[worst]
}

// hostPath returns where a file of the system is.
func (c *Config) hostPath(name string) string { return c.root + name }

// readText reads a small file of the system, "" if it cannot be read.
func (c *Config) readText(name string) string {
	b, err := os.ReadFile(c.hostPath(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// single makes the only finding of a check.
func single(name string, s Status, fix, format string, args ...any) []Finding {
	return []Finding{newFinding(name, s, fix, format, args...)}
}

func newFinding(name string, s Status, fix, format string, args ...any) Finding {
	return Finding{Name: name, Status: s, Found: fmt.Sprintf(format, args...), Fix: fix}
}
