package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
)

// backupCommand returns muster backup of a cluster's server.
func backupCommand(t *testing.T, c *mustertest.Cluster, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "backup", "--server", "http://"+c.Addr, file)
	cmd.Env = append(os.Environ(), "MUSTER_TOKEN="+mustertest.AdminToken)
	return cmd
}

func runProgram(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), mustertest.Program(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func absent(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s exists, or %v", path, err)
	}
}

// wordSpec is a job with 20 lines of output and an artifact.
func wordSpec(word string) *muster.Spec {
	return mustertest.ShellSpec(word, wordScript(word, 20)+"; printf '"+word+"%2000s' > $MUSTER_OUT/file")
}

// checkWordJobs checks the output and the artifact of the ended jobs of a server, and returns how many there are.
func checkWordJobs(t *testing.T, c *mustertest.Cluster) (ended int) {
	t.Helper()
	for job, err := range c.Client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		tasks := c.Tasks(job.ID)
		if len(tasks) != 1 {
			t.Fatalf("job %d has %d tasks", job.ID, len(tasks))
		}
		if job.State != muster.JobSucceeded {
			continue
		}
		ended++
		checkWordOutput(t, c, tasks[0].ID, job.Name, 20)
		var content bytes.Buffer
		if err := c.Client.ReadArtifact(t.Context(), tasks[0].ID, tasks[0].Artifacts[0], &content); err != nil || !strings.HasPrefix(content.String(), job.Name+"  ") {
			t.Errorf("the artifact of job %d begins with %.20q, %v", job.ID, content.String(), err)
		}
	}
	return ended
}

// TestBackupUnderLoad makes backups while jobs are submitted, run and end. Each one is restored and has every job that had ended before it with its
// output and artifacts.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	var submitting sync.WaitGroup
	for n := range 2 {
		submitting.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				job, err := c.Client.Submit(ctx, wordSpec(fmt.Sprintf("word-%d-%d", n, i)), client.SubmitOptions{})
				if err == nil {
					_, err = c.Client.Wait(ctx, job.ID)
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("job %d: %v", i, err)
				}
			}
		})
	}
	dir := t.TempDir()
	var files []string
	var before []int // ended jobs at the start of each backup
	for n := range 3 {
		c.Await("more jobs have ended", time.Minute, func() error {
			ended := 0
			for job, err := range c.Client.Jobs(t.Context(), client.JobQuery{States: []muster.JobState{muster.JobSucceeded}}) {
				if err != nil {
					return err
				}
				_ = job
				ended++
			}
			if len(before) > 0 && ended <= before[len(before)-1] || ended < 3 {
				return fmt.Errorf("%d", ended)
			}
			before = append(before, ended)
			return nil
		})
		file := filepath.Join(dir, fmt.Sprintf("%d.tar", n))
		if out, err := backupCommand(t, c, file).CombinedOutput(); err != nil {
			t.Fatalf("backup %d: %v\n%s", n, err, out)
		}
		files = append(files, file)
	}
	stop()
	submitting.Wait()
	c.Server.Kill()
	for n, file := range files {
		data := filepath.Join(t.TempDir(), "data")
		runProgram(t, "restore", file, "--data", data)
		restored := mustertest.New(t, data)
		if ended := checkWordJobs(t, restored); ended < before[n] {
			t.Errorf("backup %d has %d ended jobs, %d had ended before it", n, ended, before[n])
		}
		next := restored.Submit(wordSpec("next"))
		if jobs := countJobs(t, restored); int(next.ID) != jobs {
			t.Errorf("the next job of backup %d has number %d, and there are %d jobs", n, next.ID, jobs)
		}
		restored.Server.Kill()
	}
}

// notInBackups are the files of a data directory that a restored server makes again or does without, by regular expressions.
var notInBackups = map[string]string{
	`^muster\.db-(wal|shm)$`:            "the backup has a copy of the database with them",
	`^muster\.db\.lock$`:                "a running server has it",
	`^last-commit$`:                     "the server writes it again",
	`^backup\.tmp`:                      "the copy itself",
	`^logs/.*\.idx$`:                    "the server makes it again",
	`^logs/removed/`:                    "what retention deletes",
	`^blobs/(partial|damaged|removed)/`: "no whole blob",
	`^worker/`:                          "of the worker of muster up, which is no part of the server",
	`^dialects/[a-z]+/fleet/(reports\.db$|(cache|logs|tasks|workers|uploads|checkpoints)/)`: "attempts that run on workers of other systems: they run again",
	`^dialects/trainforge/uploads/`: "uploads that are not complete",
}

