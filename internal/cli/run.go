package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/follow"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/specvalidate"
)

type runConfig struct {
	remote.ServerOptions
	detach     bool
	shell      bool
	project    string
	name       string
	priority   int
	labels     map[string]string
	array      muster.Array
	gang       int
	checkpoint string
	task       muster.TaskSpec
	python     muster.Python
	container  muster.Container
	mounts     []string
}

func (c *runConfig) flags() []cli.Flag {
	t := &c.task
	const groupResources, groupPlacement, groupRetries, groupFiles, groupContainer = "What it needs", "Where it runs", "How long and how often", "Files", "Container"
	return slices.Concat([]cli.Flag{
		app.Option{Name: "detach", Short: "d", Usage: "print the job's number and do not wait for it"}.BoolVar(&c.detach),
		app.Option{Name: "shell", Short: "c", Usage: "the command is one text for sh -c"}.BoolVar(&c.shell),
		app.Option{Name: "name", Usage: "the job's `NAME`"}.StringVar(&c.name),
		app.Option{Name: "project", Short: "p", Usage: "the job's `PROJECT`"}.WithEnv().StringVar(&c.project),
		app.Option{Name: "priority", Usage: "a `NUMBER` from 0 to 100, higher first"}.IntVar(&c.priority, muster.MinPriority, muster.MaxPriority),
		app.Option{Name: "label", Usage: "label the job with `NAME=VALUE`; may be repeated"}.MapVar(&c.labels),
		app.Option{Name: "env", Short: "e", Usage: "set a variable for the task, `NAME=VALUE`; may be repeated"}.MapVar(&t.Env),
		app.Var(app.Option{Name: "array", Usage: "run many tasks, one for each of these `NUMBERS`, such as 0-9 or 1,3,10-30:5; each finds its own in $MUSTER_INDEX"},
			&c.array, parseArray, muster.Array.String),
		app.Option{Name: "gang", Usage: "run this `NUMBER` of tasks that start together or not at all; each finds its rank in $MUSTER_RANK"}.IntVar(&c.gang, 1, muster.MaxGangSize),
		app.Option{Name: "launcher", Usage: "start the task's processes by this `PROGRAM`: torchrun"}.EnumVar(&t.Launcher, muster.LauncherTorchrun),
		app.Option{Name: "nproc-per-node", Usage: "the launcher starts `N` processes for each task (default: one on each of its GPUs, or one)"}.IntVar(&t.NProcPerNode, 1, 1024),
		app.Option{Name: "kind", Usage: "the `KIND` of task: process, script, container, noop (default: what fits), or one of muster kinds"}.StringVar(&t.Kind),
		app.Var(app.Option{Name: "input", Usage: "what is wanted of the kind, as `JSON` such as '{\"epochs\": 3}', or @FILE with such"}, &t.Input, parseInput, func(b json.RawMessage) string { return string(b) }),

		app.Option{Name: "cpus", Usage: "processor `CORES`, such as 0.5 or 8", Group: groupResources}.FloatVar(&t.Resources.CPUs, 1<<20),
		app.Option{Name: "memory", Short: "m", Usage: "main memory in `BYTES`, such as 4GiB", Group: groupResources}.SizeVar(&t.Resources.Memory),
		app.Option{Name: "disk", Usage: "disk space in `BYTES`, such as 10GiB", Group: groupResources}.SizeVar(&t.Resources.Disk),
		app.Option{Name: "pids", Usage: "at most this `NUMBER` of processes and threads at once", Group: groupResources}.IntVar(&t.Resources.PIDs, 1, muster.MaxPIDs),
		app.Option{Name: "network", Usage: "the task's `NETWORK`: host, bridge (containers only), allowlist for the hosts of --allow-host alone, or none without any way out (default: bridge in a container, else host)", Group: groupResources}.
			EnumVar(&t.Network, muster.NetworkHost, muster.NetworkBridge, muster.NetworkAllowlist, muster.NetworkNone),
		app.Option{Name: "allow-host", Usage: "with --network allowlist: let the task reach this `HOST`, such as pypi.org or '*.hf.co:443'; may be repeated", Group: groupResources}.RepeatedVar(&t.AllowHosts),
		app.Option{Name: "gpus", Short: "g", Usage: "this `NUMBER` of GPUs", Group: groupResources}.IntVar(&t.Resources.GPUs.Count, 0, 1<<16),
		app.Option{Name: "gpu-memory", Usage: "memory that each GPU must have, in `BYTES`", Group: groupResources}.SizeVar(&t.Resources.GPUs.Memory),
		app.Option{Name: "gpu-share", Usage: "take only that much memory of each GPU and share the rest", Group: groupResources}.BoolVar(&t.Resources.GPUs.Share),
		app.Option{Name: "gpu-vendor", Usage: "only GPUs of this `VENDOR`: nvidia, amd, intel or apple", Group: groupResources}.StringVar(&t.Resources.GPUs.Vendor),
		app.Option{Name: "gpu-model", Usage: "only GPUs with this `TEXT` in their name, such as A100", Group: groupResources}.StringVar(&t.Resources.GPUs.Model),

		app.Option{Name: "tags", Usage: "only on workers with all of these `TAGS`", Group: groupPlacement}.ListVar(&t.Where.Tags),
		app.Option{Name: "not", Usage: "never on workers with one of these `TAGS`", Group: groupPlacement}.ListVar(&t.Where.ExcludeTags),
		app.Option{Name: "worker", Usage: "only on these `WORKERS`, by name or id", Group: groupPlacement}.ListVar(&t.Where.Workers),
		app.Option{Name: "max-price", Usage: "only on workers up to this `PRICE` an hour", Group: groupPlacement}.FloatVar(&t.Where.MaxPrice, 1e9),

		app.Option{Name: "timeout", Usage: "stop an attempt after this `DURATION`, such as 90s or 2h", Group: groupRetries}.DurationVar(&t.Timeout),
		app.Option{Name: "queue-timeout", Usage: "give up if it has not started after this `DURATION`", Group: groupRetries}.DurationVar(&t.QueueTimeout),
		app.Option{Name: "retries", Usage: "try again up to `N` times if it fails", Group: groupRetries}.IntVar(&t.Retries.Max, 0, 1<<20),
		app.Option{Name: "retry-on", Usage: "only after these `REASONS`, such as exit:75 or out_of_memory", Group: groupRetries}.ListVar(&t.Retries.On),
		app.Option{Name: "kill-grace", Usage: "leave this `DURATION` between the signal to stop and the kill", Group: groupRetries}.DurationVar(&t.Kill.Grace),

		app.Option{Name: "files", Short: "f", Usage: "bring this `FOLDER` along; the task runs in a copy of it", Group: groupFiles}.StringVar(&t.Files),
		app.Option{Name: "output", Usage: "keep files that match this `GLOB` as artifacts, such as model.pt or 'plots/*.png'; may be repeated", Group: groupFiles}.RepeatedVar(&t.Outputs),
		app.Option{Name: "checkpoint", Usage: "the task saves its state in this `FOLDER`, such as ckpt/, and goes on from there on any worker", Group: groupFiles}.StringVar(&c.checkpoint),
		app.Option{Name: "python-requirements", Usage: "this `FILE` in the folder of --files says what the task's Python environment has", Group: groupFiles}.StringVar(&c.python.Requirements),
		app.Option{Name: "python-package", Usage: "a Python `PACKAGE` for the task's environment, such as 'numpy>=2'; may be repeated", Group: groupFiles}.RepeatedVar(&c.python.Packages),
		app.Option{Name: "python-version", Usage: "the `VERSION` of Python, such as 3.12", Group: groupFiles}.StringVar(&c.python.Version),

		app.Option{Name: "image", Usage: "run in a container of this `IMAGE`, such as python:3.12; without a command it runs the image's own", Group: groupContainer}.StringVar(&t.Image),
		app.Option{Name: "isolation", Usage: "run in a `PLACE` of its own: container, process, or auto for a container where the worker has an engine (default: container with --image)", Group: groupContainer}.
			EnumVar(&t.Isolation, muster.IsolationContainer, muster.IsolationProcess, muster.IsolationAuto),
		app.Var(app.Option{Name: "entrypoint", Usage: "this `PROGRAM` in place of the image's entrypoint; \"\" for none", Group: groupContainer},
			&c.container.Entrypoint, parseEntrypoint, func(words []string) string { return strings.Join(words, " ") }),
		app.Option{Name: "workdir", Short: "w", Usage: "start in this `FOLDER` of the container (default: the task's folder, or the image's own without a command)", Group: groupContainer}.StringVar(&c.container.Workdir),
		app.Option{Name: "user", Short: "u", Usage: "run as this `USER`, a name or number, with :group (default: the image's)", Group: groupContainer}.StringVar(&c.container.User),
		app.Option{Name: "pull", Usage: "`WHEN` to ask the image's registry: missing on the worker, always or never (default: missing)", Group: groupContainer}.
			EnumVar(&c.container.Pull, muster.PullMissing, muster.PullAlways, muster.PullNever),
		app.Option{Name: "shm-size", Usage: "let /dev/shm have these `BYTES`, such as 1GiB", Group: groupContainer}.SizeVar(&c.container.ShmSize),
		app.Option{Name: "read-only", Usage: "the image's files cannot be changed", Group: groupContainer}.BoolVar(&c.container.ReadOnly),
		app.Option{Name: "cap-add", Usage: "let it keep this `CAPABILITY`, such as NET_RAW; may be repeated", Group: groupContainer}.RepeatedVar(&c.container.Capabilities),
		app.Option{Name: "mount", Usage: "a folder of the worker, if its owner allows it: `SOURCE:TARGET`, with :ro for reading only; may be repeated", Group: groupContainer}.RepeatedVar(&c.mounts),
	}, c.Flags())
}

