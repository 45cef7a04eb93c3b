//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestContainersSurviveTheWorker kills a worker ten times while ten containers run and end: each runs once, ends with its exit code, has its
// complete log, and leaves nothing.
func TestContainersSurviveTheWorker(t *testing.T) {
	t.Parallel()
	newContainerEnv(t, containertest.SharedEngine(t)).testOutlivesWorker(10, 10)
}

func (b *containerEnv) testOutlivesWorker(kills, tasks int) {
	t := b.t
	w := b.start("--slots", strconv.Itoa(tasks))
	var script strings.Builder
	// Some end with the first kill, some after the last one.
	script.WriteString(waitForRelease + countScript("$((3 + 9 * MUSTER_INDEX))"))
	fmt.Fprintf(&script, "case $((MUSTER_INDEX %% %d)) in ", len(endings))
	for i, e := range endings {
		fmt.Fprintf(&script, "%d) %s;; ", i, e.shell)
	}
	script.WriteString("esac")
	job := b.Submit(withArray(b.shellSpec("long", script.String()), tasks))
	b.AwaitRunning(job.ID, int64(tasks))
	b.release()
	for range kills {
		w.Kill()
		w = b.start("--slots", strconv.Itoa(tasks))
	}
	current, err := b.Client.Job(t.Context(), job.ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("after %d kills: %v", kills, current.Counts)
	b.Wait(job.ID, 2*time.Minute)
	for _, task := range b.Tasks(job.ID) {
		e := endings[task.ID.Num%len(endings)]
		if task.State != e.state || task.Reason != e.reason || task.ExitCode == nil || *task.ExitCode != e.code || task.Attempt != 1 {
			t.Errorf("task %s is %s (%s, %s) after attempt %d, want %s with exit code %d", task.ID, task.State, task.Reason, task.Message, task.Attempt, e.state, e.code)
		}
		if !strings.Contains(task.Image, "sha256:") {
			t.Errorf("task %s ran in the image %q", task.ID, task.Image)
		}
		if want := fmt.Sprintf(`{"n":%d}`, task.ID.Num); strings.Contains(e.shell, "result.json") && string(task.Result) != want {
			t.Errorf("task %s has the result %s, want %s", task.ID, task.Result, want)
		}
		if out, want := b.Output(task.ID), numberedLines(3+9*task.ID.Num); out != want {
			t.Errorf("task %s: the log has %d bytes instead of %d", task.ID, len(out), len(want))
		}
	}
	b.awaitCleanup()
}

// TestContainersEndWithoutAWorker lets containers end, and one outlive its timeout, while there is no
// worker: the next one reports it, with the outputs.
func TestContainersEndWithoutAWorker(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	w := b.start("--slots", "3")
	slow := b.shellSpec("slow", "sleep 600")
	slow.Tasks[0].Timeout = muster.Duration(10 * time.Second) // its worker is killed before
	var jobs []muster.JobID
	for _, s := range []*muster.Spec{
		b.shellSpec("good", "mkdir $MUSTER_OUT/live; echo so far > $MUSTER_OUT/live/curve; "+waitForRelease+"echo late; echo data > $MUSTER_OUT/model.bin"), b.shellSpec("bad", waitForRelease+"echo failing >&2; exit 9"), slow,
	} {
		job := b.Submit(s)
		b.AwaitRunning(job.ID, 1)
		jobs = append(jobs, job.ID)
		if len(jobs) == 1 {
			b.Await("it shows a file while it runs", time.Minute, func() error {
				if task := b.Tasks(job.ID)[0]; len(task.Artifacts) != 1 || task.Artifacts[0].Name != "live/curve" {
					return fmt.Errorf("it is %s and has the artifacts %v", task.State, task.Artifacts)
				}
				return nil
			})
		}
	}
	w.Kill()
	b.release()
	api := containertest.API(t, b.host)
	b.Await("all containers have ended without a worker", time.Minute, func() error {
		all, err := api.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "dev.muster.data="+b.dir)})
		if err != nil {
			return err
		}
		for _, c := range all.Items {
			if c.State != container.StateExited {
				return fmt.Errorf("%q is %s", c.Names, c.State)
			}
		}
		return nil
	})
	b.start("--slots", "3")
	for i, e := range []ending{{state: muster.Succeeded}, {state: muster.Failed, reason: muster.ExitCode}, {state: muster.TimedOut, reason: muster.Timeout}} {
		if task := b.waitTask(jobs[i]); task.State != e.state || task.Reason != e.reason || task.Attempt != 1 {
			t.Errorf("job %d: the task is %s (%s, %s) after attempt %d", jobs[i], task.State, task.Reason, task.Message, task.Attempt)
		}
	}
	task := b.Tasks(jobs[0])[0]
	if out := b.Output(task.ID); out != "late\n" || !slices.ContainsFunc(task.Artifacts, func(a muster.Artifact) bool { return a.Name == "model.bin" }) {
		t.Errorf("it printed %q and has the artifacts %v", out, task.Artifacts)
	}
	b.awaitCleanup()
}

