// Package redact removes secrets from job specs for readers.
package redact

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

// hidden replaces a value.
const hidden = "(hidden)"

// hiddenValue is hidden as JSON.
var hiddenValue = json.RawMessage(strconv.Quote(hidden))

// ForLink returns a spec as a link to its job shows it: without notifications, values of environment variables, and passwords
// and queries of URLs, which may be secret.
func ForLink(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	redacted := hideEnv(spec)
	redacted.Notify = nil
	return redacted
}

// hideEnv returns a copy of a spec with hidden values of environment variables and parameters.
func hideEnv(spec *muster.Spec) *muster.Spec {
	redacted := *spec
	redacted.Signature = nil // its statement has the values, too
	redacted.Params = maps.Clone(spec.Params)
	for name, p := range redacted.Params { // which may be in variables
		p.Value, p.Default, p.Enum = hiddenValue, nil, nil
		redacted.Params[name] = p
	}
	redacted.Tasks = slices.Clone(spec.Tasks)
	for i := range redacted.Tasks {
		redacted.Tasks[i] = Task(redacted.Tasks[i])
	}
	return &redacted
}

// Task returns the spec of a stage or task with hidden values of environment variables, and the URL of its script without password and query.
func Task(t muster.TaskSpec) muster.TaskSpec {
	t.Env = maps.Clone(t.Env)
	for name := range t.Env {
		t.Env[name] = hidden
	}
	if t.Script != nil && t.Script.URL != "" {
		script := *t.Script
		script.URL = muster.RedactURL(script.URL)
		t.Script = &script
	}
	return t
}

// ForReader returns a spec as keys that may not submit jobs see it: notifications with their hosts only, and no values of environment variables.
func ForReader(spec *muster.Spec) *muster.Spec {
	if spec == nil {
		return nil
	}
	redacted := hideEnv(spec)
	redacted.Notify = slices.Clone(spec.Notify)
	for i := range redacted.Notify {
		n := &redacted.Notify[i]
		n.URL = muster.MaskURL(n.URL)
		if n.Secret != "" {
			n.Secret = hidden
		}
	}
	return redacted
}
