package project

import (
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

func TestKillSignalAndGrace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kill   muster.Kill
		signal string
		grace  float64
	}{
		{muster.Kill{}, "SIGTERM", 10},
		{muster.Kill{Signal: "SIGINT", Grace: muster.Duration(3 * time.Second)}, "SIGINT", 3},
	} {
		spec := &muster.TaskSpec{Run: &muster.Command{Shell: "x"}, Kill: test.kill}
		p, err := New(&run.Task{Spec: spec}, "id", "", "", nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if p.config.Signal != test.signal || p.config.Grace != test.grace {
			t.Errorf("%+v: %s, %g s", test.kill, p.config.Signal, p.config.Grace)
		}
	}
}

func TestMatrixAndGangEnvironments(t *testing.T) {
	t.Parallel()
	spec := &muster.TaskSpec{Run: &muster.Command{Shell: "x"}, Matrix: &muster.Matrix{Axes: []muster.Axis{{Name: "lr", Values: []string{"1", "2"}}, {Name: "a-b", Values: []string{"x"}}}}}
	rt := &run.Task{Spec: spec, Element: "lr=2,a-b=x", Gang: &muster.Membership{Rank: 1, Size: 2, Master: "10.0.0.1", Port: 29500}}
	p, err := New(rt, "id", "", "", []string{"3"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"MUSTER_INDEX": "1", "MUSTER_MATRIX_LR": "2", "MUSTER_MATRIX_A_B": "x", "MUSTER_RANK": "1", "MUSTER_WORLD_SIZE": "2", "MUSTER_MASTER_ADDR": "10.0.0.1", "CUDA_VISIBLE_DEVICES": "3",
	} {
		if p.config.Env[name] != want {
			t.Errorf("%s is %q", name, p.config.Env[name])
		}
	}
	if p.config.GangEnv["MASTER_PORT"] != "29500" || p.config.GangEnv["RANK"] != "1" {
		t.Errorf("%v", p.config.GangEnv)
	}
}
