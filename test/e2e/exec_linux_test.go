package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/mustertest"
)

// execution is a command in a task.
type execution struct {
	conn *execwire.Conn
	out  chan string // what it printed, at the end
	end  chan string // the last frame or the error of the connection
}

// startExec starts a shell text in a task. lines receives its first line.
func startExec(t *testing.T, c *mustertest.Cluster, id muster.TaskID, text string) *execution {
	t.Helper()
	conn, err := c.Client.Exec(t.Context(), id, &execwire.Start{Command: &execwire.Command{Argv: []string{"sh", "-c", text}}})
	if err != nil {
		t.Fatal(err)
	}
	x := &execution{conn: conn, out: make(chan string, 1), end: make(chan string, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		b, _ := io.ReadAll(conn.Reader(ctx, execwire.Stdout))
		x.out <- string(b)
	}()
	go func() {
		last := ""
		err := conn.Run(ctx, func(f *execwire.Frame) error {
			switch {
			case f.Exit != nil:
				last = fmt.Sprintf("exit %d %v", f.Exit.Code, f.Exit.TaskEnded)
				return io.EOF
			case f.Error != nil:
				last = f.Error.Message
				return io.EOF
			}
			return nil
		})
		if last == "" && err != nil {
			last = err.Error()
		}
		x.end <- last
	}()
	return x
}

func awaitEnd(t *testing.T, x *execution) string {
	t.Helper()
	select {
	case end := <-x.end:
		return end
	case <-time.After(90 * time.Second):
		t.Fatal("the command does not end")
		return ""
	}
}

// TestExecAndTheKills kills the client, the worker and the server while a command runs: the command ends, and the task continues.
func TestExecAndTheKills(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	dir := t.TempDir()
	w := c.StartWorker("w1", dir)
	job := c.Submit(mustertest.ShellSpec("works", "exec sleep 1000"))
	c.AwaitRunning(job.ID, 1)
	id := muster.TaskID{Job: job.ID}
	x := startExec(t, c, id, "echo $MUSTER_TASK; exit 3")
	if end, out := awaitEnd(t, x), <-x.out; end != "exit 3 false" || out != id.String()+"\n" {
		t.Fatalf("a command ended with %q and printed %q", end, out)
	}
	const command = "sleep 54321"
	await := func(what string, running bool) {
		t.Helper()
		c.Await(what, time.Minute, func() error {
			if n := len(mustertest.ProcessesMatching(t, "sleep", "54321")); (n > 0) != running {
				return fmt.Errorf("%d processes of the command run", n)
			}
			return nil
		})
	}
	for _, kill := range []struct {
		what string
		do   func(x *execution)
	}{
		{"the client", func(*execution) {
			p := mustertest.StartMuster(t, "client", []string{"MUSTER_SERVER=" + c.Client.URL(), "MUSTER_TOKEN=" + mustertest.AdminToken}, "exec", id.String(), "--", "sh", "-c", "sleep 54321; true")
			await("the client's command to run", true)
			p.Kill()
		}},
		{"the worker", func(x *execution) {
			w.Kill()
			if end := awaitEnd(t, x); !strings.Contains(end, "was lost") {
				t.Errorf("after the end of the worker: %q", end)
			}
			w = c.StartWorker("w1", dir)
		}},
		{"the server", func(x *execution) {
			c.Server.Kill()
			if end := awaitEnd(t, x); !strings.Contains(end, "connection ended") {
				t.Errorf("after the end of the server: %q", end)
			}
			c.StartServer()
		}},
	} {
		var x *execution
		if kill.what != "the client" {
			x = startExec(t, c, id, command+"; true")
			await("the command to run", true)
		}
		kill.do(x)
		await("the command to end with "+kill.what, false)
		c.AwaitWorkerState("w1", muster.WorkerActive)
		if task, err := c.Client.Task(t.Context(), id); err != nil || task.State != muster.Running || task.Attempt != 1 {
			t.Fatalf("after the end of %s: attempt %d of the task is %s, %v", kill.what, task.Attempt, task.State, err)
		}
	}
	x = startExec(t, c, id, command)
	await("the command to run", true)
	if _, err := c.Client.Cancel(t.Context(), job.ID, nil); err != nil {
		t.Fatal(err)
	}
	if end := awaitEnd(t, x); end != "exit 137 true" {
		t.Errorf("a command ended with its task: %q", end)
	}
	c.Wait(job.ID, time.Minute)
	await("the command to end with its task", false)
	if log := c.Output(id); strings.Contains(log, "54321\n") {
		t.Errorf("output of a command is in the task's: %q", log)
	}
	if log := c.Server.Log(); !strings.Contains(log, "exec started") {
		t.Error("the server's log lacks the commands")
	}
}

// TestExecOverPolls has a proxy between worker and server that passes no WebSocket.
func TestExecOverPolls(t *testing.T) {
	t.Parallel()
	c := mustertest.New(t, t.TempDir())
	target, err := url.Parse(c.Client.URL())
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			http.Error(w, "no upgrades here", http.StatusForbidden)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	c.StartWorker("w1", t.TempDir(), "--server", proxy.URL)
	job := c.Submit(mustertest.ShellSpec("works", "exec sleep 1000"))
	c.AwaitRunning(job.ID, 1)
	x := startExec(t, c, muster.TaskID{Job: job.ID}, "head -c 300000 /dev/zero | tr '\\0' x")
	if end, out := awaitEnd(t, x), <-x.out; end != "exit 0 false" || !bytes.Equal([]byte(out), bytes.Repeat([]byte("x"), 300000)) {
		t.Errorf("it ended with %q after %d bytes", end, len(out))
	}
}
