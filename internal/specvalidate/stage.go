package specvalidate

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

var (
	envPattern     = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)
	kindPattern    = lazyregexp.New(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	versionPattern = lazyregexp.New(`^[0-9]+(\.[0-9]+){0,2}$`)
)

// stage checks one stage without its relations to others.
func (v *validator) stage(i int) {
	v.at = fmt.Sprintf("tasks[%d].", i)
	t := &v.spec.Tasks[i]
	v.name("name", t.Name)
	if slices.Contains(reservedNames, t.Name) {
		v.add("name", "", "the name %s is reserved for references: use another name", t.Name)
	}
	v.count("needs", len(t.Needs))
	switch {
	case t.When != "" && len(t.Needs) == 0:
		v.add("when", "add needs", "a condition needs stages that end first")
	case len(t.When) > dag.MaxCondition:
		v.add("when", "compute it in a stage, and refer to its result", "the condition is %d bytes: the maximum is %d", len(t.When), dag.MaxCondition)
	}
	v.kind(t)
	v.elements(t)
	v.env(t.Env)
	v.secrets(t)
	v.resources(&t.Resources)
	v.where(&t.Where)
	v.policies(t)
	v.checkpoint(t)
	v.cache(t)
	v.container(t)
	v.distributed(t)
	v.count("outputs", len(t.Outputs))
	for k, glob := range t.Outputs {
		v.relativePath(fmt.Sprintf("outputs[%d]", k), glob)
	}
	if len(t.Input) > 0 && !json.Valid(t.Input) {
		v.add("input", "", "the input is not JSON")
	}
}

// kind checks that the stage defines what to do, once.
func (v *validator) kind(t *muster.TaskSpec) {
	switch t.Kind {
	case "":
		v.add("kind", "write run: a command, script: a program, or kind: noop", "the stage has nothing to run")
		return
	case muster.KindNoop:
		if t.Run != nil || t.Script != nil || t.Python != nil || t.Files != "" {
			v.add("kind", "leave kind out", "kind noop takes no run, script, python or files")
		}
	case muster.KindProcess, muster.KindContainer:
		if t.Script != nil || t.Python != nil || t.Files != "" {
			v.add("kind", "leave kind out, or write kind: script", "kind %s takes no script, python or files", t.Kind)
		}
	case muster.KindScript:
	default:
		// Package kind checks other kinds.
		if !kindPattern.Get().MatchString(t.Kind) || len(t.Kind) > muster.MaxNameSize {
			v.add("kind", "", "%q is not a valid kind: use lower-case words such as script or mnist_training", muster.Truncate(t.Kind))
		}
	}
	switch {
	case t.Run != nil && t.Script != nil:
		v.add("script", "keep one of them", "the stage has both run and script")
	case t.Run == nil && t.Script == nil && t.Kind == muster.KindScript:
		v.add("run", "write run: a command, or script: a program", "the stage has nothing to run")
	case t.Run == nil && t.Kind == muster.KindProcess:
		v.add("run", "write run: a command", "the stage has nothing to run")
	}
	if t.Run != nil {
		v.command(t.Run)
	}
	if t.Script != nil {
		v.script(t.Script)
	}
	if t.Python != nil {
		v.python(t)
	}
	v.stdin(t)
	v.text("files", t.Files, 4096)
	if hash, sent := strings.CutPrefix(t.Files, "sha256:"); sent && !muster.IsSHA256(hash) {
		v.add("files", "", "sha256: must be followed by 64 lower-case hex digits")
	}
}

// stdin checks that what the stage runs has a standard input.
func (v *validator) stdin(t *muster.TaskSpec) {
	if t.Stdin == "" {
		return
	}
	switch {
	case !slices.Contains([]string{muster.KindProcess, muster.KindContainer, muster.KindScript}, t.Kind):
		v.add("stdin", "leave stdin out", "kind %s has no standard input", t.Kind)
	case t.Gang != nil:
		v.add("stdin", "put the data in files, or in an artifact that the stage has as input", "the tasks of a gang have no standard input")
	case t.Launcher != "":
		v.add("stdin", "put the data in files, or in an artifact that the stage has as input", "the processes of a launcher have no standard input")
	}
	v.text("stdin", t.Stdin, 4096)
	if hash, sent := strings.CutPrefix(t.Stdin, "sha256:"); sent && !muster.IsSHA256(hash) {
		v.add("stdin", "", "sha256: must be followed by 64 lower-case hex digits")
	}
}

func (v *validator) command(c *muster.Command) {
	switch {
	case c.Argv == nil && strings.TrimSpace(c.Shell) == "":
		v.add("run", "", "the command is empty")
	case c.Argv != nil && c.Shell != "":
		v.add("run", "", "the command is both a string and a list: keep one of them")
	case c.Argv != nil && (len(c.Argv) == 0 || c.Argv[0] == ""):
		v.add("run", "", "the command is empty: the list must begin with the program")
	}
	v.argument("run", c.Shell)
	v.arguments("run", c.Argv)
}

