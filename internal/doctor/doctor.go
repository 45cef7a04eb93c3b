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
	"github.com/muster-dev/muster/internal/agent/limit"
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

	mend *mend // nil: it is for people to do
}

// mend is what the doctor can do about a finding.
type mend struct {
	does string // such as "make the folder /var/lib/muster"
	do   func(ctx context.Context) error
}

// Mendable reports whether Doctor.Mend can do something about it.
func (f *Finding) Mendable() bool { return f.mend != nil }

// Known is a server that this user has saved.
type Known struct {
	URL       string
	Token     string // of an API key, "" for none
	JoinToken string // "" for none
	Data      string // its data folder, if it runs on this machine
}

// Config says what is looked at.
type Config struct {
	Server    Known        // that is asked
	Named     bool         // somebody named or saved it; else it is where one would be by default
	Saved     string       // the file of saved servers, "" for none
	SavedErr  error        // why it cannot be read, nil if it can
	Data      string       // the worker's data dir, absolute
	Listen    string       // where a server of this machine would listen
	Listens   bool         // somebody named Listen
	Engine    string       // as work.Config has it: a URL, none, or auto
	ImageDisk muster.Size  // of images that tasks bring; 0 means work.DefaultImageDisk
	Version   string       // of this program
	Limits    limit.Config // how a worker would hold its tasks; Data and Log are not asked for
	Online    bool         // ask the package index, too

	root  string // stands before the paths of /proc, /sys, /etc, /dev and /usr; "" for this machine
	waits waits  // usual if it is none
}

// waits are how long is waited for what.
type waits struct {
	look time.Duration // for all checks, those that hang, too; a second before, those that heed a context are to answer
	step time.Duration // for a name, a connection, an answer
	disk time.Duration // for a file to be on a disk that is not slow
}

var usual = waits{look: 11 * time.Second, step: 3 * time.Second, disk: time.Second} //nolint:gochecknoglobals // constants

// patience is how long is waited.
func (c *Config) patience() waits { return cmp.Or(c.waits, usual) }

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

// round is one look at the machine. What several checks need to know is found out
// once.
type round struct {
	*Config

	facts  func() probe.Facts // blocks up to 9 seconds
	answer func() *answer     // of the server
	hosts  func() []engine
}

// check looks at something. The findings are told in its group.
type check struct {
	group, name string // the name stands for all its findings if it does not answer
	look        func(*round, context.Context) []Finding
}

// checks are all that is looked at, in the order in which it is told.
func checks() []check {
	return []check{
		{Server, "server", (*round).server},
		{Server, "clock", (*round).skew},
		{Server, "version", (*round).version},
		{Server, "token", (*round).token},
		{Server, "join-token", (*round).joinToken},
		{Server, "saved", (*round).saved},
		{Worker, "data", (*round).data},
		{Worker, "write", (*round).write},
		{Worker, "space", (*round).space},
		{Worker, "filesystem", (*round).filesystem},
		{Worker, "secrets", (*round).secrets},
		{Worker, "identity", (*round).identity},
		{Worker, "running", (*round).running},
		{Worker, "leftovers", (*round).leftovers},
		{Worker, "groups", (*round).groups},
		{Containers, "engine", (*round).engines},
		{Containers, "leftover-containers", (*round).leftContainers},
		{Containers, "gpu-toolkit", (*round).toolkit},
		{GPUs, "gpus", (*round).gpus},
		{GPUs, "driver", (*round).driver},
		{GPUs, "devices", (*round).devices},
		{Python, "python", (*round).python},
		{Python, "uv", (*round).uv},
		{Python, "runtimes", (*round).runtimes},
		{Python, "index", (*round).index},
		{System, "cgroups", (*round).cgroups},
		{System, "sandbox", (*round).sandbox},
		{System, "task-user", (*round).taskUser},
		{System, "network", (*round).network},
		{System, "processes", (*round).processes},
		{System, "open-files", (*round).openFiles},
		{System, "clock-sync", (*round).synchronised},
		{System, "listen", (*round).listen},
		{System, "gang-ports", (*round).gangPorts},
	}
}

