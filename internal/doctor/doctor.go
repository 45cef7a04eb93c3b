package doctor

import (
	"cmp"
	"context"
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

// Status is the severity of a finding.
type Status string

// The statuses.
const (
	OK      Status = "ok"
	Note    Status = "note"    // information; no action is needed
	Warning Status = "warning" // it works, with limitations
	Problem Status = "problem" // something does not work
)

// The groups of findings, in the order of the report.
const (
	Server     = "server"
	Worker     = "worker"
	Containers = "containers"
	GPUs       = "gpus"
	Python     = "python"
	System     = "system"
)

// Finding is the result of a check. Its JSON is stable: docs/doctor.md documents it.
type Finding struct {
	Group  string `json:"group"`
	Name   string `json:"name"`
	Status Status `json:"status"`
	Found  string `json:"found"`
	Fix    string `json:"fix"` // what to do, with commands in back quotes; "" if there is nothing to do
}

// SavedServer is a server that this user has saved.
type SavedServer struct {
	URL       string
	Token     string // API key; may be ""
	JoinToken string // may be ""
	Data      string // its data dir, if it runs on this machine
	// CA is the fingerprint of its certificate authority, and TLSServerName the name that its certificate must have: see origin.Options.
	CA            string
	TLSServerName string
	ClientCert    string
	ClientKey     string
}

// Config configures a Doctor.
type Config struct {
	Server    SavedServer      // the server to check
	ServerSet bool             // Server was set or saved; else it is the default
	SavedPath string           // the file of saved servers, "" for none
	SavedErr  error            // of reading that file
	Data      string           // the worker's data dir, absolute
	Listen    string           // where a server of this machine would listen
	ListenSet bool             // Listen was set
	Engine    string           // see workerd.Config: a URL, none, or auto
	ImageDisk muster.Size      // for images of tasks; 0 means workerd.DefaultImageDisk
	Version   string           // of this program
	Limits    isolation.Config // of a worker; Data and Log are ignored
	Online    bool             // check the package index too

	root     string   // prefix of the paths of /proc, /sys, /etc, /dev and /usr; "" for this machine
	timeouts timeouts // zero means defaultTimeouts
}

type timeouts struct {
	total time.Duration // of all checks; those that respect a context have a second less
	step  time.Duration // of a name resolution, a connection, an answer
	disk  time.Duration // of a write, until the disk counts as slow
}

var defaultTimeouts = timeouts{total: 11 * time.Second, step: 3 * time.Second, disk: time.Second} //nolint:gochecknoglobals // constants

func (c *Config) effectiveTimeouts() timeouts { return cmp.Or(c.timeouts, defaultTimeouts) }

// Doctor checks one machine. One goroutine uses it.
type Doctor struct {
	cfg    Config
	checks []check
}

// New returns a Doctor. It checks nothing yet.
func New(cfg Config) *Doctor {
	cfg.Limits.Data = cfg.Data
	return &Doctor{cfg: cfg, checks: checks()}
}

// inspection is one run of the checks. It caches what several checks need.
type inspection struct {
	*Config

	facts      func() probe.Facts  // blocks up to 9 seconds
	probed     func() *serverProbe // of the server
	engineList func() []engine
}

// check returns findings of its group.
type check struct {
	group, name string // name is that of the finding if the check times out
	run         func(*inspection, context.Context) []Finding
}

// checks lists all checks in the order of the report.
func checks() []check {
	return []check{
		{Server, "server", (*inspection).server},
		{Server, "certificate", (*inspection).certificate},
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
		{System, "system-calls", (*inspection).systemCalls},
		{System, "task-user", (*inspection).taskUser},
		{System, "network", (*inspection).network},
		{System, "processes", (*inspection).processes},
		{System, "open-files", (*inspection).openFiles},
		{System, "clock-sync", (*inspection).clockSync},
		{System, "listen", (*inspection).listen},
		{System, "gang-ports", (*inspection).gangPorts},
	}
}

// Run performs all checks. Its error is that of ctx.
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
			f.Notes = append(f.Notes, "the machine was not probed: "+err.Error())
		}
		return f
	})
	r.probed = sync.OnceValue(func() *serverProbe { return r.probeServer(checkCtx) })
	r.engineList = sync.OnceValue(func() []engine { return r.findEngines(checkCtx) })
	results := make([]chan []Finding, len(d.checks))
	for i, c := range d.checks {
		results[i] = make(chan []Finding, 1)
		// Not joined: a system call on a broken mount may never return.
		go func() { results[i] <- c.run(r, checkCtx) }()
	}
	var list []Finding
	for i, c := range d.checks {
		found := []Finding{{Name: c.name, Status: Warning, Found: fmt.Sprintf("unknown: the check did not finish within %s", total), Fix: "something on this machine hangs, such as a network disk or a driver: check `dmesg`"}}
		select {
		case found = <-results[i]:
		case <-hardCtx.Done():
			select { // both may be ready
			case found = <-results[i]:
			default:
			}
		}
		for _, f := range found {
			f.Group = c.group
			if os.Geteuid() == 0 {
				f.Fix = strings.ReplaceAll(f.Fix, "sudo ", "") // it may not be installed
			}
			list = append(list, f)
		}
	}
	return list, ctx.Err()
}

// Worst returns the worst status of findings.
func Worst(found []Finding) Status {
	order := []Status{OK, Note, Warning, Problem}
	worst := 0
	for i := range found {
		worst = max(worst, slices.Index(order, found[i].Status))
	}
	return order[worst]
}

func (c *Config) hostPath(name string) string { return c.root + name }

// readText returns the trimmed content of a small file of the system, "" if it cannot be read.
func (c *Config) readText(name string) string {
	b, _ := os.ReadFile(c.hostPath(name))
	return strings.TrimSpace(string(b))
}

// single returns the only finding of a check.
func single(name string, s Status, fix, format string, args ...any) []Finding {
	return []Finding{newFinding(name, s, fix, format, args...)}
}

func newFinding(name string, s Status, fix, format string, args ...any) Finding {
	return Finding{Name: name, Status: s, Found: fmt.Sprintf(format, args...), Fix: fix}
}