func (v *validator) script(s *muster.Script) {
	sources := 0
	for _, part := range []string{s.Text, s.File, s.URL} {
		if part != "" {
			sources++
		}
	}
	if sources != 1 {
		v.add("script", "", "a script must have exactly one of text, file and url, this one has %d", sources)
	}
	if s.URL != "" && !strings.HasPrefix(s.URL, "https://") && !strings.HasPrefix(s.URL, "http://") {
		v.add("script.url", "", "%q is not a URL: it must begin with https:// or http://", muster.Truncate(s.URL))
	}
	v.text("script.url", s.URL, 4096)
	v.text("script.file", s.File, 4096)
	switch {
	case s.SHA256 != "" && s.URL == "":
		v.add("script.sha256", "", "sha256 needs url")
	case s.SHA256 != "" && !muster.IsSHA256(s.SHA256):
		v.add("script.sha256", "", "a hash must have 64 lower-case hex digits")
	}
	if len(s.Interpreter) > 0 && s.Interpreter[0] == "" {
		v.add("script.interpreter", "", "the list must begin with the program")
	}
	v.arguments("script.interpreter", s.Interpreter)
	v.arguments("script.args", s.Args)
}

// elements checks array and matrix.
func (v *validator) elements(t *muster.TaskSpec) {
	if t.Array != nil && t.Matrix != nil {
		v.add("matrix", "make the array's numbers an axis of the matrix", "a stage cannot have both an array and a matrix")
	}
	if t.Array != nil {
		if _, err := muster.ParseArray(t.Array.String()); err != nil {
			v.add("array", "", "%s", err)
		} else if t.Array.Items != nil {
			v.add("array", "", "write numbers and ranges, or a reference to a list: its elements cannot be given")
		} else if n := t.Array.Len(); n > muster.MaxTasks {
			v.add("array", "", "%d tasks are too many, the maximum is %d", n, muster.MaxTasks)
		}
	}
	if t.Sweep != nil {
		v.sweep(t)
	}
	if t.Matrix == nil {
		return
	}
	if n := len(t.Matrix.Axes); n == 0 || n > maxAxes {
		v.add("matrix", "", "a matrix must have 1 to %d axes, this one has %d", maxAxes, n)
	}
	if n := t.Matrix.Len(); n > muster.MaxTasks {
		v.add("matrix", "", "%d tasks are too many, the maximum is %d", n, muster.MaxTasks)
	}
	seen := make(map[string]bool)
	for _, a := range t.Matrix.Axes {
		at := "matrix." + muster.Truncate(a.Name)
		v.axisName(at, a.Name)
		if lower := strings.ToLower(a.Name); seen[lower] {
			v.add(at, "", "duplicate axis")
		} else {
			seen[lower] = true
		}
		v.axis(at, a.Values)
	}
}

func (v *validator) axisName(at, name string) {
	if !envPattern.Get().MatchString(name) || len(name) > muster.MaxNameSize {
		v.add(at, "", "invalid axis name: use letters, digits and _, at most %d, not a digit first", muster.MaxNameSize)
	}
}

func (v *validator) axis(at string, values []string) {
	if len(values) == 0 || len(values) > muster.MaxAxisValues {
		v.add(at, "", "an axis must have 1 to %d values, this one has %d", muster.MaxAxisValues, len(values))
	}
	seen := make(map[string]bool, len(values))
	for k, value := range values {
		where := fmt.Sprintf("%s[%d]", at, k)
		v.text(where, value, 1000)
		if seen[value] {
			v.add(where, "", "duplicate value %s", muster.Truncate(value))
		}
		seen[value] = true
	}
}

func (v *validator) env(env map[string]string) {
	v.count("env", len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		at := "env." + muster.Truncate(name)
		switch {
		case !envPattern.Get().MatchString(name) || len(name) > maxLabel:
			v.add(at, "", "invalid variable name: use letters, digits and _, at most %d, not a digit first", maxLabel)
		case strings.HasPrefix(strings.ToUpper(name), "MUSTER_"):
			v.add(at, "", "names that begin with MUSTER_ are reserved: use another name")
		}
		v.argument(at, env[name])
	}
}