// parseArray refuses a lone number as a spec does: it could be meant as a count.
func parseArray(s string) (muster.Array, error) {
	if _, err := strconv.ParseUint(s, 10, 32); err == nil {
		var a muster.Array
		return a, a.UnmarshalJSON([]byte(s))
	}
	return muster.ParseArray(s)
}

// parseInput reads an object of JSON, or a file with one.
func parseInput(s string) (json.RawMessage, error) {
	text := []byte(s)
	if name, isFile := strings.CutPrefix(s, "@"); isFile {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, muster.Errorf(muster.Invalid, "the input cannot be read: %w", err)
		}
	}
	if err := json.Unmarshal(text, &map[string]json.RawMessage{}); err != nil {
		if strings.HasSuffix(s, ".json") && !strings.HasPrefix(s, "@") {
			return nil, muster.Errorf(muster.Invalid, "it is no object of JSON: write @%s to read that file", s)
		}
		return nil, muster.Errorf(muster.Invalid, "it is no object of JSON: %w", err)
	}
	return text, nil
}

// parseEntrypoint reads one program, or nothing for none.
func parseEntrypoint(s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	return []string{s}, nil
}

func (a *runner) runCommand() *cli.Command {
	c := &runConfig{priority: muster.DefaultPriority}
	return a.NewCommand(app.Command{
		Name: "run", Usage: "run a command on the fleet, show its output and end with its exit code", Args: "[--] [CMD [ARG…]]",
		Category: app.CategorySubmit, Flags: c.flags(), StopAtFirstArg: true,
		Description: "The exit status is the task's own; 124 if it timed out, 125 if the fleet is to blame, 130 if it was cancelled. " +
			"At a terminal Ctrl-C asks whether to cancel the job or to leave it running; elsewhere it cancels the job, as SIGTERM always does. The command's standard input is empty.",
		ForeignOptions: dockerHints(),
		Run:            func(ctx context.Context, args []string) error { return a.runTask(ctx, c, args) },
	})
}

