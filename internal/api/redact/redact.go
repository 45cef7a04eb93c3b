// Package redact leaves out of job specs what a reader may not see.
package redact

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster"
)

// hidden stands for a value that a link does not show.
const hidden = "(hidden)"

// ForLink is what a link shows of a job's spec: not who is notified, and no values of environment variables, which may be secret.
func ForLink(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	redacted := *spec
	redacted.Notify = nil
	redacted.Tasks = slices.Clone(spec.Tasks)
	for i := range redacted.Tasks {
		redacted.Tasks[i].Env = Env(redacted.Tasks[i].Env)
	}
	return &redacted
}

// Env hides the values of environment variables.
func Env(env map[string]string) map[string]string {
	env = maps.Clone(env)
	for name := range env {
		env[name] = hidden
	}
	return env
}

// ForReader is what a key that may not submit the job again sees of its spec: of who is notified the hosts only.
func ForReader(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	redacted := *spec
	redacted.Notify = slices.Clone(spec.Notify)
	for i := range redacted.Notify {
		n := &redacted.Notify[i]
		n.URL = muster.MaskURL(n.URL)
		if n.Secret != "" {
			n.Secret = hidden
		}
	}
	return &redacted
}