// TestEveryFileIsInTheBackup compares the files of a data directory, with long logs, artifacts, notifications and gateways, with those of its backup:
// a file of another kind fails it until it is decided whether a restored server needs it.
func TestEveryFileIsInTheBackup(t *testing.T) {
	t.Parallel()
	flags := []string{"--shutdown-grace", "1s"}
	for _, name := range []string{"qubix", "trainforge", "dtf"} {
		flags = append(flags, "--dialect", name+"="+mustertest.ReservePort(t))
	}
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Up: true, Flags: flags})
	long := mustertest.ShellSpec("long", "head -c 3000000 /dev/zero | tr '\\0' x | fold -w 99; sleep 600")
	long.Tasks[0].LogCap = muster.MinLogCap
	running := c.Submit(long)
	noted := wordSpec("word")
	noted.Notify = []muster.Notify{{URL: "http://127.0.0.1:9/hook"}}
	if job := c.Submit(noted); c.Wait(job.ID, time.Minute).State != muster.JobSucceeded {
		t.Fatal("the job with an artifact did not succeed")
	}
	tail := fmt.Sprintf("logs/0k/%d/0/0.1.tail/", running.ID)
	c.Await("the log has a tail on the server", time.Minute, func() error {
		entries, err := os.ReadDir(filepath.Join(c.DataDir, filepath.FromSlash(tail)))
		if err == nil && len(entries) < 2 {
			err = fmt.Errorf("it has %d files", len(entries))
		}
		return err
	})
	list := func() (names []string) {
		err := fs.WalkDir(os.DirFS(c.DataDir), ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				names = append(names, name)
			}
			if errors.Is(err, fs.ErrNotExist) {
				err = nil // it was removed meanwhile
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := list()
	file := filepath.Join(t.TempDir(), "backup.tar")
	if out, err := backupCommand(t, c, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := list()
	saved := map[string]bool{}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		saved[h.Name] = true
	}
	for _, name := range before {
		listed := false
		for pattern := range notInBackups {
			listed = listed || regexp.MustCompile(pattern).MatchString(name)
		}
		if saved[name] == listed && slices.Contains(after, name) {
			t.Errorf("%s is in the backup: %t, and listed as not needed: %t", name, saved[name], listed)
		}
	}
	for what, pattern := range map[string]string{
		"the tail of a log": "^" + regexp.QuoteMeta(tail), "the gap of a log": "^" + regexp.QuoteMeta(tail) + "gap$", "a log": `^logs/.*\.log$`, "a blob": `^blobs/../../[0-9a-f]{64}$`,
		"the key of notifications": `^webhook\.key$`, "a gateway": `^dialects/qubix/`, "the database": `^muster\.db$`,
	} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(saved)), regexp.MustCompile(pattern).MatchString) {
			t.Errorf("%s is not in the backup: %s", what, strings.Join(slices.Sorted(maps.Keys(saved)), " "))
		}
	}
}