// TestContainersWithoutWorkerAndShim kills both: the containers, which continue then, are removed by the next
// worker, and the tasks run again.
func TestContainersWithoutWorkerAndShim(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	w := b.start("--slots", "3")
	job := b.Submit(withArray(b.shellSpec("again", `test $MUSTER_ATTEMPT = 2 || sleep 600`), 3))
	b.AwaitRunning(job.ID, 3)
	first := containertest.ListResources(t, b.host, b.dir)
	killWorkerAndShims(t, w, b.dir)
	b.start("--slots", "3")
	waitSucceeded(t, b.Cluster, job.ID)
	for _, task := range b.Tasks(job.ID) {
		if task.Attempt != 2 {
			t.Errorf("task %s ended with attempt %d", task.ID, task.Attempt)
		}
	}
	b.awaitCleanup()
	for id, desc := range containertest.ListResources(t, b.host, b.dir) {
		if _, existed := first[id]; existed && b.before[id] == "" {
			t.Errorf("%s still exists", desc)
		}
	}
}

// TestShimOfContainersKilled kills the shim of containers while its worker runs: they end at once as the fleet's fault, and run again.
func TestShimOfContainersKilled(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start("--slots", "3")
	job := b.Submit(withArray(b.shellSpec("again", `test $MUSTER_ATTEMPT = 2 || sleep 600`), 3))
	b.AwaitRunning(job.ID, 3)
	for _, pid := range mustertest.ShimPIDs(t, b.dir) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	waitSucceeded(t, b.Cluster, job.ID)
	for _, task := range b.Tasks(job.ID) {
		attempts, err := b.Client.Attempts(t.Context(), task.ID)
		if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.WorkerInternal {
			t.Errorf("task %s has the attempts %+v (%v)", task.ID, attempts, err)
		}
	}
	b.awaitCleanup()
}

// TestUpgradeWithContainers upgrades a worker in place while containers run: they are not affected.
func TestUpgradeWithContainers(t *testing.T) {
	t.Parallel()
	const tasks = 5
	b := newContainerEnv(t, containertest.SharedEngine(t))
	w := b.start("--slots", strconv.Itoa(tasks))
	job := b.Submit(withArray(b.shellSpec("long", numberedLinesScript("gate")), tasks))
	b.AwaitRunning(job.ID, tasks)
	for n := range 2 {
		w.Signal(syscall.SIGUSR2)
		awaitUpgrade(b.Cluster, w, n+1)
	}
	b.release()
	waitSucceeded(t, b.Cluster, job.ID)
	for _, task := range b.Tasks(job.ID) {
		if task.Attempt != 1 {
			t.Errorf("task %s took attempt %d", task.ID, task.Attempt)
		}
		checkNumberedOutput(t, b.Cluster, task.ID)
	}
	b.awaitCleanup()
}

// TestServerKilledUnderContainers kills the server while containers run, print and end.
func TestServerKilledUnderContainers(t *testing.T) {
	t.Parallel()
	const tasks = 5
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start("--slots", strconv.Itoa(tasks))
	job := b.Submit(withArray(b.shellSpec("long", numberedLinesScript("gate")+"exit $MUSTER_INDEX"), tasks))
	b.AwaitRunning(job.ID, tasks)
	for range 3 {
		b.Server.Kill()
		b.StartServer()
	}
	b.Server.Kill()
	b.release() // they end while there is no server
	b.StartServer()
	b.Wait(job.ID, time.Minute)
	for _, task := range b.Tasks(job.ID) {
		if task.Attempt != 1 || task.ExitCode == nil || *task.ExitCode != task.ID.Num {
			t.Errorf("task %s: attempt %d, exit code %v", task.ID, task.Attempt, task.ExitCode)
		}
		checkNumberedOutput(t, b.Cluster, task.ID)
	}
	b.awaitCleanup()
}

