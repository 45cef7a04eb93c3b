package muster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNormalize(t *testing.T) {
	s := &Spec{Tasks: []TaskSpec{{Run: &Command{Shell: "x"}, Checkpoint: &Checkpoint{Path: "ckpt/"}}, {Files: "."}, {Name: "n", Script: &Script{Text: "x"}}, {Python: &Python{}}, {}}}
	n := s.Normalize()
	var got []string
	for _, task := range n.Tasks {
		got = append(got, task.Name+" "+task.Kind)
	}
	if d := cmp.Diff([]string{"stage-1 process", "stage-2 script", "n script", "stage-4 script", "stage-5 "}, got); d != "" {
		t.Error(d)
	}
	if n.Name != "job" || n.Project != "default" || *n.Priority != 50 {
		t.Errorf("%s %s %d", n.Name, n.Project, *n.Priority)
	}
	if p := n.Tasks[0].Checkpoint.Path; p != "ckpt" {
		t.Errorf("the checkpoint's folder is %s", p)
	}
	if s.Tasks[0].Name != "" || s.Priority != nil || s.Tasks[0].Checkpoint.Path != "ckpt/" {
		t.Error("the original was changed")
	}
	if d := cmp.Diff(n, n.Normalize()); d != "" {
		t.Errorf("normalizing is not idempotent: %s", d)
	}
	one := (&Spec{Tasks: []TaskSpec{{Name: "digits"}}}).Normalize()
	plain := (&Spec{Tasks: []TaskSpec{{}}}).Normalize()
	if one.Name != "digits" || plain.Tasks[0].Name != "task" {
		t.Errorf("%s, %s", one.Name, plain.Tasks[0].Name)
	}
}