func countJobs(t *testing.T, c *mustertest.Cluster) (n int) {
	t.Helper()
	for _, err := range c.Client.Jobs(t.Context(), client.JobQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestBackupKilled kills the server, the client, or a restore with -9 at random times: there is never half a backup under its name, nothing is
// left in the data directory, and the next one is complete.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	const jobs = 3
	for n := range jobs {
		// Incompressible enough that a backup takes some time.
		job := c.Submit(mustertest.ShellSpec(fmt.Sprintf("job-%d", n), "head -c 20000000 /dev/urandom > $MUSTER_OUT/file"))
		if job = c.Wait(job.ID, time.Minute); job.State != muster.JobSucceeded {
			t.Fatalf("job %d is %s", job.ID, job.State)
		}
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.tar")
	for round := range 6 {
		cmd := backupCommand(t, c, file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond) // a kill at any moment
		if round%2 == 0 {
			c.Server.Kill()
		} else if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil { // it ended before
			runProgram(t, "restore", "--check", file)
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		absent(t, file)
		if round%2 == 0 {
			c.StartServer()
			absent(t, filepath.Join(c.DataDir, "backup.tmp"))
		}
	}
	if out, err := backupCommand(t, c, file).CombinedOutput(); err != nil {
		t.Fatalf("the last backup: %v\n%s", err, out)
	}
	data := filepath.Join(t.TempDir(), "data")
	for range 4 {
		cmd := exec.CommandContext(t.Context(), mustertest.Program(t), "restore", file, "--data", data)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+rand.IntN(100)) * time.Millisecond)
		_ = cmd.Process.Kill()
		if cmd.Wait() == nil {
			if err := os.RemoveAll(data); err != nil {
				t.Fatal(err)
			}
		}
	}
	runProgram(t, "restore", file, "--data", data)
	restored := mustertest.New(t, data)
	if n := countJobs(t, restored); n != jobs {
		t.Errorf("restored %d jobs, want %d", n, jobs)
	}
}

// TestServerMoves stops a server, backs up its data directory, and starts the server from a restored one at the same address: tasks that run
// meanwhile do not start again, and their output is whole.
func TestServerMoves(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	gates := mustertest.SharedDir(t)
	c.StartWorker("w1", t.TempDir(), "--allow-write", gates)
	gate := filepath.Join(gates, "gate")
	done := c.Submit(wordSpec("done"))
	c.Wait(done.ID, time.Minute)
	running := c.Submit(mustertest.ShellSpec("running", fmt.Sprintf("%s; while [ ! -e %s ]; do sleep 0.1; done; %s", wordScript("running", 50), gate, wordScript("running", 50))))
	c.AwaitRunning(running.ID, 1)
	key, err := c.Client.CreateKey(t.Context(), client.NewKey{Name: "ci", Role: "submitter"})
	if err != nil {
		t.Fatal(err)
	}

	stopServer(c)
	file, data := filepath.Join(t.TempDir(), "moved.tar"), filepath.Join(t.TempDir(), "data")
	runProgram(t, "backup", "--data", c.DataDir, file)
	runProgram(t, "restore", file, "--data", data)
	if err := os.RemoveAll(c.DataDir); err != nil {
		t.Fatal(err)
	}
	c.DataDir = data
	c.StartServer()

	touch(t, gate)
	if job := c.Wait(running.ID, 2*time.Minute); job.State != muster.JobSucceeded {
		t.Fatalf("the running job is %s", job.State)
	}
	task := c.Tasks(running.ID)[0]
	if task.Attempt != 1 {
		t.Errorf("its task has attempt %d, want 1", task.Attempt)
	}
	if out := c.Output(task.ID); strings.Count(out, "\n") != 100 {
		t.Errorf("its output has %d lines, want 100", strings.Count(out, "\n"))
	}
	checkWordOutput(t, c, c.Tasks(done.ID)[0].ID, "done", 20)
	caller, err := client.New("http://"+c.Addr, key.Secret, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := caller.Whoami(t.Context()); err != nil {
		t.Errorf("a key does not work on the moved server: %v", err)
	}
}

// TestKeyRotated gives a key a new secret while the old one follows a job.
func TestKeyRotated(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	key, err := c.Client.CreateKey(t.Context(), client.NewKey{Name: "ci", Role: "submitter"})
	if err != nil {
		t.Fatal(err)
	}
	old, err := client.New("http://"+c.Addr, key.Secret, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	job, err := old.Submit(t.Context(), mustertest.ShellSpec("long", "sleep 600"), client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := old.Wait(t.Context(), job.ID)
		ended <- err
	}()
	rotated, err := c.Client.RotateKey(t.Context(), key.Key.ID, client.RotateKey{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if muster.CodeOf(err) != muster.Unauthenticated {
			t.Errorf("following with the old secret: %v, want an Unauthenticated error", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the old secret still follows the job")
	}
	if _, err := old.Whoami(t.Context()); muster.CodeOf(err) != muster.Unauthenticated {
		t.Errorf("the old secret: %v, want an Unauthenticated error", err)
	}
	c.Server.Kill()
	c.StartServer()
	caller, err := client.New("http://"+c.Addr, rotated.Secret, client.Options{RetryTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if who, err := caller.Whoami(t.Context()); err != nil || who.Key != key.Key.ID {
		t.Errorf("the new secret is of the key %s, %v, want %s", who.Key, err, key.Key.ID)
	}
	if _, err := caller.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Errorf("cancelling the job of the old secret: %v", err)
	}
}