// TestCheckpointOfAContainerMoves drains a worker while a container runs that saves its state: it continues at another worker
// from the very number at which it stopped.
func TestCheckpointOfAContainerMoves(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	b.start()
	spec := checkpointSpec()
	spec.Tasks[0].Image = b.image
	job := b.Submit(spec)
	b.AwaitRunning(job.ID, 1)
	awaitCheckpoint(b.Cluster, job.ID, "")
	b.StartWorker("w2", t.TempDir(), "--engine", b.host)
	soon := muster.Duration(time.Second)
	if _, err := b.Client.DrainWorker(t.Context(), "w1", &soon); err != nil {
		t.Fatal(err)
	}
	waitSucceeded(t, b.Cluster, job.ID)
	task := b.Tasks(job.ID)[0]
	attempts, err := b.Client.Attempts(t.Context(), task.ID)
	if err != nil || len(attempts) != 2 || attempts[0].Reason != muster.Preempted {
		t.Fatalf("%v: %+v", err, attempts)
	}
	if from, saved := startedFrom(t, b.Output(task.ID)), lastSavedStep(t, b.Cluster, attempts[0].ID); saved != from {
		t.Errorf("it saved %d and restarted at %d", saved, from)
	}
	b.awaitCleanup()
}

// TestContainersEnd checks how containers may end, and what they leave to those who asked for them.
func TestContainersEnd(t *testing.T) {
	t.Parallel()
	newContainerEnv(t, containertest.SharedEngine(t)).testEndings()
}