// dockerHints are options of docker run which run has not, or calls otherwise.
func dockerHints() map[string]string {
	const (
		mounts      = "--mount SOURCE:TARGET gives a folder of the worker if its owner allows it, and --files FOLDER brings one of yours along"
		interactive = "a task has no terminal and no input, so leave it out"
		ports       = "nobody comes in to a container; one with --network host can listen on the worker's own ports if its owner allows it"
		implied     = "that is so anyway, so leave it out"
		devices     = "a container has no devices but its GPUs, by --gpus NUMBER"
	)
	return map[string]string{
		"v": mounts, "volume": mounts, "i": interactive, "t": interactive, "it": interactive, "ti": interactive, "interactive": interactive, "tty": interactive,
		"publish": ports, "P": ports, "publish-all": ports, "init": implied, "rm": "a container goes when its task has ended, so leave it out",
		"net": "write --network", "env-file": "write --env NAME=VALUE for each variable", "pids-limit": "write --pids NUMBER",
		"privileged": "no container is; --cap-add CAPABILITY lets it keep some that Docker grants by default",
		"cap-drop":   "all but a few are dropped anyway, so leave it out", "device": devices, "runtime": devices,
		"ipc": "no container has the machine's; --shm-size BYTES lets /dev/shm have more", "tmpfs": "$TMPDIR and /dev/shm are there anyway",
		"restart": "write --retries N", "stop-timeout": "write --kill-grace DURATION", "platform": "write --tags, such as --tags arm64",
	}
}

