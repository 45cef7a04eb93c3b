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
	resolved  = regexp.MustCompile(`^Resolved (\d+) packages?`)
	fetching  = regexp.MustCompile(`^\s*Downloading (\S+) \(([0-9.]+ ?[A-Za-z]+)\)`)
	fetched   = regexp.MustCompile(`^\s*Downloaded (\S+)`)
	prepared  = regexp.MustCompile(`^Prepared \d+ packages?`)
	finishing = regexp.MustCompile(`^Installed \d+ packages?`)
)

// lastWords is how many lines of a failed uv a task's failure tells, and tail how many its log.
const (
	lastWords = 5
	tail      = 50
)

// progress makes steps of what uv says.
type progress struct {
	title string
	watch run.Watch
	begun time.Time
	env   string // the folder in which modules are compiled, "" for none
	quiet bool   // what is installed is known: the log gets uv's words only if it fails
	last  []string

	packages string // how many, in words; not changed while something is told
	telling  telling

	mu        sync.Mutex
	pid       int                    // of uv, 0 before it runs
	fetched   map[string]muster.Size // what is being fetched, by name
	done, all muster.Size
}

// began is told the process of uv.
func (p *progress) began(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *progress) line(line string) {
	if !strings.HasPrefix(line, "Using Python ") { // which is not why it fails
		p.last = append(p.last, strings.TrimRight(line, " \r"))
		p.last = p.last[max(0, len(p.last)-tail):]
	}
	if !p.quiet {
		p.watch.Say("uv: " + line)
	}
	if m := resolved.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		p.telling.end()            // what was fetched before was read to resolve the rest
		p.packages = Packages(n)
		p.watch.Step(p.title + ": installing " + p.packages)
	} else if m := fetching.FindStringSubmatch(line); m != nil {
		if size, err := muster.ParseSize(m[2]); err == nil {
			p.announced(m[1], size)
			p.telling.begin(p.fetching)
		}
	} else if m := fetched.FindStringSubmatch(line); m != nil {
		p.announced(m[1], 0)
	} else if prepared.MatchString(line) {
		p.telling.end()
		p.watch.Step(p.title + ": installing " + p.packages)
	} else if finishing.MatchString(line) && p.env != "" {
		p.compiling()
	}
}

// failed returns uv's last words, and says more of them in the log.
func (p *progress) failed() string {
	if p.quiet {
		for _, line := range p.last {
			p.watch.Say("uv: " + line)
		}
	}
	last := slices.Clone(p.last[max(0, len(p.last)-lastWords):])
	for i := range last {
		last[i] = strings.TrimSpace(last[i])
	}
	return strings.Join(last, " / ")
}

// announced takes in that so much is fetched under a name, or, of 0, that it is there.
func (p *progress) announced(name string, size muster.Size) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size == 0 {
		p.done += p.fetched[name]
		delete(p.fetched, name)
		return
	}
	p.fetched[name] = size
	p.all += size
}

// fetching tells what has arrived in whole. The large packages come at the same time and last, so that what uv has
// written of them is told, too.
func (p *progress) fetching() {
	p.mu.Lock()
	text := fmt.Sprintf("%s: fetching %s, %d%% of %s", p.title, p.packages, 100*p.done/max(1, p.all), p.all)
	pid := p.pid
	p.mu.Unlock()
	if n := written(pid); n > 0 {
		text += ", " + n.String() + " unpacked"
	}
	p.watch.Step(text)
}

// compiling tells how many modules are compiled, which uv does not before it has ended.
func (p *progress) compiling() {
	var n *count
	p.telling.begin(func() {
		if n == nil {
			n = newCount(p.env)
		}
		p.watch.Step(fmt.Sprintf("%s: compiling %s of %s files", p.title, grouped(n.done()), grouped(n.all)))
	})
}

// tellEvery is how often it is told how far something is.
const tellEvery = time.Second

// telling calls a function again and again.
type telling struct {
	stop chan struct{} // nil while there is none
	over chan struct{} // closed when it is not called any more
}

// begin calls tell from now on until end, unless another is called.
func (t *telling) begin(tell func()) {
	if t.stop != nil {
		return
	}
	t.stop, t.over = make(chan struct{}), make(chan struct{})
	go func() { // joined by end
		defer close(t.over)
		tick := time.NewTicker(tellEvery)
		defer tick.Stop()
		for {
			tell()
			select {
			case <-tick.C:
			case <-t.stop:
				return
			}
		}
	}()
}

// end returns when nothing is told any more.
func (t *telling) end() {
	if t.stop == nil {
		return
	}
	close(t.stop)
	<-t.over
	t.stop = nil
}

// grouped writes a number for people.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