func (b *containerEnv) testEndings() {
	t := b.t
	b.start("--slots", "4")
	own := containertest.ShellImage(t)
	own.User, own.Workdir = "user", "/home/user"
	own.Entrypoint, own.Cmd = []string{"/bin/sh", "-c", `echo "$0 $(id -un) $PWD $*"; exit 6`}, []string{"own", "command"}
	image := containertest.LoadImage(t, b.host, "muster-e2e-own:1", own)

	overMemory := b.shellSpec("hungry", "exec dd if=/dev/zero of=/dev/null bs=200M count=1")
	overMemory.Tasks[0].Resources.Memory = 32 << 20
	slow := b.shellSpec("slow", `trap 'echo asked; exit 0' TERM; sleep 600 & wait`)
	slow.Tasks[0].Timeout = muster.Duration(5 * time.Second) // its trap is set by then
	ignoresSignals := b.shellSpec("deaf", `trap '' TERM; while :; do sleep 1; done`)
	ignoresSignals.Tasks[0].Timeout, ignoresSignals.Tasks[0].Kill.Grace = muster.Duration(time.Second), muster.Duration(time.Second)
	readOnly := b.shellSpec("sealed", `echo no >/etc/new && exit 1; set -e; echo yes >/tmp/new; echo yes >$MUSTER_OUT/new; cat /tmp/new`)
	readOnly.Tasks[0].Container = &muster.Container{ReadOnly: true}
	plain := b.shellSpec("plain", `set -e; id -u; echo data >out.txt; echo more >$MUSTER_OUT/more.txt; touch $MUSTER_CHECKPOINT/x; echo temporary >$TMPDIR/t`)
	plain.Tasks[0].Container = &muster.Container{User: "user"}
	plain.Tasks[0].Outputs = []string{"out.txt"}
	ownCommand := b.shellSpec("own", "")
	ownCommand.Tasks[0].Kind, ownCommand.Tasks[0].Image, ownCommand.Tasks[0].Run = muster.KindContainer, image, nil
	ownArguments := b.shellSpec("arguments", "")
	ownArguments.Tasks[0].Image, ownArguments.Tasks[0].Run = image, &muster.Command{Argv: []string{"other", "words"}}
	absent := b.shellSpec("absent", "")
	absent.Tasks[0].Run = &muster.Command{Argv: []string{"/no/such/program"}}
	absent.Tasks[0].Container = &muster.Container{Entrypoint: []string{}}

	for _, c := range []struct {
		spec   *muster.Spec
		want   ending
		output string
	}{
		{b.shellSpec("killed", "kill -KILL $$"), ending{state: muster.Failed, reason: muster.Signal, code: 137}, ""},
		{b.shellSpec("code of a kill", "exit 137"), ending{state: muster.Failed, code: 137}, ""},
		{b.shellSpec("code of a shell", "exit 127"), ending{state: muster.Failed, reason: muster.ExitCode, code: 127}, ""},
		{overMemory, ending{state: muster.Failed, reason: muster.OutOfMemory, code: 137}, ""},
		{slow, ending{state: muster.TimedOut, reason: muster.Timeout}, "asked\n"},
		{ignoresSignals, ending{state: muster.TimedOut, reason: muster.Timeout}, ""},
		{readOnly, ending{state: muster.Succeeded}, "yes\n"},
		{plain, ending{state: muster.Succeeded}, "1000\n"},
		{ownCommand, ending{state: muster.Failed, reason: muster.ExitCode, code: 6}, "own user /home/user command\n"},
		{ownArguments, ending{state: muster.Failed, reason: muster.ExitCode, code: 6}, "other user /muster/work words\n"},
		{absent, ending{state: muster.Failed, reason: muster.StartFailed, code: 127}, ""},
		{b.shellSpec("chatty", "seq 1 200000"), ending{state: muster.Succeeded}, chattyScript(200000)},
	} {
		t.Run(c.spec.Name, func(t *testing.T) {
			task := b.waitTask(b.Submit(c.spec).ID)
			code := 0
			if task.ExitCode != nil {
				code = *task.ExitCode
			}
			if task.State != c.want.state || c.want.reason != "" && task.Reason != c.want.reason || c.want.code != 0 && code != c.want.code {
				t.Errorf("it is %s (%s: %s) with exit code %d, want %+v", task.State, task.Reason, task.Message, code, c.want)
			}
			if c.want.reason == muster.StartFailed && !strings.HasPrefix(task.Message, "/no/such/program: no such command in the image") {
				t.Errorf("got %q", task.Message)
			}
			if out := b.Output(task.ID); out != c.output {
				t.Errorf("it printed %.200q", out)
			}
			t.Logf("%s: %s", task.Reason, task.Message)
		})
	}
	b.awaitCleanup()
}

func chattyScript(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintln(&s, i+1)
	}
	return s.String()
}

// TestContainerCancelled cancels a container that ignores signals.
func TestContainerCancelled(t *testing.T) {
	t.Parallel()
	newContainerEnv(t, containertest.SharedEngine(t)).testCancelled()
}

func (b *containerEnv) testCancelled() {
	t := b.t
	b.start()
	spec := b.shellSpec("deaf", `trap '' TERM INT; while :; do sleep 1; done`)
	spec.Tasks[0].Kill.Grace = muster.Duration(time.Second)
	job := b.Submit(spec)
	b.AwaitRunning(job.ID, 1)
	if _, err := b.Client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	if task := b.waitTask(job.ID); task.State != muster.Cancelled {
		t.Errorf("it is %s (%s)", task.State, task.Message)
	}
	b.awaitCleanup()
}

// TestPodman runs the same with Podman and a user namespace for each container: tasks with every outcome, one that ignores signals, a killed worker,
// an allowlist, and no leftovers.
func TestPodman(t *testing.T) { //nolint:tparallel // one subtest at a time: other tests run beside this one
	t.Parallel()
	if !containertest.WithSubordinateIDs(t, "containers:1000000:6553600") {
		return
	}
	host := containertest.StartPodman(t)
	for _, test := range []struct {
		name string
		run  func(*containerEnv)
	}{
		{"ends", (*containerEnv).testEndings},
		{"cancelled", (*containerEnv).testCancelled},
		{"killed workers", func(b *containerEnv) { b.testOutlivesWorker(3, 4) }},
		{"allowlist", (*containerEnv).testAllowlist},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newContainerEnv(t, host)) })
	}
}

