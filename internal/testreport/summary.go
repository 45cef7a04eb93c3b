package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// event is a line of the output of go test -json; see go doc test2json, and go help buildjson for the last two actions.
type event struct {
	Action  string  `json:"Action"` // run, output, pass, fail, skip, …; build-output, build-fail
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"`
}

// skip is a test that was skipped.
type skip struct {
	pkg, test, reason string
}

// summary is what has been read so far.
type summary struct {
	out     io.Writer
	running map[string]*results // of packages that have not finished
	passed  map[string]bool     // packages whose tests have all passed
	skipped []skip
	tested  int // packages with tests
	failed  bool

	failures []failure // tests that failed
	broken   bool      // something failed that is not a test
}

// results are those of one package.
type results struct {
	output map[string][]string // by test; "" is the package itself
	order  []string            // tests in the order of their start
	state  map[string]string   // the action with which a test ended
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, running: map[string]*results{}, passed: map[string]bool{}}
}

// read reads all events. It prints other lines, in which go test reports errors of its arguments.
func (t *summary) read(in io.Reader) error {
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil || e.Action == "" {
				fmt.Fprintf(t.out, "%s", line)
			} else {
				t.add(&e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *summary) add(e *event) {
	switch e.Action {
	case "build-output":
		fmt.Fprint(t.out, e.Output)
		return
	case "build-fail":
		t.failed, t.broken = true, true
		return
	}
	p := t.running[e.Package]
	if p == nil {
		p = &results{output: map[string][]string{}, state: map[string]string{}}
		t.running[e.Package] = p
	}
	if e.Test != "" && !slices.Contains([]string{"output", "pass", "fail", "skip"}, e.Action) {
		if e.Action == "run" {
			p.order = append(p.order, e.Test)
		}
		return
	}
	switch e.Action {
	case "output":
		p.output[e.Test] = append(p.output[e.Test], e.Output)
	case "pass", "fail", "skip":
		p.state[e.Test] = e.Action
		switch {
		case e.Test == "":
			t.end(p, e)
		case e.Action == "skip":
			t.skipped = append(t.skipped, skip{e.Package, e.Test, skipReason(p.output[e.Test])})
			delete(p.output, e.Test)
		case e.Action == "pass":
			delete(p.output, e.Test) // go test shows it with -v only
		}
	}
}

// end prints the results of a package.
func (t *summary) end(p *results, e *event) {
	delete(t.running, e.Package)
	if e.Action != "skip" { // it has no tests
		t.tested++
	}
	t.passed[e.Package] = e.Action == "pass"
	if e.Action == "fail" {
		t.failed = true
		failed, ok := p.failedTests(e.Package)
		t.failures, t.broken = append(t.failures, failed...), t.broken || !ok
		for _, test := range p.order {
			if p.state[test] != "pass" && p.state[test] != "skip" {
				t.print(p.output[test])
			}
		}
	}
	closing := false
	for _, line := range p.output[""] {
		last := strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t") || strings.HasPrefix(line, "?   \t")
		closing = closing || last
		if last || e.Action == "fail" {
			fmt.Fprint(t.out, line)
		}
	}
	if closing || e.Action == "skip" {
		return
	}
	// A test binary that was run without go test does not print it.
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
	}
	fmt.Fprintf(t.out, "%s\t%s\t%.3fs\n", word, e.Package, e.Elapsed)
}

// print prints the output of a test without framing lines.
func (t *summary) print(lines []string) {
	for _, line := range lines {
		if !isFraming(line) {
			fmt.Fprint(t.out, line)
		}
	}
}

func isFraming(line string) bool { return strings.HasPrefix(line, "=== ") }

// skipReason returns the last line of a skipped test's output.
func skipReason(lines []string) string {
	var messages []string
	for _, line := range lines {
		if s := strings.TrimSpace(line); s != "" && !isFraming(line) && !strings.HasPrefix(s, "--- SKIP:") {
			messages = append(messages, s)
		}
	}
	if len(messages) == 0 {
		return "without a reason"
	}
	return messages[len(messages)-1]
}

// unfinished lists the packages whose tests have not finished.
func (t *summary) unfinished() []string { return slices.Sorted(maps.Keys(t.running)) }
