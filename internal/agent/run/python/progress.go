package python

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// What uv says while it installs. Of packages that are fetched it names the bigger ones.
var (
	resolvedRE    = regexp.MustCompile(`^Resolved (\d+) packages?`)
	downloadingRE = regexp.MustCompile(`^\s*Downloading (\S+) \(([0-9.]+ ?[A-Za-z]+)\)`)
	downloadedRE  = regexp.MustCompile(`^\s*Downloaded (\S+)`)
	preparedRE    = regexp.MustCompile(`^Prepared \d+ packages?`)
	installedRE   = regexp.MustCompile(`^Installed \d+ packages?`)
)

// maxErrorLines is how many lines of a failed uv a task's failure tells, and tail how many its log.
const (
	maxErrorLines = 5
	maxTailLines  = 50
)

// progress makes steps of what uv says.
type progress struct {
	title    string
	observer run.Observer
	begun    time.Time
	venv     string // the folder in which modules are compiled, "" for none
	quiet    bool   // what is installed is known: the log gets uv's words only if it fails
	tail     []string

	packages string // how many, in words; not changed while something is told
	ticker   periodic

	mu          sync.Mutex
	pid         int                    // of uv, 0 before it runs
	fetched     map[string]muster.Size // what is being fetched, by name
	done, total muster.Size
}

// setPID is told the process of uv.
func (p *progress) setPID(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *progress) onLine(onLine string) {
	if !strings.HasPrefix(onLine, "Using Python ") { // which is not why it fails
		p.tail = append(p.tail, strings.TrimRight(onLine, " \r"))
		p.tail = p.tail[max(0, len(p.tail)-maxTailLines):]
	}
	if !p.quiet {
		p.observer.LogLine("uv: " + onLine)
	}
	if m := resolvedRE.FindStringSubmatch(onLine); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		p.ticker.stop()            // what was fetched before was read to resolve the rest
		p.packages = PackageCount(n)
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
	} else if installedRE.MatchString(onLine) && p.venv != "" {
		p.reportCompile()
	}
}

// lastOutput returns uv's last words, and says more of them in the log.
func (p *progress) lastOutput() string {
	if p.quiet {
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

// trackDownload takes in that so much is fetched under a name, or, of 0, that it is there.
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

// reportDownload tells what has arrived in whole. The large packages come at the same time and last, so that what uv has
// written of them is told, too.
func (p *progress) reportDownload() {
	p.mu.Lock()
	text := fmt.Sprintf("%s: fetching %s, %d%% of %s", p.title, p.packages, 100*p.done/max(1, p.total), p.total)
	pid := p.pid
	p.mu.Unlock()
	if n := bytesWritten(pid); n > 0 {
		text += ", " + n.String() + " unpacked"
	}
	p.observer.Step(text)
}

// reportCompile tells how many modules are compiled, which uv does not before it has ended.
func (p *progress) reportCompile() {
	var counter *compileCounter
	p.ticker.start(func() {
		if counter == nil {
			counter = newCompileCounter(p.venv)
		}
		p.observer.Step(fmt.Sprintf("%s: compiling %s of %s files", p.title, formatThousands(counter.compiled()), formatThousands(counter.total)))
	})
}

// reportInterval is how often it is told how far something is.
const reportInterval = time.Second

// periodic calls a function again and again.
type periodic struct {
	quit chan struct{} // nil while there is none
	done chan struct{} // closed when it is not called any more
}

// start calls tell from now on until end, unless another is called.
func (t *periodic) start(fn func()) {
	if t.quit != nil {
		return
	}
	t.quit, t.done = make(chan struct{}), make(chan struct{})
	go func() { // joined by end
		defer close(t.done)
		tick := time.NewTicker(reportInterval)
		defer tick.Stop()
		for {
			fn()
			select {
			case <-tick.C:
			case <-t.quit:
				return
			}
		}
	}()
}

// stop returns when nothing is told any more.
func (t *periodic) stop() {
	if t.quit == nil {
		return
	}
	close(t.quit)
	<-t.done
	t.quit = nil
}

// formatThousands writes a number for people.
func formatThousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