// TestMissingImages submits fifty tasks of an image that is nowhere: they fail as their user's fault and ask the registry seldom, and
// other tasks, with an image and without, run meanwhile.
func TestMissingImages(t *testing.T) {
	t.Parallel()
	const missing, others = 50, 20
	b := newContainerEnv(t, containertest.SharedEngine(t))
	r := containertest.NewRegistry(t)
	b.start("--slots", "4")
	absent := b.shellSpec("lost", "true")
	absent.Tasks[0].Image = r.Addr + "/acme/nowhere:v1"
	job := b.Submit(withArray(absent, missing))
	var slowest time.Duration
	for n := range others {
		spec := mustertest.ShellSpec("other", "echo hello")
		if n%2 == 0 {
			spec = b.shellSpec("other", "echo hello")
		}
		start := time.Now()
		waitSucceeded(t, b.Cluster, b.Submit(spec).ID)
		slowest = max(slowest, time.Since(start))
	}
	t.Logf("the slowest of %d others took %v", others, slowest)
	b.Wait(job.ID, time.Minute)
	for _, task := range b.Tasks(job.ID) {
		if task.State != muster.Failed || task.Reason != muster.ImageMissing || task.Attempt != 1 || !strings.Contains(task.Message, "nowhere") {
			t.Fatalf("task %s is %s (%s: %s) after attempt %d", task.ID, task.State, task.Reason, task.Message, task.Attempt)
		}
	}
	if n := r.Requests("/manifests/"); n == 0 || n > missing {
		t.Errorf("the registry received %d requests", n)
	}
	b.awaitCleanup()
}

// TestPullStalls lets a pull stop in the middle: others continue, the task tells what it waits for, and it runs when the registry
// continues; one that is cancelled meanwhile ends at once.
func TestPullStalls(t *testing.T) {
	t.Parallel()
	b := newContainerEnv(t, containertest.SharedEngine(t))
	r := containertest.NewRegistry(t)
	build := containertest.ShellImage(t)
	build.Texts["/noise"] = chattyScript(100000)
	ref, digest := r.Push(t, "acme/slow:v1", build)
	other, _ := r.Push(t, "acme/other:v1", containertest.ImageSpec{Texts: map[string]string{"/noise": chattyScript(50000)}, Cmd: []string{"/noise"}})
	api := containertest.API(t, b.host)
	t.Cleanup(func() {
		for _, name := range []string{ref, other} {
			_, _ = containertest.API(t, b.host).ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true}) // it may not be there
		}
	})
	b.start("--slots", "4")
	r.Stall(10_000)
	spec := b.shellSpec("slow", "cat /noise | wc -l")
	spec.Tasks[0].Image = ref
	job := b.Submit(spec)
	missing := b.shellSpec("gone", "true")
	missing.Tasks[0].Image = other
	cancelled := b.Submit(missing)
	b.Await("the tasks tell that they pull", time.Minute, func() error {
		for _, id := range []muster.JobID{job.ID, cancelled.ID} {
			if step := b.Tasks(id)[0].Step; !strings.Contains(step, "pulling "+r.Addr) {
				return fmt.Errorf("its step is %q", step)
			}
		}
		return nil
	})
	waitSucceeded(t, b.Cluster, b.Submit(b.shellSpec("another", "true")).ID)
	if _, err := b.Client.Cancel(t.Context(), cancelled.ID, nil); err != nil {
		t.Fatal(err)
	}
	if task := b.waitTask(cancelled.ID); task.State != muster.Cancelled {
		t.Errorf("the cancelled one is %s (%s)", task.State, task.Message)
	}
	r.Resume()
	task := b.waitTask(job.ID)
	if task.State != muster.Succeeded || b.Output(task.ID) != "100000\n" || !strings.HasSuffix(task.Image, digest) {
		t.Errorf("it is %s (%s) with %q of %s", task.State, task.Message, b.Output(task.ID), task.Image)
	}
	if _, err := api.ImageInspect(t.Context(), ref); err != nil {
		t.Error(errors.Join(errors.New("the image is not there"), err))
	}
	b.awaitCleanup()
}
