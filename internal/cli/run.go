package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
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
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/specvalidate"
)

type runConfig struct {
	remote.QueryOptions
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
	envFiles   []string
	secrets    []string
	pullSecret string
	stdin      bool
	sign       signOptions
}

func (c *runConfig) flags() []cli.Flag {
	t := &c.task
	const groupResources, groupScheduling, groupRetries, groupFiles, groupNetwork, groupPython, groupContainers = "Resources", "Scheduling", "Timeouts and retries", "Files", "Network", "Python", "Containers"
	return c.Flags(append(c.sign.flags(""),
		app.Option{Name: "detach", Short: "d", Usage: "Print the job id and exit without waiting"}.BoolVar(&c.detach),
		app.Option{Name: "interactive", Short: "i", Usage: "Pass standard input to the task; it is read to its end first"}.BoolVar(&c.stdin),
		app.Option{Name: "shell", Short: "c", Usage: "Run the command, a single argument, with sh -c"}.BoolVar(&c.shell),
		app.Option{Name: "name", Usage: "Name of the job"}.StringVar(&c.name),
		app.Option{Name: "project", Short: "p", Usage: "Project of the job", Complete: c.CompleteProjects()}.WithEnv().StringVar(&c.project),
		app.Option{Name: "label", Usage: "Label of the job; may be repeated"}.MapVar(&c.labels),
		app.Option{Name: "env", Short: "e", Usage: "Environment variable of the task, NAME=VALUE, or NAME for its value here; may be repeated"}.EnvVar(&t.Env),
		app.Option{Name: "env-file", Value: "path", Usage: "File with environment variables of the task, a line each; may be repeated"}.RepeatedVar(&c.envFiles),
		app.Var(app.Option{Name: "array", Value: "range", Usage: "Run one task for each index, such as 0-9 or 1,3,10-30:5, with the index in $MUSTER_INDEX"},
			&c.array, parseArray, muster.Array.String),
		app.Option{Name: "gang", Usage: "Run this number of tasks, which start together or not at all, with the rank in $MUSTER_RANK"}.IntVar(&c.gang, 1, muster.MaxGangSize),
		app.Option{Name: "secret", Value: "name", Usage: "Give the task this secret of the project, as the variable of that name; may be repeated", Complete: c.CompleteSecrets(&c.project)}.RepeatedVar(&c.secrets),
		app.Option{Name: "launcher", Usage: "Start the task's processes with this program: torchrun"}.EnumVar(&t.Launcher, muster.LauncherTorchrun),
		app.Option{Name: "nproc-per-node", Usage: "Number of processes that the launcher starts for each task (default: one per GPU, at least one)"}.IntVar(&t.NProcPerNode, 1, 1024),
		app.Option{Name: "kind", Usage: "Kind of task: process, script, container, noop, or one of 'muster kinds' (default: inferred from the other options)", Complete: c.CompleteKinds()}.StringVar(&t.Kind),
		app.Var(app.Option{Name: "input", Value: "json", Usage: "Input for the kind, as JSON or @FILE"}, &t.Input, parseInput, func(b json.RawMessage) string { return string(b) }),

		app.Option{Name: "cpus", Usage: "Number of CPU cores, such as 0.5 or 8", Group: groupResources}.FloatVar(&t.Resources.CPUs, 1<<20),
		app.Option{Name: "memory", Short: "m", Usage: "Memory, such as 4GiB", Group: groupResources}.SizeVar(&t.Resources.Memory),
		app.Option{Name: "disk", Usage: "Disk space, such as 10GiB", Group: groupResources}.SizeVar(&t.Resources.Disk),
		app.Option{Name: "pids", Usage: "Maximum number of processes and threads", Group: groupResources}.IntVar(&t.Resources.PIDs, 1, muster.MaxPIDs),
		app.Option{Name: "gpus", Short: "g", Usage: "Number of GPUs", Group: groupResources}.IntVar(&t.Resources.GPUs.Count, 0, 1<<16),
		app.Option{Name: "gpu-memory", Usage: "Minimum memory of each GPU", Group: groupResources}.SizeVar(&t.Resources.GPUs.Memory),
		app.Option{Name: "gpu-share", Usage: "Share each GPU: use only --gpu-memory of it", Group: groupResources}.BoolVar(&t.Resources.GPUs.Share),
		app.Option{Name: "gpu-vendor", Usage: "Only GPUs of this vendor: nvidia, amd, intel or apple", Group: groupResources, Complete: app.Values(muster.Vendors...)}.StringVar(&t.Resources.GPUs.Vendor),
		app.Option{Name: "gpu-model", Usage: "Only GPUs whose name contains this text, such as A100", Group: groupResources}.StringVar(&t.Resources.GPUs.Model),

		app.Option{Name: "priority", Usage: "Priority from 0 to 100, higher first", Group: groupScheduling}.IntVar(&c.priority, muster.MinPriority, muster.MaxPriority),
		app.Option{Name: "tags", Aliases: []string{"tag"}, Usage: "Only workers with all of these tags", Group: groupScheduling, Complete: c.CompleteTags().List()}.ListVar(&t.Where.Tags),
		app.Option{Name: "not", Usage: "No workers with any of these tags", Group: groupScheduling, Complete: c.CompleteTags().List()}.ListVar(&t.Where.ExcludeTags),
		app.Option{Name: "worker", Usage: "Only these workers, by name or id", Group: groupScheduling, Complete: c.CompleteWorkers().List()}.ListVar(&t.Where.Workers),
		app.Option{Name: "max-price", Usage: "Only workers up to this price per hour", Group: groupScheduling}.FloatVar(&t.Where.MaxPrice, 1e9),

		app.Option{Name: "timeout", Usage: "Maximum run time of an attempt, such as 90s or 2h", Group: groupRetries}.DurationVar(&t.Timeout),
		app.Option{Name: "log-cap", Usage: "Size of an attempt's log: beyond it, the beginning and the end are kept (default: 64MiB)", Group: groupRetries}.SizeVar(&t.LogCap),
		app.Option{Name: "queue-timeout", Usage: "Maximum time in the queue", Group: groupRetries}.DurationVar(&t.QueueTimeout),
		app.Option{Name: "retries", Usage: "Number of retries after failures", Group: groupRetries}.IntVar(&t.Retries.Max, 0, 1<<20),
		app.Option{Name: "retry-on", Usage: "Retry only after these reasons, such as exit:75 or out_of_memory", Group: groupRetries, Complete: app.States(muster.Reasons).List()}.ListVar(&t.Retries.On),
		app.Option{Name: "kill-signal", Usage: "Signal that stops the task, such as SIGINT (default: SIGTERM)", Group: groupRetries}.EnumVar(&t.Kill.Signal, muster.TaskSignals...),
		app.Option{Name: "kill-grace", Usage: "Time between the stop signal and SIGKILL", Group: groupRetries}.DurationVar(&t.Kill.Grace),

		app.Option{Name: "files", Short: "f", Value: "path", Usage: "Directory to upload; the task runs in a copy of it", Group: groupFiles}.StringVar(&t.Files),
		app.Option{Name: "artifact", Value: "pattern", Usage: "Store matching files as artifacts, such as model.pt or 'plots/*.png'; may be repeated", Group: groupFiles}.RepeatedVar(&t.Outputs),
		app.Option{Name: "checkpoint", Value: "path", Usage: "Directory to save, such as ckpt/; later attempts start with its contents on any worker", Group: groupFiles}.StringVar(&c.checkpoint),

		app.Option{Name: "network", Usage: "Network: host, bridge (containers only), allowlist (only the hosts of --allow-host) or none (default: bridge in a container, else host)", Group: groupNetwork}.
			EnumVar(&t.Network, muster.NetworkHost, muster.NetworkBridge, muster.NetworkAllowlist, muster.NetworkNone),
		app.Option{Name: "allow-host", Usage: "Allowed host with --network allowlist, such as pypi.org or '*.hf.co:443'; may be repeated", Group: groupNetwork}.RepeatedVar(&t.AllowHosts),

		app.Option{Name: "python-project", Value: "path", Usage: "Folder with the pyproject.toml to install, relative to --files, such as .", Group: groupPython}.StringVar(&c.python.Project),
		app.Option{Name: "python-extra", Usage: "Optional dependencies of --python-project; may be repeated", Group: groupPython}.RepeatedVar(&c.python.Extras),
		app.Option{Name: "python-group", Usage: "Dependency group of --python-project; may be repeated", Group: groupPython}.RepeatedVar(&c.python.Groups),
		app.Option{Name: "python-requirements", Value: "path", Usage: "Requirements file of the task's Python environment, relative to --files", Group: groupPython}.StringVar(&c.python.Requirements),
		app.Option{Name: "python-package", Usage: "Package of the task's Python environment, such as 'numpy>=2', or a path in --files such as ./lib; may be repeated", Group: groupPython}.RepeatedVar(&c.python.Packages),
		app.Option{Name: "python-version", Usage: "Python version, such as 3.12", Group: groupPython}.StringVar(&c.python.Version),

		app.Option{Name: "image", Usage: "Container image, such as python:3.12; without a command, its default command runs", Group: groupContainers}.StringVar(&t.Image),
		app.Option{Name: "isolation", Usage: "Isolation: container, process, or auto (a container if the worker has an engine) (default: container with --image)", Group: groupContainers}.
			EnumVar(&t.Isolation, muster.IsolationContainer, muster.IsolationProcess, muster.IsolationAuto),
		app.Var(app.Option{Name: "entrypoint", Usage: "Overwrite the image's entrypoint; \"\" removes it", Group: groupContainers},
			&c.container.Entrypoint, parseEntrypoint, func(words []string) string { return strings.Join(words, " ") }),
		app.Option{Name: "workdir", Short: "w", Value: "path", Usage: "Working directory in the container (default: the task's directory, or the image's without a command)", Group: groupContainers}.StringVar(&c.container.Workdir),
		app.Option{Name: "user", Short: "u", Usage: "Name or id of the user, with an optional :group (default: the image's)", Group: groupContainers}.StringVar(&c.container.User),
		app.Option{Name: "pull-secret", Value: "name", Usage: "Pull the image with this secret of the project, which the task does not get", Group: groupContainers, Complete: c.CompleteSecrets(&c.project)}.StringVar(&c.pullSecret),
		app.Option{Name: "pull", Usage: "Pull the image: missing, always or never (default: missing)", Group: groupContainers}.
			EnumVar(&c.container.Pull, muster.PullMissing, muster.PullAlways, muster.PullNever),
		app.Option{Name: "shm-size", Usage: "Size of /dev/shm, such as 1GiB", Group: groupContainers}.SizeVar(&c.container.ShmSize),
		app.Option{Name: "read-only", Usage: "Mount the image's file system read-only", Group: groupContainers}.BoolVar(&c.container.ReadOnly),
		app.Option{Name: "cap-add", Usage: "Keep a Linux capability, such as NET_RAW; may be repeated", Group: groupContainers}.RepeatedVar(&c.container.Capabilities),
		app.Option{Name: "mount", Value: "source:target", Usage: "Bind mount a directory of the worker that its owner allows, with :ro for read-only; may be repeated", Group: groupContainers}.RepeatedVar(&c.mounts),
	)...)
}

