package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
)

// topics returns the help topics.
func (a *runner) topics() []app.Topic {
	return []app.Topic{
		{Name: "exit-codes", Usage: "Exit codes of commands", Sections: app.ExitCodes},
		{Name: "states", Usage: "States of tasks, jobs, workers and attempts, and reasons", Sections: stateSections},
		{Name: "environment", Usage: "Environment variables of commands and tasks", Sections: a.environmentSections},
	}
}

var workerStates = []muster.WorkerState{muster.WorkerPending, muster.WorkerActive, muster.WorkerPaused, muster.WorkerDraining, muster.WorkerUnreachable, muster.WorkerGone}

// stateSections describes states, outcomes and reasons.
func stateSections() []app.HelpSection {
	var own, fleet []muster.Reason
	for _, r := range muster.Reasons {
		if r.FleetFault() {
			fleet = append(fleet, r)
		} else {
			own = append(own, r)
		}
	}
	return []app.HelpSection{
		{Title: "Tasks", Rows: meanings(muster.TaskStates)},
		{Title: "Jobs (the stages of a job have the same states)", Rows: meanings(muster.JobStates)},
		{Title: "Workers", Rows: meanings(workerStates)},
		{Title: "Attempts", Rows: meanings([]muster.Outcome{muster.AttemptSucceeded, muster.AttemptFailed, muster.AttemptTimedOut, muster.AttemptCancelled, muster.AttemptRejected, muster.AttemptLost})},
		{Title: "Reasons: the task or its user", Rows: meanings(own)},
		{Title: "Reasons: the fleet; such attempts are retried without counting against retries.max", Rows: meanings(fleet)},
	}
}

func meanings[T interface{ Meaning() string }](all []T) []app.HelpRow {
	var rows []app.HelpRow
	for _, v := range all {
		text := v.Meaning()
		rows = append(rows, app.HelpRow{Name: fmt.Sprint(v), Usage: strings.ToUpper(text[:1]) + text[1:]})
	}
	return rows
}

// environmentSections describes the variables that commands and daemons read, and those that tasks get.
func (a *runner) environmentSections() []app.HelpSection {
	sections := append(optionVariables(a.commands()), app.HelpSection{Title: "Other variables that muster reads", Rows: []app.HelpRow{
		{Name: "MUSTER_CONFIG", Usage: "File of the saved contexts (default: muster/context.json in the user's configuration directory)"},
		{Name: "XDG_DATA_HOME, XDG_CONFIG_HOME", Usage: "The user's data and configuration directories"},
		{Name: "NO_COLOR, COLUMNS, TERM", Usage: "Output without colors; width of tables; dumb means a terminal without colors and redrawn lines"},
		{Name: "TZ", Usage: "Time zone of times in tables"},
		{Name: "HTTP_PROXY, HTTPS_PROXY, NO_PROXY", Usage: "Proxies for requests to the server"},
		{Name: "DOCKER_HOST, DOCKER_CONFIG, REGISTRY_AUTH_FILE", Usage: "Container engine, and credentials for registries, of workers"},
		{Name: "MUSTER_UV, UV_*, PIP_*", Usage: "The program uv, and settings of uv and pip, for Python environments of workers"},
		{Name: "MUSTER_SYSTEMD_UNIT", Usage: "Unit of systemd whose service a worker is: a restart of it keeps running tasks (muster worker install sets it)"},
		{Name: "OTEL_*", Usage: "Settings of traces of servers and workers, as in OpenTelemetry"},
	}})
	return append(sections, app.HelpSection{Title: "Variables of a task", Rows: []app.HelpRow{
		{Name: "MUSTER_JOB", Usage: "Number of the job"},
		{Name: "MUSTER_TASK", Usage: "The task, such as 17.3"},
		{Name: "MUSTER_ATTEMPT", Usage: "Number of the attempt, from 1"},
		{Name: "MUSTER_ITEM", Usage: "Value of the element of an array that another stage determines"},
		{Name: "MUSTER_INDEX", Usage: "Element of an array or matrix, or rank in a gang; 0 for a single task"},
		{Name: "MUSTER_MATRIX_NAME", Usage: "Value of the parameter NAME of a matrix"},
		{Name: "MUSTER_WORKER", Usage: "Name of its worker"},
		{Name: "MUSTER_OUT", Usage: "Directory for artifacts and result.json"},
		{Name: "MUSTER_CHECKPOINT", Usage: "Directory that the next attempt gets"},
		{Name: "MUSTER_EVENTS", Usage: "File for progress and metrics, one JSON object per line"},
		{Name: "MUSTER_GPUS", Usage: "UUIDs of the task's GPUs, separated by commas"},
		{Name: "MUSTER_RANK, MUSTER_WORLD_SIZE", Usage: "Rank in its gang, from 0, and number of members"},
		{Name: "MUSTER_MASTER_ADDR, MUSTER_MASTER_PORT", Usage: "Where rank 0 of the gang listens; without a launcher also RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"},
		{Name: "MUSTER_INPUT, MUSTER_KIND, MUSTER_KIND_DIR", Usage: "Of a defined kind: file with its input, its name, and the directory of its files"},
		{Name: "MUSTER_MODELS", Usage: "Directory of models of AI kinds: those of the project"},
		{Name: "MUSTER_OWNER_MODELS", Usage: "Directory of models of the worker's owner, read-only"},
		{Name: "HOME, TMPDIR", Usage: "A directory that is deleted after the task"},
		{Name: "PYTHONPATH, PYTHONUNBUFFERED, VIRTUAL_ENV", Usage: "Set so that import muster works, output appears at once, and python.requirements are used"},
		{Name: "CUDA_VISIBLE_DEVICES and others", Usage: "The task's GPUs, for their vendor's libraries"},
	}})
}

