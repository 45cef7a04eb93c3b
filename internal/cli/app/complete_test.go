package app

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/urfave/cli/v3"
)

// completionTree returns commands with each form of option and argument. The completer of jobs names the value of --server, the prefix and
// the arguments.
func completionTree(a *App) []*cli.Command {
	var text, server, path string
	var states []string
	var verbose, quick bool
	jobs := func(_ context.Context, prefix string, args []string) ([]Candidate, error) {
		return []Candidate{
			{"17", "train\x1b[31m,\n failed"}, {"18", ""}, {"170", ""}, {"18", "twice"}, {"-1", "an option"}, {"$(touch x)", "a command"}, {"1;x", ""}, {"1 2", ""}, {":files", ""}, {"1\n2", ""}, {"1\xff", ""}, {"", ""},
			{"on-" + server, ""}, {"after-" + strings.Join(args, "+") + prefix, ""},
		}, nil
	}
	flags := func() []cli.Flag {
		return []cli.Flag{
			Option{Name: "state", Short: "s", Usage: "States", Complete: Values("failed", "finished", "running").List()}.ListVar(&states),
			Option{Name: "server", Env: "TEST_SERVER", Usage: "Server"}.StringVar(&server),
			Option{Name: "format", Short: "o", Usage: "Format", Aliases: []string{"form"}}.EnumVar(&text, "json", "yaml"),
			Option{Name: "file", Value: "path", Usage: "File"}.StringVar(&path),
			Option{Name: "free", Usage: "Free"}.StringVar(&text),
			Option{Name: "verbose", Short: "v", Usage: "Verbose"}.BoolVar(&verbose),
			Option{Name: "quick", Short: "q", Usage: "Quick"}.BoolVar(&quick),
		}
	}
	none := func(context.Context, []string) error { return nil }
	hidden := a.NewCommand(Command{Name: "secret", Usage: "Hidden", Run: none})
	hidden.Hidden = true
	broken := func(context.Context, string, []string) ([]Candidate, error) { return nil, errors.New("no server") }
	some := func(context.Context, string, []string) ([]Candidate, error) {
		return []Candidate{{"17.3:", ""}}, ErrFiles
	}
	return []*cli.Command{
		a.NewCommand(Command{Name: "logs", Usage: "Print logs", Args: "JOB…", Flags: flags(), Complete: jobs, Run: none}),
		a.NewCommand(Command{Name: "run", Usage: "Run", Args: "CMD", StopAtFirstArg: true, Flags: flags(), Run: none}),
		a.NewCommand(Command{Name: "exec", Usage: "Execute", Args: "JOB CMD", StopAtFirstArg: true, Flags: flags(), Complete: jobs, Run: none}),
		a.NewCommand(Command{Name: "list", Usage: "List", Flags: flags(), Run: none}),
		a.NewCommand(Command{Name: "submit", Usage: "Submit", Args: "FILE…", Run: none}),
		a.NewCommand(Command{Name: "broken", Usage: "Broken", Args: "JOB", Complete: broken, Run: none}),
		a.NewCommand(Command{Name: "cp", Usage: "Copy", Args: "A B", Complete: some, Run: none}),
		a.NewCommand(Command{Name: "shell", Usage: "Shell", Args: "JOB", Complete: Completer(jobs).Once(), Run: none}),
		a.NewCommand(Command{Name: "keys", Usage: "Keys", Commands: []*cli.Command{
			a.NewCommand(Command{Name: "list", Usage: "List keys", Run: none}), a.NewCommand(Command{Name: "revoke", Usage: "Revoke keys", Args: "KEY", Complete: Values("k1", "k2"), Run: none}), hidden,
		}}),
		a.NewCommand(Command{Name: "slow", Usage: "Slow", Args: "JOB", Complete: func(ctx context.Context, _ string, _ []string) ([]Candidate, error) {
			time.Sleep(time.Hour) // like a file that is a pipe
			return nil, nil
		}, Run: none}),
	}
}

// completed returns what muster __complete prints, as one line.
func completed(t *testing.T, words ...string) string {
	t.Helper()
	a, out, errs := newApp()
	a.Topics = []Topic{{Name: "states", Usage: "States"}}
	if status := a.Run(t.Context(), completionTree(a), append([]string{"muster", "__complete"}, words...)); status != 0 || errs.Len() > 0 {
		t.Errorf("%q: status %d, %s", words, status, errs)
	}
	return strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "\n", " ")
}

