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

	mu          sync.Mutex
	tail        []string
	packages    string                 // see packageCount
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

func (p *progress) onLine(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !strings.HasPrefix(line, "Using Python ") { // never the cause of a failure
		p.tail = append(p.tail, strings.TrimRight(line, " \r"))
		p.tail = p.tail[max(0, len(p.tail)-maxTailLines):]
	}
	if !p.prebuilt {
		p.observer.LogLine("uv: " + line)
	}
	if m := resolvedRE.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		clear(p.fetched)           // downloads before this line are metadata for the resolver
		p.packages = packageCount(n)
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if m := downloadingRE.FindStringSubmatch(line); m != nil {
		if size, err := muster.ParseSize(m[2]); err == nil {
			p.fetched[m[1]] = size
			p.total += size
			p.reportDownload()
		}
	} else if m := downloadedRE.FindStringSubmatch(line); m != nil {
		p.done += p.fetched[m[1]]
		delete(p.fetched, m[1])
	} else if preparedRE.MatchString(line) {
		clear(p.fetched)
		p.observer.Step(p.title + ": installing " + p.packages)
	} else if installedRE.MatchString(line) && p.prebuilt {
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

// reportDownload reports the finished downloads, if some are running. Large packages are fetched concurrently and finish last, so it
// includes the bytes that uv has written. The caller holds mu.
func (p *progress) reportDownload() {
	if len(p.fetched) == 0 {
		return
	}
	text := fmt.Sprintf("%s: fetching %s, %d%% of %s", p.title, p.packages, 100*p.done/max(1, p.total), p.total)
	if _, n := procfs.IO(p.pid); n > 0 {
		text += ", " + n.String() + " unpacked"
	}
	p.observer.Step(text)
}

// reportInterval is the time between two progress reports.
const reportInterval = time.Second

// repeat reports running downloads until ctx ends.
func (p *progress) repeat(ctx context.Context) {
	for backoff.Sleep(ctx, reportInterval) == nil {
		p.mu.Lock()
		p.reportDownload()
		p.mu.Unlock()
	}
}