// parseArray rejects a single number, as a spec does, because it could be meant as a count.
func parseArray(s string) (muster.Array, error) {
	if _, err := strconv.ParseUint(s, 10, 32); err == nil {
		var a muster.Array
		return a, a.UnmarshalJSON([]byte(s))
	}
	return muster.ParseArray(s)
}

// parseInput reads a JSON object, or @FILE with one.
func parseInput(s string) (json.RawMessage, error) {
	text := []byte(s)
	if name, isFile := strings.CutPrefix(s, "@"); isFile {
		var err error
		if text, err = os.ReadFile(name); err != nil {
			return nil, muster.Errorf(muster.Invalid, "read input: %w", err)
		}
	}
	if err := json.Unmarshal(text, &map[string]json.RawMessage{}); err != nil {
		if strings.HasSuffix(s, ".json") && !strings.HasPrefix(s, "@") {
			return nil, muster.Errorf(muster.Invalid, "not a JSON object: use @%s to read the file", s)
		}
		return nil, muster.Errorf(muster.Invalid, "not a JSON object: %w", err)
	}
	return text, nil
}

// parseEntrypoint reads one program; "" means none.
func parseEntrypoint(s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	return []string{s}, nil
}

func (a *runner) runCommand() *cli.Command {
	c := &runConfig{priority: muster.DefaultPriority, sign: newSignOptions()}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster run -- python3 train.py --epochs 3", Usage: "Run a program of the workers"},
			{Name: "muster run -f . -g 1 -m 16GiB -- python3 train.py", Usage: "Upload this directory; use a GPU and 16GiB of memory"},
			{Name: "muster run --image python:3.12 -- python3 -V", Usage: "Run in a container"},
			{Name: `muster run --array 1-100 -c 'echo element $MUSTER_INDEX'`, Usage: "Run 100 tasks"},
			{Name: "id=$(muster run -d -- sleep 60); muster wait $id", Usage: "Start a job, then wait for it"},
		},
		Name: "run", Usage: "Run a command on the fleet and follow its output", Args: "[--] [CMD [ARG…]]",
		Category: app.CategorySubmit, Flags: c.flags(), StopAtFirstArg: true,
		Description: "The exit status is the task's exit code, 124 if it timed out, 125 if the fleet failed, or 130 if it was cancelled. " +
			"On a terminal, Ctrl-C asks whether to cancel or detach; elsewhere it cancels the job, as SIGTERM always does. " +
			"With -o or -q, the job is printed when it has ended, and its output is on standard error.",
		ForeignOptions: dockerHints(),
		ValueHints:     map[string]string{"output": "for artifacts, use --artifact", "o": "for artifacts, use --artifact"},
		Run:            func(ctx context.Context, args []string) error { return a.runTask(ctx, c, args) },
	})
}

