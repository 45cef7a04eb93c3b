package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/specvalidate"
)

func newApp(in string) (a *runner, out, err *bytes.Buffer) {
	out, err = new(bytes.Buffer), new(bytes.Buffer)
	return &runner{&app.App{In: strings.NewReader(in), Out: term.Screen{Writer: out}, Err: term.Screen{Writer: err}}}, out, err
}

// forEachCommand calls do for every command with its full name.
func forEachCommand(commands []*cli.Command, parent string, fn func(name string, c *cli.Command)) {
	for _, c := range commands {
		name := strings.TrimSpace(parent + " " + c.Name)
		fn(name, c)
		forEachCommand(c.Commands, name, fn)
	}
}

// withEnv are the commands whose options with a value have a variable, except options that may be repeated.
var withEnv = []string{"up", "server", "worker"}

// foreignEnv are those that the worker of another system reads, by the last word of the command that takes them, too.
var foreignEnv = map[string]*regexp.Regexp{
	"dtf":        regexp.MustCompile(`^DT_[A-Z_]+$`),
	"trainforge": regexp.MustCompile(`^TRAINFORGE_[A-Z_]+$`),
	"mloc":       regexp.MustCompile(`^(REDIS_URL|RESULTS_DIR|TASK_TOPIC|HEARTBEAT_INTERVAL_SEC|ORCHESTRATOR_BASE_URL|WORKER_[A-Z_]+)$`),
}

// TestFrequentCommands checks that the commands that are made alone are those of the list, under their names.
func TestFrequentCommands(t *testing.T) {
	a, _, _ := newApp("")
	help := func(commands []*cli.Command, name string) string {
		b, out, _ := newApp("")
		if status := b.Run(t.Context(), commands, []string{"muster", name, "--help"}); status != 0 {
			t.Fatalf("%s --help ends with %d", name, status)
		}
		return out.String()
	}
	for name, command := range a.frequent() {
		c := command()
		if c.Name != name {
			t.Errorf("the command %s is named %s", name, c.Name)
		}
		b, _, _ := newApp("")
		if got, want := help([]*cli.Command{c}, name), help(b.commands(), name); got != want {
			t.Errorf("%s alone has the help %q, want %q", name, got, want)
		}
	}
}

func TestEveryOptionIsDescribed(t *testing.T) {
	a, _, _ := newApp("")
	help, err := os.ReadFile(filepath.Join("..", "..", "test", "script", "testdata", "help.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
		if c.Usage == "" || c.Category == "" && !strings.Contains(name, " ") {
			t.Errorf("%s: no usage or no category", name)
		} else if first := c.Usage[:1]; first != strings.ToUpper(first) || strings.HasSuffix(c.Usage, ".") {
			t.Errorf("%s: the usage does not begin with a capital letter, or ends with a dot: %s", name, c.Usage)
		}
		if !bytes.Contains(help, []byte("exec muster "+name+" --help\n")) {
			t.Errorf("%s: test/script does not hold its help text", name)
		}
		seen := map[string]bool{}
		for _, f := range c.Flags {
			for _, n := range f.Names() {
				if seen[n] {
					t.Errorf("%s: --%s is there twice", name, n)
				}
				seen[n] = true
			}
			d, ok := f.(cli.DocGenerationFlag)
			if !ok {
				t.Fatalf("%s: --%s cannot be described", name, f.Names()[0])
			}
			flag := f.Names()[0]
			if d.GetUsage() == "" {
				t.Errorf("%s: --%s has no usage", name, flag)
			}
			_, isSwitch := f.(*cli.BoolFlag)
			if first := d.GetUsage()[:1]; first != strings.ToUpper(first) || strings.Contains(d.GetUsage(), "`") {
				t.Errorf("%s: the usage of --%s does not begin with a capital letter, or has back quotes: %s", name, flag, d.GetUsage())
			}
			wanted := slices.Contains([]string{"server", "token"}, flag) ||
				slices.Contains(withEnv, name) && !isSwitch && !slices.Contains([]string{"help", "label", "output", "allow-read", "allow-write"}, flag)
			if got := len(d.GetEnvVars()) > 0; wanted && !got {
				t.Errorf("%s: --%s has no variable", name, flag)
			}
			above, last, _ := strings.Cut(name, " ")
			foreign := foreignEnv[last]
			for _, v := range d.GetEnvVars() {
				theirs := foreign != nil && (above == "bridge" || above == "worker") && foreign.MatchString(v)
				if !theirs && !regexp.MustCompile(`^MUSTER_[A-Z_]+$`).MatchString(v) {
					t.Errorf("%s: --%s has the variable %s", name, flag, v)
				}
			}
		}
	})
}

