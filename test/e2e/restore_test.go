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

// backup copies a data folder, or those of its files that are named.
func backup(t *testing.T, from string, names ...string) string {
	t.Helper()
	to := t.TempDir()
	if len(names) == 0 {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	restore(t, from, to, names...)
	return to
}

// restore replaces a data folder by its copy, or only those files of it that are named.
func restore(t *testing.T, from, to string, names ...string) {
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

// says is a script that prints so many lines of its own.
func says(word string, lines int) string {
	return fmt.Sprintf(`i=0; while [ $i -lt %d ]; do i=$((i+1)); echo %s $i; done`, lines, word)
}

// checkSaid holds that the output of a task is what says prints, and all of it.
func checkSaid(t *testing.T, c *mustertest.Cluster, id muster.TaskID, word string, lines int) {
	t.Helper()
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "%s %d\n", word, i+1)
	}
	if out := c.Output(id); out != want.String() {
		t.Errorf("the output of %s has %d bytes, its own are %d:\n%.300s", id, len(out), want.Len(), out)
	}
}

// TestDataFolderRestored puts back a copy of the whole data folder from before a job that still runs on a worker: the
// next job is another one to users, and its output is its own, whether it is submitted before the worker comes back or after.
func TestDataFolderRestored(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"submitted before the worker comes back": true, "and after": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := mustertest.New(t, t.TempDir())
			gates := t.TempDir()
			w := c.StartWorker("w1", t.TempDir(), "--allow-write", gates)
			c.Server.Kill()
			copied := backup(t, c.Data)
			c.StartServer()
			c.State("w1", muster.WorkerActive)
			gate := filepath.Join(gates, "gate")
			lost := c.Submit(mustertest.Shell("lost", fmt.Sprintf(`%s; while [ ! -e %s ]; do sleep 0.1; done; %s; echo done > %s`,
				says("lost", 500), gate, says("lost", 500), gate)))
			c.Running(lost.ID, 1)
			c.Server.Kill()
			mark(t, gate)
			c.Await("the task has ended", time.Minute, func() error {
				if b, err := os.ReadFile(gate); err != nil || len(b) == 0 {
					return errors.New("it has not")
				}
				return nil
			})
			if before {
				w.Signal(syscall.SIGSTOP)
			}
			restore(t, copied, c.Data)
			c.StartServer()
			if !before {
				c.State("w1", muster.WorkerActive)
			}
			next := c.Submit(mustertest.Shell("next", says("next", 300)))
			if before {
				w.Signal(syscall.SIGCONT)
			} else if next.ID <= lost.ID {
				t.Errorf("the next job has number %d, which was used", next.ID)
			}
			if job := c.Wait(next.ID, 2*time.Minute); job.State != muster.JobSucceeded {
				t.Fatalf("it is %s", job.State)
			}
			checkSaid(t, c, c.Tasks(next.ID)[0].ID, "next", 300)
		})
	}
}

// TestDatabaseAloneRestored puts back an older copy of the database alone: the server says so and does not start until
// the loss is accepted, and then no job gets the number or the output of one that was lost.
func TestDatabaseAloneRestored(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	c.Wait(c.Submit(mustertest.Shell("first", says("first", 3))).ID, time.Minute)
	stop(c)
	copied := backup(t, c.Data, "muster.db")
	c.StartServer()
	lost := c.Submit(mustertest.Shell("lost", says("lost", 44)))
	c.Wait(lost.ID, time.Minute)
	checkSaid(t, c, c.Tasks(lost.ID)[0].ID, "lost", 44)
	stop(c)
	restore(t, copied, c.Data, "muster.db")
	refused(t, c, "commits are missing, and with them job 2")
	accept(t, c, "job 2")
	next := c.Submit(mustertest.Shell("next", says("next", 22)))
	if next.ID != lost.ID+1 {
		t.Errorf("the next job has number %d, the lost one had %d", next.ID, lost.ID)
	}
	c.Wait(next.ID, 2*time.Minute)
	checkSaid(t, c, c.Tasks(next.ID)[0].ID, "next", 22)
	if _, err := c.Client.Job(t.Context(), lost.ID); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the lost job: %v", err)
	}
	stop(c)
	c.StartServer() // as ever
}

// TestWriteAheadLogDamaged damages what holds the last commits after kill -9: the server says what is missing and does
// not start until that is accepted. Undamaged it starts as ever.
func TestWriteAheadLogDamaged(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	c.StartWorker("w1", t.TempDir())
	for range 4 {
		c.Wait(c.Submit(mustertest.Shell("job", says("job", 5))).ID, time.Minute)
	}
	c.Server.Kill()
	copied := backup(t, c.Data)
	wal := filepath.Join(c.Data, "muster.db-wal")
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
		restore(t, copied, c.Data)
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		refused(t, c, "commits are missing")
	}
	accept(t, c, "job") // with the log removed or damaged, whichever was the last
	if next := c.Submit(mustertest.Shell("next", "true")); next.ID != 5 {
		t.Errorf("the next job has number %d, want 5", next.ID)
	}
	c.Server.Kill()
	c.StartServer()
	c.Server.Kill()
	restore(t, copied, c.Data)
	c.StartServer()
	if next := c.Submit(mustertest.Shell("next", "true")); next.ID != 5 {
		t.Errorf("without damage the next job has number %d, want 5", next.ID)
	}
}

// stop stops the server in order.
func stop(c *mustertest.Cluster) {
	c.Server.Signal(syscall.SIGTERM)
	<-c.Server.Done()
}

// refused starts the server and holds that it ends with a conflict and says so.
func refused(t *testing.T, c *mustertest.Cluster, want string) {
	t.Helper()
	c.LaunchServer()
	if code := c.Server.Exit(time.Minute); code != 5 {
		t.Errorf("the server ended with %d, want 5", code)
	}
	if log := c.Server.Log(); !strings.Contains(log, want) || !strings.Contains(log, "--accept-loss") {
		t.Errorf("the server does not say %q:\n%s", want, log)
	}
}

// accept starts the server with the loss accepted, and holds that it logs it.
func accept(t *testing.T, c *mustertest.Cluster, want string) {
	t.Helper()
	c.LaunchServer("--accept-loss")
	c.Await("the server answers", time.Minute, func() error {
		_, err := c.Client.Whoami(t.Context())
		return err
	})
	if log := c.Server.Log(); !strings.Contains(log, "this loss was accepted") || !strings.Contains(log, want) {
		t.Errorf("the log does not tell of the loss of %q:\n%s", want, log)
	}
}