// Look looks at everything. Its error is that of ctx.
func (d *Doctor) Look(ctx context.Context) ([]Finding, error) {
	most := d.cfg.patience().look
	end, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	heeded, cancel := context.WithTimeout(end, most-time.Second)
	defer cancel()
	r := &round{Config: &d.cfg}
	limits := d.cfg.Limits
	r.facts = sync.OnceValue(func() probe.Facts {
		f, err := probe.New(probe.Config{Data: d.cfg.Data, CanReach: limits.CanReach(), Engine: d.cfg.Engine, Isolation: &limits}).Run(heeded)
		if err != nil {
			f.Notes = append(f.Notes, "the machine was not looked at: "+err.Error())
		}
		return f
	})
	r.answer = sync.OnceValue(func() *answer { return r.ask(heeded) })
	r.hosts = sync.OnceValue(func() []engine { return r.findEngines(heeded) })
	told := make([]chan []Finding, len(d.checks))
	for i, c := range d.checks {
		told[i] = make(chan []Finding, 1)
		// A system call on a broken mount may never return: nobody can wait for that.
		go func() { told[i] <- c.look(r, heeded) }()
	}
	var list []Finding
	for i, c := range d.checks {
		found := []Finding{{Name: c.name, Status: Warning, Found: fmt.Sprintf("unknown: finding out takes more than %s", most), Fix: "something of this machine hangs, such as a network disk or a driver: look at `dmesg`"}}
		select {
		case found = <-told[i]:
		case <-end.Done():
			select { // both may be there
			case found = <-told[i]:
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

// Mend does what is safe about what was found, and looks at that again. It announces each thing
// before it does it, and returns all findings as they are then. What it could not do
// is told in the finding.
func (d *Doctor) Mend(ctx context.Context, found []Finding, announce func(does string)) ([]Finding, error) {
	done := map[string]error{}
	for i := range found {
		f := &found[i]
		if f.mend == nil || ctx.Err() != nil {
			continue
		}
		announce(f.mend.does)
		done[f.key()] = errors.Join(done[f.key()], f.mend.do(ctx))
	}
	if len(done) == 0 || ctx.Err() != nil {
		return found, ctx.Err()
	}
	// All checks, since one thing that is mended shows in others.
	again, err := d.Look(ctx)
	for i := range again {
		f := &again[i]
		failed, tried := done[f.key()]
		switch {
		case failed != nil:
			f.Found += "; mending it failed: " + failed.Error()
		case tried:
			f.Fixed = f.mend == nil
		}
		delete(done, f.key())
	}
	for i := range found {
		f := &found[i]
		if failed, tried := done[f.key()]; tried && failed == nil {
			delete(done, f.key())
			gone := finding(f.Name, OK, "", "nothing is left of: %s", f.Found)
			gone.Group, gone.Fixed = f.Group, true
			again = slices.Insert(again, endOf(again, f.Group), gone)
		}
	}
	return again, err
}

// key tells findings of one name from others.
func (f *Finding) key() string { return f.Group + "/" + f.Name }

// endOf is the place behind the last finding of a group.
func endOf(found []Finding, group string) int {
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

// path returns where a file of the system is.
func (c *Config) path(name string) string { return c.root + name }

// text reads a small file of the system, "" if it cannot be read.
func (c *Config) text(name string) string {
	b, err := os.ReadFile(c.path(name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// one makes the only finding of a check.
func one(name string, s Status, fix, format string, args ...any) []Finding {
	return []Finding{finding(name, s, fix, format, args...)}
}

func finding(name string, s Status, fix, format string, args ...any) Finding {
	return Finding{Name: name, Status: s, Found: fmt.Sprintf(format, args...), Fix: fix}
}
