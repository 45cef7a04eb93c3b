// Package redact leaves out of job specs what a reader may not see.
package redact

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster"
)

// hidden stands for a value that a link does not show.
const hidden = "(hidden)"

// Shared is what a link shows of a job's spec: not who is notified, and no values of environment variables, which may be secret.
func Shared(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	shown := *spec
	shown.Notify = nil
	shown.Tasks = slices.Clone(spec.Tasks)
	for i := range shown.Tasks {
		shown.Tasks[i].Env = Env(shown.Tasks[i].Env)
	}
	return &shown
}

// Env hides the values of environment variables.
func Env(env map[string]string) map[string]string {
	env = maps.Clone(env)
	for name := range env {
		env[name] = hidden
	}
	return env
}

// Unowned is what a key that may not submit the job again sees of its spec: of who is notified the hosts only.
func Unowned(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	shown := *spec
	shown.Notify = slices.Clone(spec.Notify)
	for i := range shown.Notify {
		n := &shown.Notify[i]
		n.URL = muster.MaskURL(n.URL)
		if n.Secret != "" {
			n.Secret = hidden
		}
	}
	return &shown
}