// secrets checks that each secret has one place, which nothing else has.
func (v *validator) secrets(t *muster.TaskSpec) {
	if len(t.Secrets) > muster.MaxTaskSecrets {
		v.add("secrets", "", "%d secrets are more than %d", len(t.Secrets), muster.MaxTaskSecrets)
		return
	}
	used := map[string]bool{}
	for k := range t.Secrets {
		s, at := &t.Secrets[k], fmt.Sprintf("secrets[%d]", k)
		variable := s.Variable()
		switch {
		case !envPattern.Get().MatchString(s.Name) || len(s.Name) > muster.MaxNameSize:
			v.add(at, "muster secrets list shows them", "%q is not a name of a secret: use letters, digits and _, at most %d, not a digit first", muster.Truncate(s.Name), muster.MaxNameSize)
		case s.Env != "" && s.File != "":
			v.add(at, "name the secret twice to have both", "the secret %s is both a variable and a file", s.Name)
		case s.Registry != "" && (s.Env != "" || s.File != ""):
			v.add(at, "name the secret twice to have both", "the secret %s is for a registry, and a variable or a file", s.Name)
		case s.Registry != "":
			v.registrySecret(at+".registry", s.Registry, t)
		case s.File != "":
			v.relativePath(at+".file", s.File)
		case !envPattern.Get().MatchString(variable) || len(variable) > maxLabel:
			v.add(at+".env", "", "invalid variable name: use letters, digits and _, at most %d, not a digit first", maxLabel)
		case strings.HasPrefix(strings.ToUpper(variable), "MUSTER_"):
			v.add(at+".env", "", "names that begin with MUSTER_ are reserved: use another name")
		}
		if _, set := t.Env[variable]; set && variable != "" {
			v.add(at, "remove one of them", "env sets the variable %s, too", variable)
		}
		place := "the variable " + variable
		if s.File != "" {
			place = "the file " + s.File
		} else if s.Registry != "" {
			place = "a registry"
		}
		if used[place] {
			v.add(at, "remove one of them", "another secret has %s, too", place)
		}
		used[place] = true
	}
}

func (v *validator) resources(r *muster.Request) {
	if !(r.CPUs >= 0 && r.CPUs <= 10_000) {
		v.add("resources.cpus", "", "%v is not a number of cores: write 0 to 10000", r.CPUs)
	} else if r.CPUs > 0 && r.CPUs < 0.001 {
		v.add("resources.cpus", "", "%v is too little: the smallest share is 0.001", r.CPUs)
	}
	v.size("resources.memory", r.Memory)
	v.size("resources.disk", r.Disk)
	if r.PIDs < 0 || r.PIDs > muster.MaxPIDs {
		v.add("resources.pids", "", "%d is not a number of processes: write 0 to %d", r.PIDs, muster.MaxPIDs)
	}
	g := &r.GPUs
	switch {
	case g.Count < 0 || g.Count > 1024:
		v.add("resources.gpus.count", "", "%d is not a number of GPUs: write 0 to 1024", g.Count)
	case g.Count == 0 && *g != (muster.GPURequest{}):
		v.add("resources.gpus", "write count: 1", "the number of GPUs is missing")
	}
	v.size("resources.gpus.memory", g.Memory)
	if g.Share && g.Memory == 0 {
		v.add("resources.gpus.share", "write memory: 8GiB, or remove share", "share needs memory")
	}
	v.optional("resources.gpus.vendor", g.Vendor, muster.Vendors...)
	v.text("resources.gpus.model", g.Model, muster.MaxNameSize)
}

func (v *validator) size(at string, s muster.Size) {
	if s < 0 || s > 1<<50 {
		v.add(at, "", "%d bytes are out of range: write 0 to 1024TiB", s)
	}
}

func (v *validator) where(w *muster.Where) {
	for _, l := range []struct {
		at    string
		words []string
	}{{"where.tags", w.Tags}, {"where.not", w.ExcludeTags}, {"where.workers", w.Workers}} {
		v.count(l.at, len(l.words))
		for k, word := range l.words {
			at := fmt.Sprintf("%s[%d]", l.at, k)
			v.text(at, word, maxLabel)
			if strings.TrimSpace(word) == "" {
				v.add(at, "", "it is empty: write a name, or remove it")
			}
		}
	}
	if !(w.MaxPrice >= 0) || math.IsInf(w.MaxPrice, 0) {
		v.add("where.max_price", "", "%v is not a price per hour: write 0 or more", w.MaxPrice)
	}
}