// TestExamplesParse parses the commands of all examples in help texts.
func TestExamplesParse(t *testing.T) {
	var examples []string
	a, out, _ := newApp("")
	forEachCommand(a.commands(), "", func(name string, _ *cli.Command) {
		out.Reset()
		if status := a.Run(t.Context(), a.commands(), append([]string{"muster"}, strings.Fields(name+" --help")...)); status != 0 {
			t.Errorf("%s --help: status %d", name, status)
		}
		_, table, _ := strings.Cut(out.String(), "\nExamples:\n")
		table, _, _ = strings.Cut(table, "\n\n")
		for line := range strings.Lines(table) {
			example, usage, _ := strings.Cut(strings.TrimSpace(line), "  ")
			examples = append(examples, example)
			if usage == "" {
				t.Errorf("%s: %q is not described", name, example)
			}
		}
	})
	if len(examples) < 10 {
		t.Errorf("there are %d examples", len(examples))
	}
	command := regexp.MustCompile(`muster [^|;)]+`)
	word := regexp.MustCompile(`'[^']*'|\S+`)
	for _, example := range examples {
		for _, text := range command.FindAllString(example, -1) {
			words := word.FindAllString(text, -1)
			found := false
			forEachCommand(a.commands(), "", func(name string, c *cli.Command) {
				if name != words[1] {
					return
				}
				found = true
				forEachCommand([]*cli.Command{c}, "", func(_ string, c *cli.Command) {
					c.Action = func(context.Context, *cli.Command) error { return nil }
				})
				if err := c.Run(t.Context(), words[1:]); err != nil {
					t.Errorf("%s: %v", example, err)
				}
			})
			if !found {
				t.Errorf("%s: there is no command %s", example, words[1])
			}
		}
	}
}

