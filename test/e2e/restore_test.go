package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// copyDataDir copies a data folder, or those of its files that are named.
func copyDataDir(t *testing.T, from string, names ...string) string {
	t.Helper()
	to := t.TempDir()
	if len(names) == 0 {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	restoreDataDir(t, from, to, names...)
	return to
}

// restoreDataDir replaces a data folder by its copy, or only those files of it that are named.
func restoreDataDir(t *testing.T, from, to string, names ...string) {
	t.Helper()
	if len(names) == 0 {
		entries, err := os.ReadDir(to)
		for _, e := range entries {
			err = errors.Join(err, os.RemoveAll(filepath.Join(to, e.Name())))
		}
		if err := errors.Join(err, os.CopyFS(to, os.DirFS(from))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// wordScript is a script that prints a number of lines with a word.
func wordScript(word string, lines int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo %s $i; done`, lines, word)
}

// checkWordOutput checks that the output of a task is exactly that of wordScript.
func checkWordOutput(t *testing.T, c *mustertest.Cluster, id muster.TaskID, word string, lines int) {
	t.Helper()
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%s %d\n", word, i+1)
	}
	if out := c.Output(id); out != want.String() {
		t.Errorf("the output of %s has %d bytes, its own are %d:\n%.300s", id, len(out), want.Len(), out)
	}
}

// TestDataFolderRestored restores a copy of the whole data folder from before a job that still runs on a worker: the next job has another
// number and its own output, whether it is submitted before the worker reconnects or after.
func TestDataFolderRestored(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"submitted before the worker comes back": true, "and after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			releaseFiles := t.TempDir()
			w := c.StartWorker("w1", t.TempDir(), "--allow-write", releaseFiles)
			c.Server.Kill()
			copied := copyDataDir(t, c.DataDir)
			c.StartServer()
			c.AwaitWorkerState("w1", muster.WorkerActive)
			releaseFile, ended := filepath.Join(releaseFiles, "gate"), filepath.Join(releaseFiles, "ended")
			lost := c.Submit(mustertest.ShellSpec("lost", fmt.Sprintf(`%s; while [ ! -e %s ]; do sleep 0.1; done; %s; echo done > %s`,
				wordScript("lost", 500), releaseFile, wordScript("lost", 500), ended)))
			c.AwaitRunning(lost.ID, 1)
			c.Server.Kill()
			touch(t, releaseFile)
			c.Await("the task has ended", time.Minute, func() error {
				if b, err := os.ReadFile(ended); err != nil || len(b) == 0 {
					return errors.New("it has not")
				}
				return nil
			})
			if before {
				w.Signal(syscall.SIGSTOP)
			}
			restoreDataDir(t, copied, c.DataDir)
			c.StartServer()
			if !before {
				c.AwaitWorkerState("w1", muster.WorkerActive)
			}
			next := c.Submit(mustertest.ShellSpec("next", wordScript("next", 300)))
			if before {
				w.Signal(syscall.SIGCONT)
			} else if next.ID <= lost.ID {
				t.Errorf("the next job has number %d, which was used", next.ID)
			}
			if job := c.Wait(next.ID, 2*time.Minute); job.State != muster.JobSucceeded {
				t.Fatalf("it is %s", job.State)
			}
			checkWordOutput(t, c, c.Tasks(next.ID)[0].ID, "next", 300)
		})
	}
}

// TestDatabaseAloneRestored restores an older copy of only the database: the server reports it and does not start until the loss is accepted;
// then no job gets the number or the output of a lost one.
func TestDatabaseAloneRestored(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	c.Wait(c.Submit(mustertest.ShellSpec("first", wordScript("first", 3))).ID, time.Minute)
	stopServer(c)
	copied := copyDataDir(t, c.DataDir, "muster.db")
	c.StartServer()
	lost := c.Submit(mustertest.ShellSpec("lost", wordScript("lost", 44)))
	c.Wait(lost.ID, time.Minute)
	checkWordOutput(t, c, c.Tasks(lost.ID)[0].ID, "lost", 44)
	stopServer(c)
	restoreDataDir(t, copied, c.DataDir, "muster.db")
	expectStartRefused(t, c, "commits are missing, and with them job 2")
	startAcceptingLoss(t, c, "job 2")
	next := c.Submit(mustertest.ShellSpec("next", wordScript("next", 22)))
	if next.ID != lost.ID+1 {
		t.Errorf("the next job has number %d, the lost one had %d", next.ID, lost.ID)
	}
	c.Wait(next.ID, 2*time.Minute)
	checkWordOutput(t, c, c.Tasks(next.ID)[0].ID, "next", 22)
	if _, err := c.Client.Job(t.Context(), lost.ID); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the lost job: %v", err)
	}
	stopServer(c)
	c.StartServer() // as usual
}

// TestWriteAheadLogDamaged damages the write-ahead log after kill -9: the server reports what is missing and does not start until the loss is
// accepted. An undamaged one starts as usual.
func TestWriteAheadLogDamaged(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	for range 4 {
		c.Wait(c.Submit(mustertest.ShellSpec("job", wordScript("job", 5))).ID, time.Minute)
	}
	c.Server.Kill()
	copied := copyDataDir(t, c.DataDir)
	wal := filepath.Join(c.DataDir, "muster.db-wal")
	b, err := os.ReadFile(wal)
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func() error{
		"a bit is flipped": func() error {
			flipped := bytes.Clone(b)
			flipped[len(b)/2] ^= 1
			return os.WriteFile(wal, flipped, 0o600)
		},
		"half of it is left": func() error { return os.Truncate(wal, int64(len(b)/2)) },
		"it is removed":      func() error { return os.Remove(wal) },
	} {
		t.Log(name)
		restoreDataDir(t, copied, c.DataDir)
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		expectStartRefused(t, c, "commits are missing")
	}
	startAcceptingLoss(t, c, "job") // with the log removed or damaged, whichever was the last
	if next := c.Submit(mustertest.ShellSpec("next", "true")); next.ID != 5 {
		t.Errorf("the next job has number %d, want 5", next.ID)
	}
	c.Server.Kill()
	c.StartServer()
	c.Server.Kill()
	restoreDataDir(t, copied, c.DataDir)
	c.StartServer()
	if next := c.Submit(mustertest.ShellSpec("next", "true")); next.ID != 5 {
		t.Errorf("without damage the next job has number %d, want 5", next.ID)
	}
}

// stopServer stops the server in order.
func stopServer(c *mustertest.Cluster) {
	c.Server.Signal(syscall.SIGTERM)
	<-c.Server.Done()
}

// expectStartRefused starts the server and checks that it exits with a conflict and an error.
func expectStartRefused(t *testing.T, c *mustertest.Cluster, want string) {
	t.Helper()
	c.LaunchServer()
	if code := c.Server.WaitExit(time.Minute); code != 5 {
		t.Errorf("the server ended with %d, want 5", code)
	}
	if log := c.Server.Log(); !strings.Contains(log, want) || !strings.Contains(log, "--accept-loss") {
		t.Errorf("the server does not print %q:\n%s", want, log)
	}
}

// startAcceptingLoss starts the server with --accept-loss, and checks that it logs the loss.
func startAcceptingLoss(t *testing.T, c *mustertest.Cluster, want string) {
	t.Helper()
	c.LaunchServer("--accept-loss")
	c.Await("the server answers", time.Minute, func() error {
		_, err := c.Client.Whoami(t.Context())
		return err
	})
	if log := c.Server.Log(); !strings.Contains(log, "loss accepted") || !strings.Contains(log, want) {
		t.Errorf("the log does not tell of the loss of %q:\n%s", want, log)
	}
}
