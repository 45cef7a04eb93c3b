package muster

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultProject is the project of a spec that names none.
const DefaultProject = "default"

// Normalize returns a copy of s with the defaults written out that say what a job is: its
// name, project and priority, and each stage's name, kind and, with an image, isolation; a checkpoint's
// path loses the / at its end. What applies
// while a task runs (retries, kill, disconnect) stays as it was written. The
// copy shares what is below its stages with s, so that neither may be changed in depth.
func (s *Spec) Normalize() *Spec {
	n := *s
	n.Tasks = slices.Clone(s.Tasks)
	if n.Name == "" {
		n.Name = s.defaultName()
	}
	if n.Project == "" {
		n.Project = DefaultProject
	}
	if n.Priority == nil {
		n.Priority = new(DefaultPriority)
	}
	for i := range n.Tasks {
		t := &n.Tasks[i]
		if t.Name == "" {
			t.Name = "task"
			if len(n.Tasks) > 1 {
				t.Name = fmt.Sprintf("stage-%d", i+1)
			}
		}
		if t.Kind == "" {
			t.Kind = t.defaultKind()
		}
		if t.Isolation == "" && (t.Image != "" || t.Kind == KindContainer) {
			t.Isolation = IsolationContainer
		}
		if c := t.Checkpoint; c != nil && strings.HasSuffix(c.Path, "/") {
			c := *c
			c.Path = strings.TrimSuffix(c.Path, "/")
			t.Checkpoint = &c
		}
	}
	return &n
}

// Kind returns the kind that all stages of a normalized spec share, or "".
func (s *Spec) Kind() string {
	kind := ""
	for i := range s.Tasks {
		if i > 0 && s.Tasks[i].Kind != kind {
			return ""
		}
		kind = s.Tasks[i].Kind
	}
	return kind
}

// defaultName is that of the only stage, if it has one.
func (s *Spec) defaultName() string {
	if len(s.Tasks) == 1 && s.Tasks[0].Name != "" {
		return s.Tasks[0].Name
	}
	return "job"
}

// defaultKind is "" if the stage does not say what to do.
func (t *TaskSpec) defaultKind() string {
	switch {
	case t.Script != nil || t.Files != "" || t.Python != nil:
		return KindScript
	case t.Image != "" && (t.Isolation == "" || t.Isolation == IsolationContainer):
		return KindContainer
	case t.Run != nil:
		return KindProcess
	default:
		return ""
	}
}
