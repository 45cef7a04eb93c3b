package cli

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// topicText returns the output of muster help NAME.
func topicText(t *testing.T, name string) string {
	t.Helper()
	text, err := output("muster", "help", name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestExitCodesAreDocumented checks that muster help exit-codes has each status of package app.
func TestExitCodesAreDocumented(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("app", "exit.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	text, found := topicText(t, "exit-codes"), 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Exit") {
			return true
		}
		found++
		status := spec.Values[0].(*ast.BasicLit).Value
		if !regexp.MustCompile(`(?m)^  ` + status + ` +\S`).MatchString(text) {
			t.Errorf("%s (%s) is not described", spec.Names[0].Name, status)
		}
		return true
	})
	if found < 9 {
		t.Errorf("there are %d statuses", found)
	}
}

func TestStatesAreDocumented(t *testing.T) {
	text := topicText(t, "states")
	var names []string
	for _, s := range muster.TaskStates {
		names = append(names, s.String())
	}
	for _, r := range muster.Reasons {
		names = append(names, string(r))
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^  ` + name + ` +\S`).MatchString(text) {
			t.Errorf("%s is not described", name)
		}
	}
}

// TestVariablesAreDocumented checks that muster help environment has each variable of an option, and each that a task gets.
func TestVariablesAreDocumented(t *testing.T) {
	text := topicText(t, "environment")
	found := 0
	check := func(name, from string) {
		found++
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(text) {
			t.Errorf("%s of %s is not described", name, from)
		}
	}
	a, _, _ := newApp("")
	forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
		if strings.HasPrefix(name, "bridge ") || strings.HasPrefix(name, "worker ") {
			return
		}
		for _, f := range c.Flags {
			if d, ok := f.(cli.DocGenerationFlag); ok {
				for _, env := range d.GetEnvVars() {
					check(env, name)
				}
			}
		}
	})
	own := []string{"MUSTER_MARK", "MUSTER_ALLOW_PRIVATE", "MUSTER_SERVER_URL", "MUSTER_WARM"} // between parts of the worker
	variable := regexp.MustCompile(`"(MUSTER_[A-Z_]*[A-Z])[="]`)
	for _, pattern := range []string{"process", "kinds"} {
		files, err := filepath.Glob(filepath.Join("..", "agent", "run", pattern, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range variable.FindAllStringSubmatch(string(source), -1) {
				if !slices.Contains(own, m[1]) {
					check(m[1], file)
				}
			}
		}
	}
	if found < 50 {
		t.Errorf("there are %d variables", found)
	}
}

func TestHelpOfTopics(t *testing.T) {
	root, err := output("muster", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range newRunner(nil, term.Screen{}, term.Screen{}).Topics {
		if !strings.Contains(root, "  "+topic.Name+" ") {
			t.Errorf("muster --help does not list %s", topic.Name)
		}
		if text := topicText(t, topic.Name); !strings.HasPrefix(text, topic.Usage+"\n") {
			t.Errorf("muster help %s: %s", topic.Name, text)
		}
	}
	for args, status := range map[string]int{"help nonsense": 2, "help exit-codes nonsense": 2, "help ps": 0, "help workers drain": 0, "help help": 0, "help": 0} {
		a, _, errs := newApp("")
		a.Topics = a.topics()
		if got := a.Run(t.Context(), a.commands(), append([]string{"muster"}, strings.Fields(args)...)); got != status {
			t.Errorf("muster %s: status %d, want %d: %s", args, got, status, errs)
		}
	}
}