func TestRunCreatesASpec(t *testing.T) {
	t.Setenv("MUSTER_PROJECT", "")
	a, _, _ := newApp("")
	c := &runConfig{priority: muster.DefaultPriority}
	var args []string
	cmd := a.NewCommand(app.Command{Name: "run", StopAtFirstArg: true, Flags: c.flags(), Run: nil})
	cmd.Action = func(_ context.Context, c *cli.Command) error {
		args = c.Args().Slice()
		return nil
	}
	err := cmd.Run(t.Context(), strings.Fields("run --name n -p vision --priority 70 --label a=b --label c=d=e --env K=V,W "+
		"--cpus 1.5 --memory 2GiB --disk 1GB --pids 64 --network host --launcher torchrun --nproc-per-node 2 --checkpoint ckpt/ --gpus 2 --gpu-memory 10GiB --gpu-vendor nvidia --tags x,y --tags z --not slow --worker w1 --max-price 2.5 "+
		"--timeout 90 --queue-timeout 1h --retries 3 --retry-on exit:75,timeout --kill-signal SIGINT --kill-grace 5s --array 0-9:3 "+
		"--files . --artifact *.pt --artifact a,b --python-requirements r.txt --python-package numpy>=2,<3 "+
		"--image a/b:1 --isolation auto --entrypoint env --workdir /w --user 1:2 --pull always --shm-size 1MiB --read-only --cap-add NET_RAW --cap-add KILL --mount /a:/b:ro --mount /c:/d -- prog --flag x"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.spec(args)
	if err != nil {
		t.Fatal(err)
	}
	array, err := muster.ParseArray("0-9:3")
	if err != nil {
		t.Fatal(err)
	}
	want := &muster.Spec{
		Name: "n", Project: "vision", Priority: new(70), Labels: map[string]string{"a": "b", "c": "d=e"},
		Tasks: []muster.TaskSpec{{
			Array: &array, Files: ".", Run: &muster.Command{Argv: []string{"prog", "--flag", "x"}},
			Image: "a/b:1", Isolation: "auto", Container: &muster.Container{
				Entrypoint: []string{"env"}, Workdir: "/w", User: "1:2", Pull: "always", ShmSize: 1 << 20, ReadOnly: true, Capabilities: []string{"NET_RAW", "KILL"},
				Mounts: []muster.Mount{{Source: "/a", Target: "/b", ReadOnly: true}, {Source: "/c", Target: "/d"}},
			},
			Python:    &muster.Python{Requirements: "r.txt", Packages: []string{"numpy>=2,<3"}},
			Env:       map[string]string{"K": "V,W"},
			Resources: muster.Request{CPUs: 1.5, Memory: 2 << 30, Disk: 1e9, PIDs: 64, GPUs: muster.GPURequest{Count: 2, Memory: 10 << 30, Vendor: "nvidia"}},
			Where:     muster.Where{Tags: []string{"x", "y", "z"}, ExcludeTags: []string{"slow"}, Workers: []string{"w1"}, MaxPrice: 2.5},
			Timeout:   muster.Duration(90e9), QueueTimeout: muster.Duration(3600e9),
			Retries: muster.Retries{Max: 3, On: []string{"exit:75", "timeout"}}, Kill: muster.Kill{Signal: "SIGINT", Grace: muster.Duration(5e9)},
			Outputs: []string{"*.pt", "a,b"}, Network: "host", Launcher: "torchrun", NProcPerNode: 2, Checkpoint: &muster.Checkpoint{Path: "ckpt/"},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if wrong := specvalidate.Spec(got); len(wrong) > 0 {
		t.Errorf("the spec is not valid: %v", wrong)
	}
}

func TestRunInAContainer(t *testing.T) {
	yes := "" // the spec is valid
	for line, want := range map[string]struct {
		task  muster.TaskSpec
		wrong string
	}{
		"run --image a":                              {muster.TaskSpec{Image: "a", Kind: "container", Isolation: "container"}, yes},
		"run --image a x y":                          {muster.TaskSpec{Image: "a", Kind: "container", Isolation: "container", Run: &muster.Command{Argv: []string{"x", "y"}}}, yes},
		"run --image a -c x":                         {muster.TaskSpec{Image: "a", Kind: "container", Isolation: "container", Run: &muster.Command{Shell: "x"}}, yes},
		"run --image a --entrypoint= x":              {muster.TaskSpec{Image: "a", Kind: "container", Isolation: "container", Container: &muster.Container{Entrypoint: []string{}}, Run: &muster.Command{Argv: []string{"x"}}}, yes},
		"run --image a --files . x":                  {muster.TaskSpec{Image: "a", Kind: "script", Isolation: "container", Files: ".", Run: &muster.Command{Argv: []string{"x"}}}, yes},
		"run --image a --isolation auto x":           {muster.TaskSpec{Image: "a", Kind: "process", Isolation: "auto", Run: &muster.Command{Argv: []string{"x"}}}, yes},
		"run --image a --isolation auto":             {muster.TaskSpec{Image: "a", Isolation: "auto"}, "nothing to run"},
		"run --kind container x":                     {muster.TaskSpec{Kind: "container", Isolation: "container", Run: &muster.Command{Argv: []string{"x"}}}, "needs an image"},
		"run --user 1 x":                             {muster.TaskSpec{Kind: "process", Container: &muster.Container{User: "1"}, Run: &muster.Command{Argv: []string{"x"}}}, "need an image"},
		"run --network allowlist --allow-host a:1 x": {muster.TaskSpec{Kind: "process", Network: "allowlist", AllowHosts: []string{"a:1"}, Run: &muster.Command{Argv: []string{"x"}}}, yes},
	} {
		a, _, _ := newApp("")
		c := &runConfig{priority: muster.DefaultPriority}
		var args []string
		cmd := a.NewCommand(app.Command{Name: "run", StopAtFirstArg: true, Flags: c.flags(), Run: nil})
		cmd.Action = func(_ context.Context, c *cli.Command) error {
			args = c.Args().Slice()
			return nil
		}
		if err := cmd.Run(t.Context(), strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		spec, err := c.spec(args)
		if err != nil {
			t.Fatal(err)
		}
		got := spec.Normalize().Tasks[0]
		want.task.Name = got.Name
		if diff := cmp.Diff(want.task, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", line, diff)
		}
		wrong := specvalidate.Spec(spec)
		if want.wrong == yes && len(wrong) > 0 || want.wrong != yes && (len(wrong) != 1 || !strings.Contains(wrong[0].Message, want.wrong)) {
			t.Errorf("%s: %v, want %q", line, wrong, want.wrong)
		}
	}
}

func TestShortName(t *testing.T) {
	for want, args := range map[string][]string{
		"echo hi":             {"echo", "hi"},
		"sh -c echo a echo b": {"sh", "-c", "echo a\n  echo b"},
		"prog " + strings.Repeat("ü", 34) + "…": {"prog", strings.Repeat("ü", 50)},
	} {
		if got := shortName(args...); got != want {
			t.Errorf("shortName(%q) = %q, want %q", args, got, want)
		}
	}
}

func TestLocalParts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.py": "print()", "b.py": "#!/usr/bin/pypy\n", "c": "ls", "empty.sh": "", "big.sh": strings.Repeat("x", muster.MaxSpecSize+1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := document{dir: dir}
	for name, want := range map[string]*muster.Script{
		"a.py": {Text: "print()", Interpreter: []string{"python3"}, Args: []string{"x"}},
		"b.py": {Text: "#!/usr/bin/pypy\n", Args: []string{"x"}},
		"c":    {Text: "ls", Args: []string{"x"}},
	} {
		got, err := d.inlineScript(&muster.Script{File: name, Args: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	for name, want := range map[string]string{"empty.sh": "is empty", "big.sh": "1MiB", "nowhere": "no such file", ".": "is a directory"} {
		if _, err := d.inlineScript(&muster.Script{File: name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", name, err, want)
		}
	}
}

func TestJobNamesOfKinds(t *testing.T) {
	for input, want := range map[string]string{
		`{"model": "openai-community/gpt2", "dataset": "x"}`: "sft gpt2",
		`{"model": {"name": "a"}, "dataset": "data/train/"}`: "sft train",
		`{"base_model": "https://example.org/a/b?token=c"}`:  "sft b",
		`{"epochs": 3}`: "sft",
		``:              "sft",
	} {
		if got := kindJobName("sft", json.RawMessage(input)); got != want {
			t.Errorf("%s is called %q, want %q", input, got, want)
		}
	}
}