// optionVariables returns the variables of options: of commands, and of programs that serve. Variables of options that only drop-in
// workers and bridges of other systems have are left out: their help has them.
func optionVariables(commands []*cli.Command) []app.HelpSection {
	type variable struct {
		options, commands []string
		usages            map[string]int // how many commands have the text
	}
	clients, daemons := map[string]*variable{}, map[string]*variable{}
	var add func(c *cli.Command, name string)
	add = func(c *cli.Command, name string) {
		if above, _, ok := strings.Cut(name, " "); ok && (above == "bridge" || above == "worker") {
			return
		}
		into := clients
		if slices.Contains([]string{"up", "server", "worker", "probe"}, name) {
			into = daemons
		}
		for _, f := range c.VisibleFlags() {
			d, ok := f.(cli.DocGenerationFlag)
			if !ok {
				continue
			}
			for _, env := range d.GetEnvVars() {
				v := into[env]
				if v == nil {
					v = &variable{usages: map[string]int{}}
					into[env] = v
				}
				if option := "--" + f.Names()[0]; !slices.Contains(v.options, option) {
					v.options = append(v.options, option)
				}
				v.commands = append(v.commands, name)
				v.usages[d.GetUsage()]++
			}
		}
		for _, below := range c.Commands {
			add(below, name+" "+below.Name)
		}
	}
	for _, c := range commands {
		add(c, c.Name)
	}
	section := func(title string, all map[string]*variable) app.HelpSection {
		s := app.HelpSection{Title: title}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			v := all[name]
			usage := slices.MaxFunc(slices.Sorted(maps.Keys(v.usages)), func(a, b string) int { return cmp.Compare(v.usages[a], v.usages[b]) })
			of := ""
			if len(v.commands) <= 3 {
				of = " of " + muster.JoinWords(v.commands, "and")
			}
			s.Rows = append(s.Rows, app.HelpRow{Name: name, Usage: strings.Join(v.options, ", ") + of + ": " + usage})
		}
		return s
	}
	return []app.HelpSection{section("Variables of options; the option has precedence", clients), section("Variables of options of up, server, worker and probe", daemons)}
}
