package process

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// passed lists what a task sees of the worker's environment: where programs are
// and how people write. HOME is not among them: a task's home is a folder of its
// own, so that it finds no credentials there and leaves nothing.
func passed() []string {
	return []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME"}
}

// inherited picks the passed entries of an environment and fills in what
// programs cannot do without.
func inherited(environ []string) []string {
	var out []string
	for _, name := range passed() {
		if v := lookup(environ, name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	if lookup(out, "PATH") == "" {
		out = append(out, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	if lookup(out, "LANG") == "" {
		out = append(out, "LANG=C.UTF-8")
	}
	return out
}

// environ makes the task's environment. Later entries win: first the worker's
// passed ones, then the spec's, then what Muster itself says. A container has nothing of the
// worker's: what is not set here is the image's.
func (a *Attempt) environ(context.Context) error {
	t, spec, at := a.Task, a.Task.Spec, a.seen()
	env := make([]string, 0, len(a.e.inherited)+len(spec.Env)+20)
	if a.setting != inContainer {
		env = append(env, a.e.inherited...)
		env = append(env, "HOME="+at.tmp)
	}
	if c := a.confine; c != nil && c.User != nil && c.User.Name != "" {
		env = set(set(env, "USER", c.User.Name), "LOGNAME", c.User.Name)
	}
	env = append(env, "TMPDIR="+at.tmp, "PYTHONUNBUFFERED=1")
	env = setAll(env, a.needs.usual)
	for name, v := range spec.Env {
		if !strings.HasPrefix(name, "MUSTER_") {
			env = set(env, name, v)
		}
	}
	modules := strings.Join(append(slices.Clone(a.needs.modules), at.modules), ":")
	if own := lookup(env, "PYTHONPATH"); own != "" {
		modules = own + ":" + modules
	}
	env = set(env, "PYTHONPATH", modules)
	if a.runtime != "" {
		env = set(env, "VIRTUAL_ENV", a.runtime)
		env = set(env, "PATH", filepath.Join(a.runtime, "bin")+":"+lookup(env, "PATH"))
	}
	if spec.Network == muster.NetworkAllowlist {
		env = setAll(env, run.Proxied(spec.AllowHosts))
	}
	index, values := position(spec, t.Element)
	env = append(env,
		"MUSTER_JOB="+t.Attempt.Task.Job.String(),
		"MUSTER_TASK="+t.Attempt.Task.String(),
		"MUSTER_ATTEMPT="+strconv.Itoa(t.Attempt.N),
		"MUSTER_INDEX="+index,
		"MUSTER_CHECKPOINT="+at.checkpoint,
		"MUSTER_OUT="+at.out,
		"MUSTER_EVENTS="+at.events,
	)
	if a.setting == inContainer {
		env = append(env, a.mark())
	}
	env = append(env, a.together()...)
	a.env = setAll(append(env, values...), a.needs.env)
	return nil
}

// position returns $MUSTER_INDEX and the $MUSTER_MATRIX_… entries of an element.
func position(spec *muster.TaskSpec, element string) (string, []string) {
	if spec.Matrix == nil {
		if element == "" {
			return "0", nil
		}
		return element, nil
	}
	axes := spec.Matrix.Axes
	picks := match(axes, element)
	if picks == nil {
		return "0", nil
	}
	index := 0
	var env []string
	for i, axis := range axes {
		index = index*len(axis.Values) + picks[i]
		env = append(env, "MUSTER_MATRIX_"+variable(axis.Name)+"="+axis.Values[picks[i]])
	}
	return strconv.Itoa(index), env
}

// match finds the position of each axis' value in a text such as "lr=0.1,seed=2".
// Values may themselves hold commas, so that it may have to try several.
func match(axes []muster.Axis, element string) []int {
	if len(axes) == 0 {
		if element == "" {
			return []int{}
		}
		return nil
	}
	for i, v := range axes[0].Values {
		rest, ok := strings.CutPrefix(element, axes[0].Name+"="+v)
		if !ok {
			continue
		}
		if len(axes) > 1 {
			if rest, ok = strings.CutPrefix(rest, ","); !ok {
				continue
			}
		}
		if picks := match(axes[1:], rest); picks != nil {
			return append([]int{i}, picks...)
		}
	}
	return nil
}

// variable turns an axis' name into a part of an environment variable's.
func variable(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, name)
}

// eventsPath is $MUSTER_EVENTS, on the worker.
func (a *Attempt) eventsPath() string { return filepath.Join(a.base, "events") }

// places are the attempt's folders, and one file, as its program sees them.
type places struct{ work, out, tmp, checkpoint, modules, events string }

func (a *Attempt) seen() places {
	if a.setting == inContainer {
		return boxed
	}
	return places{
		work: a.Dir, out: a.out(), tmp: filepath.Join(a.base, "tmp"), checkpoint: a.checkpoint,
		modules: filepath.Join(a.e.dir, "sdk"), events: a.eventsPath(),
	}
}

func lookup(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// setAll replaces entries, or adds them.
func setAll(env, entries []string) []string {
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		env = set(env, name, value)
	}
	return env
}

// set replaces an entry, or adds it.
func set(env []string, name, value string) []string {
	for i, e := range env {
		if strings.HasPrefix(e, name) && strings.HasPrefix(e[len(name):], "=") {
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}
