package python

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// TestStepsOfABuild checks the steps for the output of uv 0.13.
func TestStepsOfABuild(t *testing.T) {
	var mu sync.Mutex
	var steps, logged []string
	p := &progress{
		title: "runtime x", prebuilt: true, packages: "2 packages", fetched: map[string]muster.Size{},
		observer: run.Observer{
			Step:    func(s string) { mu.Lock(); steps = append(steps, s); mu.Unlock() },
			LogLine: func(s string) { logged = append(logged, s) },
		},
	}
	for _, line := range []string{
		"Using Python 3.11.2 environment at: env", "Downloading source (1.5MiB)", " Downloaded source", "Resolved 3 packages in 53ms", "Downloading nvidia-nccl-cu13 (191.6MiB)", "Downloading pillow (6.8MiB)",
		" Downloaded pillow", " Downloaded nvidia-nccl-cu13", "Prepared 3 packages in 1.03s",
	} {
		p.onLine(line)
	}
	p.onLine("Installed 3 packages in 5ms")
	p.onLine("Bytecode compiled 3 files in 9ms")
	if len(logged) > 0 {
		t.Errorf("the log of a successful build is %q", logged)
	}
	for _, want := range []string{
		"runtime x: installing 3 packages", "runtime x: fetching 3 packages, ", "runtime x: compiling modules",
	} {
		if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("no step is %q: %q", want, steps)
		}
	}
	if last := p.lastOutput(); !strings.HasSuffix(last, "Prepared 3 packages in 1.03s / Installed 3 packages in 5ms / Bytecode compiled 3 files in 9ms") {
		t.Errorf("its last words are %q", last)
	}
	if len(logged) != 10 || logged[2] != "uv: Resolved 3 packages in 53ms" {
		t.Errorf("the log of a failed build is %q", logged)
	}
}
