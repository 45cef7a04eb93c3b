package muster

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultProject is the project of a spec without one.
const DefaultProject = "default"

// Normalize returns a copy of s with defaults set: the name, project, priority and failure policy, and each
// stage's name, kind and, with an image, isolation. It removes the / at the end of a checkpoint's
// path, and makes a grid search a matrix. Defaults that apply while a task runs (retries, kill, disconnect) are not set. The copy
// shares values below the stages with s: do not modify either in depth.
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
	if n.OnFailure == "" && n.MaxFailures > 0 {
		n.OnFailure = OnFailureStop
	}
	for i := range n.Tasks {
		t := &n.Tasks[i]
		if t.Name == "" {
			t.Name = "task"
			if len(n.Tasks) > 1 {
				t.Name = fmt.Sprintf("stage-%d", i+1)
			}
		}
		if t.Sweep != nil && t.Sweep.Search == SearchGrid && t.Matrix == nil && t.Sweep.Trials == 0 && t.Sweep.Seed == 0 {
			if m := t.Sweep.grid(); m != nil {
				t.Matrix, t.Sweep = m, nil
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

// Kind returns the kind of all stages of a normalized spec, or "" if they differ.
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

// defaultName is the name of the only stage, else "job".
func (s *Spec) defaultName() string {
	if len(s.Tasks) == 1 && s.Tasks[0].Name != "" {
		return s.Tasks[0].Name
	}
	return "job"
}

// defaultKind returns "" if the stage has nothing to execute.
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