func TestComplete(t *testing.T) {
	const s = ":values"
	for line, want := range map[string]string{
		"":            "logs\tPrint logs run\tRun exec\tExecute list\tList submit\tSubmit broken\tBroken cp\tCopy shell\tShell keys\tKeys slow\tSlow help\tShow the help of a command or topic " + s,
		"l":           "logs\tPrint logs list\tList " + s,
		"-":           "--help\tShow this help --version\tShow the version " + s,
		"--v":         "--version\tShow the version " + s,
		"nonsense ":   s,
		"nonsense -":  "--help\tShow this help --version\tShow the version " + s,
		"keys ":       "list\tList keys revoke\tRevoke keys " + s,
		"keys s":      s,
		"keys list ":  s,
		"keys x ":     s,
		"keys revoke": "revoke\tRevoke keys " + s, "keys revoke ": "k1 k2 " + s, "keys revoke k1 ": "k2 " + s,

		"help ":  "logs\tPrint logs run\tRun exec\tExecute list\tList submit\tSubmit broken\tBroken cp\tCopy shell\tShell keys\tKeys slow\tSlow states\tStates " + s,
		"help s": "submit\tSubmit shell\tShell slow\tSlow states\tStates " + s, "help keys r": "revoke\tRevoke keys " + s, "help keys revoke ": s, "help x ": s,

		"logs --s": "--state\tStates --server\tServer " + s, "list -v --f": "--format\tFormat --file\tFile --free\tFree " + s, "list -vq --ver": "--verbose\tVerbose " + s, "list -s": s,
		"list --state ": "failed finished running " + s, "list --state f": "failed finished " + s, "list -s x,fi": "x,finished " + s, "list -s failed,f": "failed,finished " + s,
		"list --state=f": "--state=failed --state=finished " + s, "list -s=failed,": "-s=failed,finished -s=failed,running " + s, "list -vqs r": "running " + s,
		"list --format ": "json yaml " + s, "list --form y": "yaml " + s, "list -o j": "json " + s, "list --format x": s,
		"list --free ": s, "list --free x --f": "--format\tFormat --file\tFile --free\tFree " + s, "list --free=": s,
		"list --file ": ":files", "list --file=a": ":files", "list --nonsense ": s, "list --nonsense=": s, "list --verbose ": s, "list ": s, "list x ": s,

		"logs ":               "17\ttrain [31m, failed 18 170 on-env after- " + s,
		"logs 17":             "17\ttrain [31m, failed 170 " + s,
		"logs 17 18 1":        "170 " + s,
		"logs a":              "after-a " + s,
		"logs -v 17 -s x a":   "after-17a " + s,
		"logs --server lab o": "on-lab " + s, "logs --server=lab o": "on-lab " + s, "logs o": "on-env " + s, "logs --server lab --server b o": "on-b " + s,
		"logs -- --v 1": "17\ttrain [31m, failed 18 170 " + s, "logs -- -": s, "logs - a": "after--a " + s,

		"run ": ":files", "run -- ": ":files", "run x -": ":files", "run -o x --s": "--state\tStates --server\tServer " + s,
		"exec 1": "17\ttrain [31m, failed 18 170 " + s, "exec 17 ": ":files", "exec 17 -- ": ":files", "exec 17 --s": ":files",
		"submit ": ":files", "submit -": "--help\tShow this help " + s, "submit a.yaml ": ":files",
		"broken ": s, "cp 17": "17.3: :files", "cp x": ":files", "shell 17 ": s, "shell 18": "18 " + s,
	} {
		t.Setenv("TEST_SERVER", "env")
		if got := completed(t, strings.Split(line, " ")...); got != want {
			t.Errorf("%q:\n got %q\nwant %q", line, got, want)
		}
	}
	if got := completed(t); !strings.HasPrefix(got, "logs\t") {
		t.Errorf("without a word: %q", got)
	}
}

func TestCompletionHasALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if got := completed(t, "slow", ""); got != ":values" {
			t.Errorf("got %q", got)
		}
		if took := time.Since(start); took != completionTimeout {
			t.Errorf("it takes %v", took)
		}
		time.Sleep(2 * time.Hour) // the completer ends
	})
	c := &completion{}
	for i := range maxCandidates + 10 {
		c.add("", Candidate{Value: strconv.Itoa(i)})
	}
	if len(c.candidates) != maxCandidates {
		t.Errorf("there are %d candidates", len(c.candidates))
	}
}

func FuzzComplete(f *testing.F) {
	for _, s := range []string{"logs 1", "list --state=f", "list -vqs\x00x", "run -- -\xff", "help keys ", "-=", "--=", "list -ü", "list -", "keys -- revoke ", "list --form\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words := strings.Split(line, " ")
		if slices.Contains(words, "slow") {
			return
		}
		a, out, _ := newApp()
		if status := a.Run(t.Context(), completionTree(a), append([]string{"muster", "__complete"}, words...)); status != 0 {
			t.Fatalf("status %d", status)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		last := len(lines) - 1
		if lines[last] != ":values" && lines[last] != ":files" {
			t.Errorf("it ends with %q", lines[last])
		}
		for _, l := range lines[:last] {
			value, usage, _ := strings.Cut(l, "\t")
			if !strings.HasPrefix(value, words[len(words)-1]) || strings.ContainsAny(value, " \t\r\n\"'`$\\;&|<>(){}[]*?!#~^") || strings.ContainsFunc(usage, unicode.IsControl) {
				t.Errorf("line %q", l)
			}
		}
	})
}
