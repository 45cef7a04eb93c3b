package python

import (
	"fmt"
	"regexp"
	"strconv"
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

// progress makes steps of what uv says.
type progress struct {
	title string
	watch run.Watch
	begun time.Time

	packages  string                 // how many, in words
	fetched   map[string]muster.Size // what is being fetched, by name
	done, all muster.Size
}

func (p *progress) line(line string) {
	p.watch.Say("uv: " + line)
	if m := resolved.FindStringSubmatch(line); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits
		p.packages = packages(n)
		p.watch.Step(p.title + ": installing " + p.packages)
	} else if m := fetching.FindStringSubmatch(line); m != nil {
		if size, err := muster.ParseSize(m[2]); err == nil {
			p.fetched[m[1]] = size
			p.all += size
			p.fetching()
		}
	} else if m := fetched.FindStringSubmatch(line); m != nil {
		p.done += p.fetched[m[1]]
		delete(p.fetched, m[1])
		p.fetching()
	} else if prepared.MatchString(line) {
		p.watch.Step(p.title + ": installing " + p.packages)
	} else if finishing.MatchString(line) {
		p.watch.Step(p.title + ": finishing " + p.packages)
	}
}

func (p *progress) fetching() {
	p.watch.Step(fmt.Sprintf("%s: fetching %s, %s of %s", p.title, p.packages, p.done, p.all))
}
