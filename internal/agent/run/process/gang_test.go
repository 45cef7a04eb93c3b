//go:build unix

package process_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/run/process"
	"github.com/muster-dev/muster/internal/agent/run/runtest"
	"github.com/muster-dev/muster/internal/tasklog"
)

// echoScript prints what it is called with, one argument a line.
const echoScript = "#!/bin/sh\nfor a in \"$0\" \"$@\"; do echo \"$a\"; done\n"

// install writes programs, and the empty file of a package, below a folder.
func install(t *testing.T, names ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(echoScript), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// execute runs one task and returns its report and what it printed.
func execute(t *testing.T, task *run.Task) (muster.Report, []string) {
	t.Helper()
	w := runtest.NewEnv(t)
	x, err := process.New(w.Deps)
	if err != nil {
		t.Fatal(err)
	}
	task.Attempt = muster.AttemptID{Task: muster.TaskID{Job: 1, Num: 2}, N: 3}
	task.Spec.Files = w.Tree(map[string]string{"train.sh": echoScript})
	r := x.Run(t.Context(), task, &runtest.Recorder{})
	if r.StartedAt == 0 {
		return r, nil
	}
	return r, strings.Split(strings.TrimSpace(w.Output(t, task.Attempt, tasklog.Stdout)), "\n")
}

var rank2 = &muster.Membership{Rank: 2, Size: 4, Master: "10.0.0.7", Port: 20123}

func TestGangMemberFindsTheOthers(t *testing.T) {
	show := &muster.Command{Shell: "env | grep -E '^(MUSTER_(RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|GPUS)|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)=' | sort"}
	own := []string{"MUSTER_GPUS=GPU-b,GPU-a", "MUSTER_MASTER_ADDR=10.0.0.7", "MUSTER_MASTER_PORT=20123", "MUSTER_RANK=2", "MUSTER_WORLD_SIZE=4"}
	torch := []string{"LOCAL_RANK=0", "MASTER_ADDR=10.0.0.7", "MASTER_PORT=20123", "RANK=2", "WORLD_SIZE=4"}
	both := append(append([]string{}, torch[:3]...), own...)
	_, got := execute(t, &run.Task{
		Spec: &muster.TaskSpec{Run: show, Env: map[string]string{"RANK": "forged"}}, Gang: rank2, Grant: muster.Grant{GPUs: []string{"GPU-b", "GPU-a"}},
	})
	if d := cmp.Diff(append(both, torch[3:]...), got); d != "" {
		t.Errorf("in a gang: %s", d)
	}
	_, got = execute(t, &run.Task{Spec: &muster.TaskSpec{Run: show}})
	if d := cmp.Diff([]string{"MUSTER_GPUS=", "MUSTER_RANK=0", "MUSTER_WORLD_SIZE=1"}, got); d != "" {
		t.Errorf("alone: %s", d)
	}
}

func TestTorchrunArguments(t *testing.T) {
	dir := install(t, "torchrun", "python3")
	python := filepath.Join(dir, "python3")
	alone := []string{"--standalone", "--nnodes=1", "--nproc_per_node=1"}
	for name, c := range map[string]struct {
		run  muster.Command
		gang *muster.Membership
		n    int
		gpus []string
		want []string
	}{
		"a script":         {run: muster.Command{Argv: []string{"train.py", "--lr", "0.1"}}, want: append(alone, "train.py", "--lr", "0.1")},
		"by its Python":    {run: muster.Command{Argv: []string{"/usr/bin/python3.11", "-u", "train.py", "-x"}}, want: append(alone, "train.py", "-x")},
		"a module":         {run: muster.Command{Argv: []string{"python", "-m", "pkg.train", "a b"}}, want: append(alone, "-m", "pkg.train", "a b")},
		"a Python's flags": {run: muster.Command{Argv: []string{python, "-O", "train.py"}}, want: append(alone, "--no_python", python, "-O", "train.py")},
		"a program":        {run: muster.Command{Argv: []string{"./train.sh", "1"}}, want: append(alone, "--no_python", "./train.sh", "1")},
		"a text":           {run: muster.Command{Shell: "python train.py | tee log"}, want: append(alone, "--no_python", "/bin/sh", "-c", "python train.py | tee log")},
		"for each GPU": {run: muster.Command{Argv: []string{"train.py"}}, gpus: []string{"a", "b"},
			want: []string{"--standalone", "--nnodes=1", "--nproc_per_node=2", "train.py"}},
		"as many as asked": {run: muster.Command{Argv: []string{"train.py"}}, gpus: []string{"a", "b"}, n: 4,
			want: []string{"--standalone", "--nnodes=1", "--nproc_per_node=4", "train.py"}},
		"a gang": {run: muster.Command{Argv: []string{"train.py"}}, gang: rank2, n: 8,
			want: []string{"--nnodes=4", "--node_rank=2", "--master_addr=10.0.0.7", "--master_port=20123", "--nproc_per_node=8", "train.py"}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &muster.TaskSpec{Run: &c.run, Launcher: muster.LauncherTorchrun, NProcPerNode: c.n, Env: map[string]string{"PATH": dir + ":/usr/bin:/bin"}}
			r, got := execute(t, &run.Task{Spec: spec, Gang: c.gang, Grant: muster.Grant{GPUs: c.gpus}})
			if r.Outcome != muster.AttemptSucceeded || len(got) == 0 {
				t.Fatalf("%+v", r)
			}
			if d := cmp.Diff(c.want, got[1:]); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestTorchrunIsFoundAsAModule(t *testing.T) {
	const torch = "lib/python3.12/site-packages/torch/distributed/run.py"
	spec := func(dir string) *muster.TaskSpec {
		return &muster.TaskSpec{Run: &muster.Command{Argv: []string{"train.py"}}, Launcher: muster.LauncherTorchrun, Env: map[string]string{"PATH": filepath.Join(dir, "bin")}}
	}
	r, got := execute(t, &run.Task{Spec: spec(install(t, "bin/python3", torch))})
	if want := []string{"-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc_per_node=1", "train.py"}; r.Outcome != muster.AttemptSucceeded || !cmp.Equal(want, got[1:]) {
		t.Errorf("%s %v", r.Message, got)
	}

	// The Python of a virtual environment is a link to the one that it was made of.
	system, own := install(t, "bin/python3", torch), install(t, "bin/pip")
	if err := os.Symlink(filepath.Join(system, "bin", "python3"), filepath.Join(own, "bin", "python3")); err != nil {
		t.Fatal(err)
	}
	if r, _ := execute(t, &run.Task{Spec: spec(own)}); r.Outcome != muster.AttemptSucceeded {
		t.Errorf("%s", r.Message)
	}

	for _, files := range [][]string{{torch}, {"bin/python3"}, {}} {
		r, _ = execute(t, &run.Task{Spec: spec(install(t, files...))})
		if r.Outcome != muster.AttemptFailed || r.Reason != muster.Dependency || !strings.Contains(r.Message, "add torch to python.packages") {
			t.Errorf("%s: %s %s: %s", files, r.Outcome, r.Reason, r.Message)
		}
	}
	lost := spec(install(t, "bin/torchrun"))
	lost.Run = &muster.Command{Argv: []string{"./nothing"}}
	r, _ = execute(t, &run.Task{Spec: lost})
	if r.Reason != muster.StartFailed || !strings.Contains(r.Message, "./nothing: no such file") {
		t.Errorf("%s: %s", r.Reason, r.Message)
	}
}
