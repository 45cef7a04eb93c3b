package mutants

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/testkit"
)

var run = flag.String("mutants", "", "run the tests with the mutants whose tests match this regular expression; \".\" for all (about 30 s each)")

const root = "../.."

// mutant is a guard that is removed, and the tests that must fail then.
type mutant struct {
	tests []string // of test/attack; with / and the name of a subtest, as go test prints it
	file  string
	guard string // occurs once in the file
	// without replaces it.
	without string
	// inTest says that the test itself runs the code, as a client. Otherwise only the program is built without the guard, so that what the
	// test expects does not follow from the same code.
	inTest bool
}

// mutated returns the file without the guard.
func (m *mutant) mutated(t *testing.T) []byte {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, m.file))
	testkit.NoError(t, err)
	if n := bytes.Count(source, []byte(m.guard)); n != 1 {
		t.Fatalf("%s has the guard of %q %d times, instead of once:\n%s", m.file, m.tests, n, m.guard)
	}
	source = bytes.Replace(source, []byte(m.guard), []byte(m.without), 1)
	if _, err := format.Source(source); err != nil {
		t.Fatalf("%s without the guard of %q: %v", m.file, m.tests, err)
	}
	return source
}

// TestGuards checks that each guard is where the list says, and that each test of test/attack has one.
func TestGuards(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for name := range withoutGuard {
		tested[name] = true
	}
	for i := range list {
		m := &list[i]
		m.mutated(t)
		for _, name := range m.tests {
			top, _, _ := strings.Cut(name, "/")
			tested[top] = true
		}
	}
	files, err := filepath.Glob(root + "/test/attack/*_test.go")
	testkit.NoError(t, err)
	statements := map[string]bool{}
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		testkit.NoError(t, err)
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") && fn.Name.Name != "TestMain" {
				statements[fn.Name.Name] = true
				if !tested[fn.Name.Name] {
					t.Errorf("%s: %s has no mutant: add the guard that it is about to list", filepath.Base(path), fn.Name.Name)
				}
			}
		}
	}
	for name := range tested {
		if !statements[name] {
			t.Errorf("test/attack has no %s", name)
		}
	}
}

// TestMutants runs tests without their guards.
func TestMutants(t *testing.T) { //nolint:paralleltest // a build and a test of a mutant use all processors
	if *run == "" {
		return // make mutants runs them
	}
	selected := regexp.MustCompile(*run)
	tests := filepath.Join(t.TempDir(), "attack.test")
	build(t, "test", "-c", "-vet=off", "-o", tests, "./test/attack")
	for i := range list {
		m := &list[i]
		if !slices.ContainsFunc(m.tests, selected.MatchString) {
			continue
		}
		t.Run(m.tests[0]+" "+filepath.Base(m.file), func(t *testing.T) { m.run(t, tests) })
	}
}

// run fails the test if one of the mutant's tests passes. The program tests has them, with all guards.
func (m *mutant) run(t *testing.T, tests string) {
	t.Helper()
	dir := t.TempDir()
	file, overlay, program := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "muster")
	original, err := filepath.Abs(filepath.Join(root, m.file))
	testkit.NoError(t, err)
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	testkit.NoError(t, err)
	testkit.NoError(t, os.WriteFile(file, m.mutated(t), 0o600))
	testkit.NoError(t, os.WriteFile(overlay, text, 0o600))
	build(t, "build", "-overlay", overlay, "-ldflags=-w", "-o", program, "./cmd/muster")
	if m.inTest {
		tests = filepath.Join(dir, "attack.test")
		build(t, "test", "-c", "-vet=off", "-overlay", overlay, "-o", tests, "./test/attack")
	}
	results, out := m.results(t, tests, program)
	for _, name := range m.tests {
		switch results[name] {
		case "fail":
		case "pass":
			t.Errorf("%s passes without\n%s", name, m.guard)
		default:
			t.Errorf("%s did not run (%q):\n%s", name, results[name], out[max(0, len(out)-4000):])
		}
	}
}

// build runs the go command in the root of the module.
func build(t *testing.T, args ...string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// results returns how each test and subtest of the mutant ended, and their output.
func (m *mutant) results(t *testing.T, tests, program string) (map[string]string, []byte) {
	t.Helper()
	var top []string
	for _, name := range m.tests {
		name, _, _ = strings.Cut(name, "/")
		top = append(top, name)
	}
	test := exec.CommandContext(t.Context(), "go", "tool", "test2json", tests, "-test.v=test2json", "-test.timeout=5m", "-test.run", "^("+strings.Join(slices.Compact(top), "|")+")$")
	test.Dir, test.Env = filepath.Join(root, "test/attack"), append(os.Environ(), "MUSTER_TEST_PROGRAM="+program)
	out, err := test.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	results := map[string]string{}
	for line := range bytes.Lines(out) {
		var event struct {
			Action string `json:"Action"`
			Test   string `json:"Test"`
		}
		if json.Unmarshal(line, &event) == nil && (event.Action == "pass" || event.Action == "fail" || event.Action == "skip") {
			results[event.Test] = event.Action
		}
	}
	return results, out
}
