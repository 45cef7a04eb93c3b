package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// TestAllowlist checks that tasks reach the hosts of their list, and no other in any way, also after
// their worker was killed, as processes and as containers; and that their logs tell what was refused.
func TestAllowlist(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give containers an allowlist")
	}
	newContainerEnv(t, containertest.SharedEngine(t)).testAllowlist()
}

func (b *containerEnv) testAllowlist() {
	t := b.t
	if _, err := exec.LookPath("wget"); err != nil {
		t.Skip("wget is not installed")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "reached\n") }))
	defer server.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	good, bad := strings.TrimPrefix(server.URL, "http://"), strings.TrimPrefix(other.URL, "http://")
	w := b.start("--slots", "2", "--allow-host-network")
	script := fmt.Sprintf(`fetch() { wget -qO- "http://$1/" 2>/dev/null || echo refused; }
		fetch %s; touch first; %s fetch %[1]s; fetch %[3]s; unset http_proxy; fetch %[1]s
		tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '`, good, waitForRelease, bad)
	var jobs []muster.Job
	for _, s := range []*muster.Spec{mustertest.ShellSpec("process", script), b.shellSpec("container", script)} {
		s.Tasks[0].Network, s.Tasks[0].AllowHosts = muster.NetworkAllowlist, []string{good, "pypi.org"}
		job := b.Submit(s)
		b.AwaitRunning(job.ID, 1)
		jobs = append(jobs, job)
	}
	b.Await("both tasks have reached the server", time.Minute, func() error {
		done, err := filepath.Glob(filepath.Join(b.dir, "tasks", "*", "work", "first"))
		if err == nil && len(done) < len(jobs) {
			err = fmt.Errorf("%d have", len(done))
		}
		return err
	})
	w.Kill()
	b.start("--slots", "2", "--allow-host-network")
	b.release()
	refused := "the network allowlist refused " + bad + ": add it to allow_hosts\n"
	for _, job := range jobs {
		task := b.waitTask(job.ID)
		if task.State != muster.Succeeded || task.Attempt != 1 {
			t.Errorf("%s is %s after attempt %d: %s", task.Name, task.State, task.Attempt, task.Message)
		}
		if out, want := b.Output(task.ID), "reached\nreached\nrefused\nrefused\nlo\n"; out != want {
			t.Errorf("%s prints %q, want %q", task.Name, out, want)
		}
		var output strings.Builder
		for line, err := range b.Client.Logs(t.Context(), task.ID, client.LogOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if line.Stream == client.System {
				output.Write(line.Data)
			}
		}
		if output.String() != refused {
			t.Errorf("the log of %s has %q, want %q", task.Name, &output, refused)
		}
	}
	b.awaitCleanup()
}

// TestAllowlistSurvivesTheEngine checks that a container reaches the hosts of its list, and no other, while its
// engine is away and when it is back.
func TestAllowlistSurvivesTheEngine(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give containers an allowlist")
	}
	requests := make(chan string, 3)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { requests <- q.URL.Path }))
	defer server.Close()
	d := containertest.StartDaemon(t, "--live-restore")
	b := newContainerEnv(t, d.Host())
	b.start("--allow-host-network")
	good := strings.TrimPrefix(server.URL, "http://")
	s := b.shellSpec("container", fmt.Sprintf(`fetch() { wget -qO- "http://$1" 2>/dev/null || echo refused; }
		fetch %s/before; while [ ! -e away ]; do sleep 0.05; done; fetch %[1]s/away; %s fetch %[1]s/back; fetch 127.0.0.1:1/`, good, waitForRelease))
	s.Tasks[0].Network, s.Tasks[0].AllowHosts = muster.NetworkAllowlist, []string{good}
	job := b.Submit(s)
	reached := func(want string) {
		t.Helper()
		select {
		case got := <-requests:
			if got != want {
				t.Errorf("it asks for %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it does not reach %s; printed %q", want, b.Output(muster.TaskID{Job: job.ID}))
		}
	}
	reached("/before")
	d.Stop()
	work, err := filepath.Glob(filepath.Join(b.dir, "tasks", "*", "work"))
	if err != nil || len(work) != 1 {
		t.Fatalf("%q, %v", work, err)
	}
	if err := os.WriteFile(filepath.Join(work[0], "away"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reached("/away")
	d.Restart()
	b.awaitOffered(true)
	b.release()
	reached("/back")
	if task := b.waitTask(job.ID); task.State != muster.Succeeded || task.Attempt != 1 || b.Output(task.ID) != "refused\n" {
		t.Errorf("%s after attempt %d, printed %q: %s", task.State, task.Attempt, b.Output(task.ID), task.Message)
	}
	b.awaitCleanup()
}
