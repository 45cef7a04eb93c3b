//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	logs "github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// awaitOffered waits until a worker offers the kind container, or until it does not.
func (b *containerEnv) awaitOffered(want bool) {
	b.t.Helper()
	b.Await("the worker offers containers: "+strconv.FormatBool(want), time.Minute, func() error {
		w, err := b.Client.Worker(b.t.Context(), "w1")
		if err == nil && strings.Contains(strings.Join(w.Kinds, " "), muster.KindContainer) != want {
			err = errors.New("its kinds are " + strings.Join(w.Kinds, ", "))
		}
		return err
	})
}

// TestEngineRestarts stops, kills and freezes the engine while containers print, and starts it again: where they
// continue meanwhile their logs are whole; where they end with the engine they are tried again as the fleet's fault.
func TestEngineRestarts(t *testing.T) {
	t.Parallel() // it mostly waits
	const tasks = 4
	for name, c := range map[string]struct {
		flags       []string
		disrupt     func(*containertest.Daemon)
		survives    bool // do containers continue
		losesOutput bool // may it lose the lines that it had read
	}{
		"stopped":                   {disrupt: func(d *containertest.Daemon) { d.Stop(); d.Restart() }},
		"killed":                    {disrupt: func(d *containertest.Daemon) { d.Kill(); d.Restart() }},
		"stopped with live restore": {flags: []string{"--live-restore"}, disrupt: func(d *containertest.Daemon) { d.Stop(); d.Restart() }, survives: true, losesOutput: true},
		"killed with live restore":  {flags: []string{"--live-restore"}, disrupt: func(d *containertest.Daemon) { d.Kill(); d.Restart() }, survives: true, losesOutput: true},
		"frozen": {disrupt: func(d *containertest.Daemon) {
			d.SetFrozen(true)
			time.Sleep(5 * time.Second) // the engine is frozen meanwhile
			d.SetFrozen(false)
		}, survives: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := containertest.StartDaemon(t, c.flags...)
			b := newContainerEnv(t, d.Host())
			b.start("--slots", strconv.Itoa(tasks+1))
			job := b.Submit(withArray(b.shellSpec("prints", numberedLinesScript("gate")+"exit 4"), tasks))
			job2 := b.Submit(mustertest.ShellSpec("process", numberedLinesScript("gate")))
			b.AwaitRunning(job.ID, tasks)
			b.AwaitRunning(job2.ID, 1)
			c.disrupt(d)
			b.awaitOffered(true)
			if c.survives {
				b.awaitMoreOutput(job.ID, tasks)
			} else {
				b.Wait(job.ID, 2*time.Minute)
			}
			b.release()
			b.Wait(job.ID, 2*time.Minute)
			for _, task := range b.Tasks(job.ID) {
				attempts, err := b.Client.Attempts(t.Context(), task.ID)
				if err != nil {
					t.Fatal(err)
				}
				if c.survives && len(attempts) != 1 || !c.survives && (len(attempts) != 2 || attempts[0].Reason != muster.EngineFailed) {
					t.Errorf("task %s has the attempts %+v", task.ID, attempts)
				}
				if task.Reason != muster.ExitCode || task.ExitCode == nil || *task.ExitCode != 4 || task.Retries != 0 {
					t.Errorf("task %s ended with %s (%s) and %d retries", task.ID, task.Reason, task.Message, task.Retries)
				}
				if c.losesOutput {
					b.checkOutputWithOneGap(task.ID)
				} else {
					checkNumberedOutput(t, b.Cluster, task.ID)
				}
			}
			if task := b.waitTask(job2.ID); task.Attempt != 1 {
				t.Errorf("the process ended with attempt %d", task.Attempt)
			}
			checkNumberedOutput(t, b.Cluster, muster.TaskID{Job: job2.ID})
			b.awaitCleanup()
		})
	}
}

// awaitMoreOutput waits until each of the n tasks of a job has printed more than it had.
func (b *containerEnv) awaitMoreOutput(job muster.JobID, n int) {
	b.t.Helper()
	for num := range n {
		before := -1
		b.Await("it prints more", time.Minute, func() error {
			lines := 0
			for _, err := range b.Client.Logs(b.t.Context(), muster.TaskID{Job: job, Num: num}, logs.LogOptions{Stream: logs.Stdout}) {
				if err != nil {
					return err
				}
				lines++
			}
			if before < 0 {
				before = lines
			}
			if lines <= before {
				return fmt.Errorf("task %d has printed %d lines", num, lines)
			}
			return nil
		})
	}
}