func (a *runner) runTask(ctx context.Context, c *runConfig, args []string) error {
	spec, err := c.spec(args)
	if err != nil {
		return err
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	doc := document{spec: spec, dir: "."}
	if fields := append(specvalidate.Spec(spec), doc.inlineLocalFiles()...); len(fields) > 0 {
		return &muster.Error{Code: muster.InvalidSpec, Message: "the job cannot be submitted", Fields: fields}
	}
	sigs, release := follow.Signals()
	defer release()
	jobs, err := a.submitAll(ctx, server, []document{doc})
	if err != nil {
		return err
	}
	if c.detach {
		return app.WriteOutput(a.Out, []byte(jobs[0].ID.String()+"\n"))
	}
	customKind := c.task.Kind != "" && !slices.Contains(kind.Core(), c.task.Kind)
	summary := follow.SummaryNone
	if customKind {
		summary = follow.SummaryArtifacts
	}
	if err := follow.Follow(ctx, a.App, server, jobs[0], summary, sigs); err != nil || !customKind {
		return err
	}
	// What kinds with an input find out is their result rather than what they print.
	if err := a.result(ctx, &resultConfig{ServerOptions: c.ServerOptions}, []string{jobs[0].ID.String()}); muster.CodeOf(err) != muster.NotFound {
		return err
	}
	return nil
}

// spec makes the job that the options describe.
func (c *runConfig) spec(args []string) (*muster.Spec, error) {
	t := c.task
	switch {
	case t.Kind == muster.KindNoop && len(args) > 0:
		return nil, muster.Errorf(muster.Invalid, "a noop task runs nothing: leave the command out")
	case t.Kind == muster.KindNoop:
	case len(args) == 0 && t.Kind != "" && !slices.Contains(kind.Core(), t.Kind): // it brings its own program
	case len(args) == 0 && t.Image == "":
		return nil, muster.Errorf(muster.Invalid, "no command is given: write muster run [options] -- CMD ARG…")
	case len(args) == 0:
	case c.shell && len(args) > 1:
		return nil, muster.Errorf(muster.Invalid, "--shell takes the command as one text, but there are %d: put quotes around all of it", len(args))
	case c.shell:
		t.Run = &muster.Command{Shell: args[0]}
	default:
		t.Run = &muster.Command{Argv: args}
	}
	if err := c.setContainer(&t); err != nil {
		return nil, err
	}
	if c.python.Requirements != "" && t.Files == "" {
		return nil, muster.Errorf(muster.Invalid, "--python-requirements names a file in the task's folder: bring the folder along with --files, such as --files .")
	}
	if c.python.Requirements != "" || len(c.python.Packages) > 0 || c.python.Version != "" {
		t.Python = &c.python
	}
	if len(c.array.Ranges) > 0 {
		t.Array = &c.array
	}
	if c.gang > 0 {
		t.Gang = &muster.Gang{Size: c.gang}
	}
	if c.checkpoint != "" {
		t.Checkpoint = &muster.Checkpoint{Path: c.checkpoint}
	}
	name := c.name
	switch {
	case name != "":
	case len(args) > 0:
		name = shortName(args)
	case t.Image != "":
		name = shortName([]string{t.Image})
	case t.Kind != muster.KindNoop:
		name = kindJobName(t.Kind, t.Input)
	}
	return &muster.Spec{Name: name, Project: c.project, Priority: &c.priority, Labels: c.labels, Tasks: []muster.TaskSpec{t}}, nil
}

// kindJobName is what a job of a kind is called: by it, and by the model or the data that it is about.
func kindJobName(kind string, input json.RawMessage) string {
	var in map[string]any
	_ = json.Unmarshal(input, &in) // it was read before
	for _, field := range []string{"model", "base_model", "dataset", "test_file", "name"} {
		if subject, ok := in[field].(string); ok && subject != "" {
			subject, _, _ = strings.Cut(subject, "?")
			return shortName([]string{kind, path.Base(subject)})
		}
	}
	return kind
}

// setContainer puts the options of a container into the spec.
func (c *runConfig) setContainer(t *muster.TaskSpec) error {
	for _, s := range c.mounts {
		b, err := json.Marshal(s)
		if err != nil {
			return err
		}
		var m muster.Mount
		if err := m.UnmarshalJSON(b); err != nil {
			return muster.Errorf(muster.Invalid, "--mount: %w", err)
		}
		c.container.Mounts = append(c.container.Mounts, m)
	}
	if !reflect.ValueOf(c.container).IsZero() {
		t.Container = &c.container
	}
	return nil
}

// shortName is what a job is called after its command.
func shortName(args []string) string {
	const maxLen = 40
	name := []rune(strings.Join(strings.Fields(strings.Join(args, " ")), " "))
	if len(name) > maxLen {
		return fmt.Sprintf("%s…", string(name[:maxLen-1]))
	}
	return string(name)
}