// dockerHints returns replacements for options of docker run that run does not have.
func dockerHints() map[string]string {
	const (
		mounts      = "use --mount SOURCE:TARGET for a directory of the worker, or --files to upload a local one"
		interactive = "tasks have no terminal: use -i to pass standard input, or muster shell TASK while the task runs"
		ports       = "container ports cannot be published; with --network host, a task can listen on the worker's ports if its owner allows it"
		implied     = "it is the default, omit it"
		devices     = "use --gpus NUMBER, containers get no other devices"
	)
	return map[string]string{
		"v": mounts, "volume": mounts, "t": interactive, "it": interactive, "ti": interactive, "tty": interactive,
		"publish": ports, "P": ports, "publish-all": ports, "init": implied, "rm": "containers are removed when their task ends, omit it",
		"net": "use --network", "pids-limit": "use --pids NUMBER",
		"privileged": "not supported; --cap-add keeps some capabilities of Docker's defaults",
		"cap-drop":   "almost all are dropped by default, omit it", "device": devices, "runtime": devices,
		"ipc": "not supported; --shm-size sets the size of /dev/shm", "tmpfs": "use $TMPDIR or /dev/shm",
		"restart": "use --retries N", "stop-timeout": "use --kill-grace DURATION", "stop-signal": "use --kill-signal NAME", "platform": "use --tags, such as --tags arm64",
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
	if c.stdin {
		spec.Tasks[0].Stdin = stdinName
	}
	if fields := append(specvalidate.Spec(spec), doc.inlineLocalFiles()...); len(fields) > 0 {
		return &muster.Error{Code: muster.InvalidSpec, Message: "invalid job", Fields: fields}
	}
	if !c.stdin && hasPipedInput(a.In) {
		a.Warnf("standard input is not sent to the task: use -i")
	}
	sigs, release := follow.Signals()
	defer release()
	var jobs []muster.Job
	if c.stdin {
		spec.Tasks[0].Stdin, err = a.uploadStdin(ctx, server, a.In)
	}
	if err == nil {
		jobs, err = a.submitAll(ctx, server, []document{doc}, c.sign)
	}
	switch {
	case err != nil:
		return err
	case c.detach && c.Human():
		return app.WriteOutput(a.Out, []byte(jobs[0].ID.String()+"\n"))
	case c.detach:
		return app.PrintItems(a.App, c.OutputOptions, jobs, jobID, nil)
	case !c.Human():
		return a.followAndPrint(ctx, c, server, jobs[0], sigs)
	}
	customKind := c.task.Kind != "" && !slices.Contains(kind.Core(), c.task.Kind)
	summary := follow.SummaryNone
	if customKind {
		summary = follow.SummaryArtifacts
	}
	if err := follow.Follow(ctx, a.App, server, jobs[0], summary, sigs); err != nil || !customKind {
		return err
	}
	// The output of kinds with an input is their result.
	if err := a.result(ctx, &resultConfig{ServerOptions: c.ServerOptions}, []string{jobs[0].ID.String()}); muster.CodeOf(err) != muster.NotFound {
		return err
	}
	return nil
}

// followAndPrint follows a job with its output on standard error, then prints the job.
func (a *runner) followAndPrint(ctx context.Context, c *runConfig, server *client.Client, job muster.Job, sigs chan os.Signal) error {
	messages := *a.App
	messages.Out = a.Err
	outcome := follow.Follow(ctx, &messages, server, job, follow.SummaryNone, sigs)
	if _, ended := errors.AsType[*app.StatusError](outcome); outcome != nil && !ended {
		return outcome
	}
	job, err := server.Job(ctx, job.ID)
	if err == nil {
		err = app.PrintItems(a.App, c.OutputOptions, []muster.Job{job}, jobID, nil)
	}
	return cmp.Or(outcome, err)
}

// spec returns the job that the options describe.
func (c *runConfig) spec(args []string) (*muster.Spec, error) {
	t := c.task
	env := map[string]string{}
	for _, path := range c.envFiles {
		vars, err := app.ReadEnvFile(path)
		if err != nil {
			return nil, err
		}
		maps.Copy(env, vars)
	}
	if maps.Copy(env, t.Env); len(env) > 0 {
		t.Env = env
	}
	for _, name := range c.secrets {
		t.Secrets = append(t.Secrets, muster.Secret{Name: name})
	}
	if c.pullSecret != "" {
		t.Secrets = append(t.Secrets, muster.Secret{Name: c.pullSecret, Registry: muster.ImageRegistry(t.Image)})
	}
	switch {
	case c.pullSecret != "" && t.Image == "":
		return nil, muster.Errorf(muster.Invalid, "--pull-secret needs an image: add --image")
	case t.Kind == muster.KindNoop && len(args) > 0:
		return nil, muster.Errorf(muster.Invalid, "a noop task has no command: omit it")
	case t.Kind == muster.KindNoop:
	case len(args) == 0 && t.Kind != "" && !slices.Contains(kind.Core(), t.Kind): // the kind has its own program
	case len(args) == 0 && t.Image == "":
		return nil, muster.Errorf(muster.Invalid, "missing command: use muster run [options] -- CMD ARG…")
	case len(args) == 0:
	case c.shell && len(args) > 1:
		return nil, muster.Errorf(muster.Invalid, "--shell takes one argument, got %d: quote the command", len(args))
	case c.shell:
		t.Run = &muster.Command{Shell: args[0]}
	default:
		t.Run = &muster.Command{Argv: args}
	}
	if err := c.setContainer(&t); err != nil {
		return nil, err
	}
	if c.python.Requirements != "" && t.Files == "" {
		return nil, muster.Errorf(muster.Invalid, "--python-requirements is relative to --files: set it, for example to --files .")
	}
	if c.python.Project != "" && t.Files == "" {
		return nil, muster.Errorf(muster.Invalid, "--python-project is relative to --files: set it, for example to --files .")
	}
	if !reflect.ValueOf(c.python).IsZero() {
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
		name = shortName(args...)
	case t.Image != "":
		name = shortName(t.Image)
	case t.Kind != muster.KindNoop:
		name = kindJobName(t.Kind, t.Input)
	}
	return &muster.Spec{Name: name, Project: c.project, Priority: &c.priority, Labels: c.labels, Tasks: []muster.TaskSpec{t}}, nil
}

// kindJobName returns the default name of a job: the kind, and the base name of the model or data.
func kindJobName(kind string, input json.RawMessage) string {
	var in map[string]any
	_ = json.Unmarshal(input, &in) // parseInput has checked it
	for _, field := range []string{"model", "base_model", "dataset", "test_file", "name"} {
		if subject, ok := in[field].(string); ok && subject != "" {
			subject, _, _ = strings.Cut(subject, "?")
			return shortName(kind, path.Base(subject))
		}
	}
	return kind
}

// setContainer adds the options of a container to the spec.
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

// shortName returns the default name of a job: its command, at most 40 characters.
func shortName(args ...string) string {
	const maxLen = 40
	name := []rune(strings.Join(strings.Fields(strings.Join(args, " ")), " "))
	if len(name) > maxLen {
		return string(name[:maxLen-1]) + "…"
	}
	return string(name)
}