// checkOutputWithOneGap checks that the output of a task counts up to its end, except for one gap of a few lines: an engine that ends may lose
// output that it has read but not stored.
func (b *containerEnv) checkOutputWithOneGap(id muster.TaskID) {
	b.t.Helper()
	const few = 5
	out := b.Output(id)
	body, ended := strings.CutSuffix(out, "end\n")
	last, gaps := 0, 0
	for line := range strings.Lines(body) {
		var n int
		if _, err := fmt.Sscanf(line, "line %d\n", &n); err != nil || n <= last || n > last+1+few {
			b.t.Errorf("task %s: line %d is followed by %q", id, last, line)
			return
		}
		if n > last+1 {
			gaps++
		}
		last = n
	}
	if !ended || last == 0 || gaps > 1 {
		b.t.Errorf("task %s: the log has %d gaps, and its end: %t: %q", id, gaps, ended, out)
	}
}

// TestEngineDown starts a worker whose engine is down: it does not offer containers, what needs one waits and shows why, what
// may do without runs as a process, and all runs in containers once the engine is there, with nothing asked twice.
func TestEngineDown(t *testing.T) {
	t.Parallel()
	d := containertest.StartDaemon(t)
	b := newContainerEnv(t, d.Host())
	d.Stop()
	b.start("--slots", "4")
	b.awaitOffered(false)
	waits := b.Submit(b.shellSpec("waits", "test $MUSTER_OUT = /muster/out && echo inside"))
	kind := b.shellSpec("kind", "echo inside")
	kind.Tasks[0].Kind = muster.KindContainer
	waits2 := b.Submit(kind)
	auto := b.shellSpec("auto", "test $MUSTER_OUT = /muster/out && echo inside || echo outside")
	auto.Tasks[0].Isolation = muster.IsolationAuto
	for _, run := range []struct {
		spec *muster.Spec
		want string
	}{{mustertest.ShellSpec("process", "echo outside"), "outside\n"}, {auto, "outside\n"}} {
		if task := b.waitTask(b.Submit(run.spec).ID); task.State != muster.Succeeded || b.Output(task.ID) != run.want || task.Image != "" {
			t.Errorf("%s is %s (%s) with %q in %q", run.spec.Name, task.State, task.Message, b.Output(task.ID), task.Image)
		}
	}
	awaitExplanation(t, b.Cluster, waits.ID, "container engine")
	awaitExplanation(t, b.Cluster, waits2.ID, "container engine")
	d.Restart()
	b.awaitOffered(true)
	for _, id := range []muster.JobID{waits.ID, waits2.ID, b.Submit(auto).ID} {
		task := b.waitTask(id)
		if task.State != muster.Succeeded || task.Attempt != 1 || b.Output(task.ID) != "inside\n" || !strings.Contains(task.Image, "sha256:") {
			t.Errorf("%s is %s (%s) after attempt %d with %q in %q", task.ID, task.State, task.Message, task.Attempt, b.Output(task.ID), task.Image)
		}
	}
	d.Stop()
	b.awaitOffered(false)
	d.Restart()
	b.awaitOffered(true)
	b.awaitCleanup()
}

// TestEngineReconnectsWithLeftovers kills worker, shim and engine together while containers run: when all are back, the containers are
// removed, and the tasks run again.
func TestEngineReconnectsWithLeftovers(t *testing.T) {
	t.Parallel()
	d := containertest.StartDaemon(t, "--live-restore")
	b := newContainerEnv(t, d.Host())
	w := b.start()
	job := b.Submit(b.shellSpec("again", "test $MUSTER_ATTEMPT = 2 || sleep 600"))
	b.AwaitRunning(job.ID, 1)
	d.Kill()
	killWorkerAndShims(t, w, b.dir)
	b.start()
	d.Restart()
	waitSucceeded(t, b.Cluster, job.ID)
	b.awaitCleanup()
	api := containertest.API(t, d.Host())
	if all, err := api.ContainerList(t.Context(), client.ContainerListOptions{All: true}); err != nil || len(all.Items) > 0 {
		t.Errorf("the engine has %+v (%v)", all.Items, err)
	}
}