// policies checks timeouts, retries, kill and disconnect.
func (v *validator) policies(t *muster.TaskSpec) {
	const day = 24 * time.Hour
	v.duration("timeout", t.Timeout, muster.MaxTimeout.Std())
	v.duration("queue_timeout", t.QueueTimeout, muster.MaxTimeout.Std())
	if t.LogCap != 0 && (t.LogCap < muster.MinLogCap || t.LogCap > muster.MaxLogCap) {
		v.add("log_cap", "", "%s is out of range: write 256KiB to 16GiB", t.LogCap)
	}
	if t.Retries.Max < 0 || t.Retries.Max > 1000 {
		v.add("retries.max", "", "%d is out of range: write 0 to 1000", t.Retries.Max)
	}
	v.duration("retries.backoff", t.Retries.Backoff, 30*day)
	v.duration("retries.max_backoff", t.Retries.MaxBackoff, 30*day)
	if t.Retries.MaxBackoff > 0 && t.Retries.MaxBackoff < t.Retries.Backoff {
		v.add("retries.max_backoff", "", "%s is less than backoff, %s", t.Retries.MaxBackoff, t.Retries.Backoff)
	}
	v.count("retries.on", len(t.Retries.On))
	for k, on := range t.Retries.On {
		v.retryOn(fmt.Sprintf("retries.on[%d]", k), on)
	}
	v.optional("kill.signal", t.Kill.Signal, muster.TaskSignals...)
	v.duration("kill.grace", t.Kill.Grace, day)
	v.duration("disconnect.grace", t.Disconnect.Grace, 30*day)
	v.optional("disconnect.then", t.Disconnect.Then, muster.DisconnectRequeue, muster.DisconnectFail)
}

func (v *validator) duration(at string, d muster.Duration, limit time.Duration) {
	if d < 0 || d.Std() > limit {
		v.add(at, "", "%s is out of range: write 0 to %gh", d, limit.Hours())
	}
}

func (v *validator) retryOn(at, on string) {
	if code, isExit := strings.CutPrefix(on, "exit:"); isExit {
		if n, err := strconv.Atoi(code); err != nil || n < 1 || n > 255 {
			v.add(at, "", "%q is not an exit code: write exit:1 to exit:255", muster.Truncate(on))
		}
		return
	}
	if slices.Contains(muster.Reasons, muster.Reason(on)) {
		return
	}
	known := []string{"exit:1"}
	for _, r := range muster.Reasons {
		known = append(known, string(r))
	}
	v.add(at, muster.DidYouMean(on, known), "%q is not a reason to retry: use exit:N or a reason such as %s or %s", muster.Truncate(on), muster.OutOfMemory, muster.ExitCode)
}

// inputs checks the artifacts that the stage takes from others.
func (v *validator) inputs(t *muster.TaskSpec, index map[string]int, order *dag.Order, stage int) {
	if len(t.Inputs) == 0 {
		return
	}
	v.count("inputs", len(t.Inputs))
	destinations := make(map[string]bool)
	total := 0
	for k, in := range t.Inputs[:min(len(t.Inputs), maxList)] {
		if len(v.wrong) >= maxWrong {
			break
		}
		at := fmt.Sprintf("inputs[%d]", k)
		j, ok := index[in.From]
		switch {
		case in.From == "":
			v.add(at+".from", "", "the stage of the input is missing")
		case !ok:
			v.add(at+".from", muster.DidYouMean(in.From, v.names), "unknown stage %q", muster.Truncate(in.From))
		case !order.Before(j, stage):
			v.add(at+".from", "add it to needs", "stage %s may not have finished when this stage starts", in.From)
		default:
			total = min(total, muster.MaxInputs) + min(v.spec.Tasks[j].Size(), muster.MaxInputs+1)
		}
		v.relativePath(at+".name", in.Name)
		destination := in.Name
		if in.As != "" {
			v.relativePath(at+".as", in.As)
			destination = in.As
		}
		if destinations[destination] {
			v.add(at, "set another path with as:", "another input has the path %s, too", muster.Truncate(destination))
		}
		destinations[destination] = true
	}
	if total > muster.MaxInputs {
		v.add("inputs", "let the array write one archive, or merge in steps", "the inputs have more than %d artifacts", muster.MaxInputs)
	}
}

// relativePath checks a path or glob that must stay in the task's folder.
func (v *validator) relativePath(at, p string) {
	v.text(at, p, 4096)
	if _, err := path.Match(p, ""); err != nil {
		v.add(at, "", "%q is not a pattern: a bracket is not closed", muster.Truncate(p))
	}
	if !fs.ValidPath(p) || p == "." {
		v.add(at, "", "%q is not a path in the task's folder: use a relative path without .., leading ./ and trailing /", muster.Truncate(p))
	}
}

// arguments checks the arguments of a program.
func (v *validator) arguments(at string, args []string) {
	v.count(at, len(args))
	for k, arg := range args {
		v.argument(fmt.Sprintf("%s[%d]", at, k), arg)
	}
}

func (v *validator) argument(at, s string) {
	switch {
	case len(s) > maxArgument:
		v.add(at, "use script for long programs, and files or input for data", "it is %d bytes long: the system's limit is %d", len(s), maxArgument)
	case strings.ContainsRune(s, 0):
		v.add(at, "", "it has a NUL byte")
	}
}
