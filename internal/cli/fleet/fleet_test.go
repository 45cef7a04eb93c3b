package fleet

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
)

// testWorker is a worker with all fields set.
func testWorker() muster.Worker {
	busy, hot, power, memory := 0.97, 81.4, 311.5, muster.Size(31<<30)
	return muster.Worker{
		ID: "w-1", Name: "box", State: muster.WorkerActive, Constrained: "its owner uses the GPU", Address: "10.0.0.7",
		Running: 12, Tasks: []muster.TaskID{{Job: 1, Num: 2}, {Job: 3}},
		Resources: muster.Resources{CPUs: 8, Memory: 8 << 30, Slots: 4, MaxTasks: 3, GPUs: []muster.GPU{
			{UUID: "GPU-a", Index: 0, Vendor: "nvidia", Name: "A100", Memory: 40 << 30, Quarantined: "an uncorrected ECC error"},
			{UUID: "MIG-b", Index: 1, Vendor: "nvidia", Name: "A100", Memory: 5 << 30, MIG: "1g.5gb"},
		}},
		Kinds: []string{"container", "process"}, Projects: []string{"red", "blue"},
		UnsupportedFeatures: []string{muster.FeatureFiles, muster.FeatureLogs, muster.FeatureEnv, muster.FeatureCancel},
		Allow:               &muster.Allow{Images: []string{"ghcr.io/acme/*", "python:3.*"}, Users: []string{"1000", ""}, Env: []string{}, HostNetwork: true},
		Load: &muster.Load{CPU: 0.5, Memory: 1 << 30, Disk: &muster.DiskLoad{Free: 3 << 30, Total: 100 << 30}, GPUs: []muster.GPULoad{
			{UUID: "GPU-a", Utilization: &busy, Memory: &memory, Temperature: &hot, Power: &power}, {UUID: "MIG-b"},
		}},
	}
}

func TestPrintWorkerWithDevices(t *testing.T) {
	var out bytes.Buffer
	a := &runner{&app.App{Out: term.Screen{Writer: &out, Width: 100}}}
	if err := a.drawWorker(testWorker()); err != nil {
		t.Fatal(err)
	}
	want := `worker       box
id           w-1
state        constrained
constrained  its owner uses the GPU
address      10.0.0.7
running      12  1.2, 3.0 and 10 more
cpus         8
memory       8GiB
disk         0B
slots        4
max tasks    3 at once
gpu          0: A100, 40GiB (GPU-a)
             97% busy, 31GiB in use, 81 °C, 312 W
             quarantined: an uncorrected ECC error
gpu          1: A100, 5GiB, MIG 1g.5gb (MIG-b)
load         50% CPU, 1GiB memory in use
             3GiB of 100GiB free in the data directory
kinds        container process
allows       images: ghcr.io/acme/*, python:3.*
             users: 1000, default
             variables: none
             host network: yes
projects     red blue
lacks        takes no tasks that use files, env
             cannot be stopped: a cancel takes effect at the server only
             sends the log of a task only after the task has ended
`
	if out.String() != want {
		t.Errorf("%s", out.String())
	}
	if got := app.FormatDevices(testWorker().Resources.GPUs); got != "2×A100, 1 quarantined" {
		t.Errorf("in the list: %s", got)
	}
}

func TestPrintDrainProgress(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	soon, past := muster.NewTime(now.Add(90*time.Second)), muster.NewTime(now.Add(-time.Second))
	for _, c := range []struct {
		state    muster.WorkerState
		running  int
		deadline muster.Time
		want     string
	}{
		{muster.WorkerGone, 0, 0, "has left"},
		{muster.WorkerDraining, 2, 0, "draining; it leaves when its last task has ended"},
		{muster.WorkerDraining, 2, soon, "draining; it stops running tasks in 1m30s ("},
		{muster.WorkerDraining, 2, past, "draining; it stops running tasks now, since "},
		{muster.WorkerUnreachable, 0, 0, "is unreachable and has no tasks"},
		{muster.WorkerUnreachable, 1, soon, "is unreachable; its tasks are lost if it does not reconnect"},
	} {
		w := muster.Worker{State: c.state, Running: c.running, Deadline: c.deadline, Draining: c.state == muster.WorkerDraining}
		if got := drainStatus(&w, now); !strings.HasPrefix(got, c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestPrintPauseOfDisconnectedWorker(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	soon := muster.NewTime(now.Add(90 * time.Second))
	for _, c := range []struct {
		w    muster.Worker
		want string
	}{
		{muster.Worker{State: muster.WorkerPaused, Paused: true}, "paused"},
		{muster.Worker{State: muster.WorkerPaused, Paused: true, Deadline: soon}, "paused; it resumes in 1m30s (" + app.FormatTime(soon) + ")"},
		{muster.Worker{State: muster.WorkerGone, Paused: true}, "paused; it is gone and will be paused when it reconnects"},
		{muster.Worker{State: muster.WorkerUnreachable, Paused: true, Deadline: soon}, "paused; it resumes in 1m30s (" + app.FormatTime(soon) + "); it is unreachable and will be paused when it reconnects"},
		{muster.Worker{State: muster.WorkerUnreachable, Paused: true, Draining: true, Deadline: soon}, "paused; it is unreachable and will be draining when it reconnects"},
	} {
		if got := pauseStatus(&c.w, now); got != c.want {
			t.Errorf("%+v: %s, want %s", c.w, got, c.want)
		}
	}
}

func TestDrainStatusLine(t *testing.T) {
	share := 0.42
	one, two := testWorker(), testWorker()
	one.State, one.Name, one.Deadline = muster.WorkerDraining, "one", muster.NewTime(time.Now().Add(-time.Minute))
	two.State = muster.WorkerGone
	v := &drainView{started: time.Now(), workers: []muster.Worker{one, two}, tasks: map[muster.TaskID]muster.Task{
		{Job: 1, Num: 2}: {State: muster.Running, Progress: &share}, {Job: 3}: {State: muster.Running},
	}}
	if got := v.line(); !strings.HasSuffix(got, "  draining one: 12 tasks running (1.2 42%, 3.0, …), stopping") {
		t.Errorf("%s", got)
	}
	v.workers[0].Running, v.workers[0].Tasks, v.workers[0].Deadline = 1, nil, 0
	if got := v.line(); !strings.HasSuffix(got, "  draining one: 1 task running") {
		t.Errorf("%s", got)
	}
}

func TestPrintWorkerHealth(t *testing.T) {
	w := muster.Worker{Name: "box", ID: "w-1", State: muster.WorkerActive, Health: &muster.WorkerHealth{
		Score: 0.13, Reason: muster.DiskFull, Attempt: muster.AttemptID{Task: muster.TaskID{Job: 17, Num: 3}, N: 2}, Avoided: "is avoided until noon",
	}}
	if row := workerRow(w, time.Now()); row[2] != "avoided" || row[3] != "13%" {
		t.Errorf("its row is %q", row)
	}
	var out bytes.Buffer
	a := &runner{&app.App{Out: term.Screen{Writer: &out, Width: 100}}}
	if err := a.drawWorker(w); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"state    avoided\n", "avoided  is avoided until noon\n", "health   13%, the last failure of the worker was disk_full of attempt 17.3#2\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("missing line %q in\n%s", line, out.String())
		}
	}
	w.Health = nil
	if row := workerRow(w, time.Now()); row[2] != "active" || row[3] != "100%" {
		t.Errorf("the row of a healthy worker is %q", row)
	}
}
