package python

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/procfs"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

// The output of uv while it installs. It names only the larger downloads.
var (
	resolvedRE    = regexp.MustCompile(`^Resolved (\d+) packages?`)
	downloadingRE = regexp.MustCompile(`^\s*Downloading (\S+) \(([0-9.]+ ?[A-Za-z]+)\)`)
	downloadedRE  = regexp.MustCompile(`^\s*Downloaded (\S+)`)
	preparedRE    = regexp.MustCompile(`^Prepared \d+ packages?`)
	installedRE   = regexp.MustCompile(`^Installed \d+ packages?`)
)

// The last lines of a failed uv that go into the error, and into the task's log.
const (
	maxErrorLines = 5
	maxTailLines  = 50
)

// progress converts the output of uv to steps.
type progress struct {
	title    string
	observer run.Observer
	begun    time.Time
	prebuilt bool // modules are compiled at the end, and the log gets uv's output only if it fails
	tail     []string

	packages string // see packageCount; it does not change while ticker runs
	ticker   periodic

	mu          sync.Mutex
	pid         int                    // of uv, 0 before it runs
	fetched     map[string]muster.Size // running downloads, by name
	done, total muster.Size
}

// setPID sets the process of uv.
func (p *progress) setPID(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *progress) onLine(onLine string) {
	if !strings.HasPrefix(onLine, "Using Python ") { // never the cause of a failure
		p.tail = append(p.tail, strings.TrimRight(onLine, " \r"))
		p.tail = p.tail[max(0, len(p.tail)-maxTailLines):]
	}
	if !p.prebuilt {
		p.observer.LogLine("uv: " + onLine)
	}
	if m := resolvedRE.FindStringSubmatch(onLine); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		p.ticker.stop()            // downloads before this line are metadata for the resolver
		p.packages = packageCount(n)
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if m := downloadingRE.FindStringSubmatch(onLine); m != nil {
		if size, err := muster.ParseSize(m[2]); err == nil {
			p.trackDownload(m[1], size)
			p.ticker.start(p.reportDownload)
		}
	} else if m := downloadedRE.FindStringSubmatch(onLine); m != nil {
		p.trackDownload(m[1], 0)
	} else if preparedRE.MatchString(onLine) {
		p.ticker.stop()
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if installedRE.MatchString(onLine) && p.prebuilt {
		p.observer.Step(p.title + ": compiling modules")
	}
}

// lastOutput returns the last lines of uv's output in one line. If the log does not have them, it gets more of them.
func (p *progress) lastOutput() string {
	if p.prebuilt {
		for _, line := range p.tail {
			p.observer.LogLine("uv: " + line)
		}
	}
	last := slices.Clone(p.tail[max(0, len(p.tail)-maxErrorLines):])
	for i := range last {
		last[i] = strings.TrimSpace(last[i])
	}
	return strings.Join(last, " / ")
}

// trackDownload records a started download and its size, or, with size 0, a finished one.
func (p *progress) trackDownload(name string, size muster.Size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size == 0 {
		p.done += p.fetched[name]
		delete(p.fetched, name)
		return
	}
	p.fetched[name] = size
	p.total += size
}

// reportDownload reports the finished downloads. Large packages are fetched concurrently and finish last, so it includes the bytes
// that uv has written.
func (p *progress) reportDownload() {
	p.mu.Lock()
	text := fmt.Sprintf("%s: fetching %s, %d%% of %s", p.title, p.packages, 100*p.done/max(1, p.total), p.total)
	pid := p.pid
	p.mu.Unlock()
	if _, n := procfs.IO(pid); n > 0 {
		text += ", " + n.String() + " unpacked"
	}
	p.observer.Step(text)
}

// reportInterval is the time between two progress reports.
const reportInterval = time.Second

// periodic calls a function every reportInterval. One goroutine uses it.
type periodic struct {
	cancel  context.CancelFunc // nil if it is stopped
	running sync.WaitGroup
}

// start calls fn until stop. It does nothing if another function is being called.
func (t *periodic) start(fn func()) {
	if t.cancel != nil {
		return
	}
	var ctx context.Context
	ctx, t.cancel = context.WithCancel(context.Background())
	t.running.Go(func() {
		for fn(); backoff.Sleep(ctx, reportInterval) == nil; fn() {
		}
	})
}

// stop ends the calls and waits for the last one.
func (t *periodic) stop() {
	if t.cancel != nil {
		t.cancel()
		t.running.Wait()
		t.cancel = nil
	}
}
