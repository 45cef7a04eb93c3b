package isolation

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/testkit"
)

func TestSpawnPlain(t *testing.T) {
	p, err := spawnIn(t, nil, "/", "/bin/sh", "sh", "-c", `pwd; cut -d' ' -f5-6 /proc/$$/stat; exit 7`)
	if err != nil {
		t.Fatal(err)
	}
	if p.fd < 0 {
		t.Error("Spawn returns no pidfd")
	}
	id := strconv.Itoa(p.pid)
	if out, code := p.wait(); out != "/\n"+id+" "+id || code != 7 {
		t.Errorf("it prints %q and exits with %d, want its own group and session, and 7", out, code)
	}
	if _, err := spawnIn(t, nil, "/", "/no/such/program", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing program: %v", err)
	}
	if _, err := spawnIn(t, &run.IsolationSpec{NoNewPrivileges: true}, "/", "/no/such/program", "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing program, on a thread: %v", err)
	}
}

// TestSpawnerIsNotRestricted checks that whatever tasks are put into, this process is not.
func TestSpawnerIsNotRestricted(t *testing.T) {
	w := newEnv(t, nil)
	secret := filepath.Join(w.data, "identity")
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	network, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	tasks := make([]*task, 32)
	for i := range tasks {
		tasks[i] = w.task(func(r *run.Task) {
			r.Grant.Memory, r.Grant.CPUs = 64<<20, 1
			if os.Geteuid() == 0 {
				r.Spec.Network = "none"
			}
		})
	}
	for _, task := range tasks {
		wait.Go(func() {
			if out, code := task.shell("echo done").wait(); out != "done" || code != 0 {
				t.Errorf("the task prints %q and exits with %d", out, code)
			}
			if _, err := os.ReadFile(secret); err != nil {
				t.Errorf("this process cannot read its own files any more: %v", err)
			}
		})
	}
	wait.Wait()
	if now, err := os.ReadFile("/proc/self/cgroup"); err != nil || !bytes.Equal(now, groups) {
		t.Errorf("this process moved from %s to %s: %v", groups, now, err)
	}
	var held []string // those that end may be seen for a moment
	defer func() { t.Logf("in what is for tasks are the threads %q", held) }()
	testkit.Await(t, "no thread of this process stays in what is for tasks", func() bool {
		held = heldThreads(t, network)
		return len(held) == 0
	})
	if out, err := exec.Command("/bin/cat", secret).Output(); err != nil || string(out) != "the worker's token" {
		t.Errorf("a process that this process started prints %q: %v", out, err)
	}
}

// heldThreads lists the threads of this process that have no_new_privs, or another
// network than the process.
func heldThreads(t *testing.T, network string) []string {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	var held []string
	for _, th := range threads {
		status, err := os.ReadFile("/proc/self/task/" + th.Name() + "/status")
		if err != nil {
			continue // it has ended
		}
		if strings.Contains(string(status), "NoNewPrivs:\t1") {
			held = append(held, th.Name()+" has no new privileges")
		}
		if link, err := os.Readlink("/proc/self/task/" + th.Name() + "/ns/net"); err == nil && link != network {
			held = append(held, th.Name()+" is in "+link)
		}
	}
	return held
}

func TestRlimitsApplyOnlyToTheChild(t *testing.T) {
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &before); err != nil {
		t.Fatal(err)
	}
	const most = 1 << 20
	c := &run.IsolationSpec{Rlimits: []run.Rlimit{{Name: "core", Value: most}}}
	want := strconv.FormatUint(min(most, before.Max)/512, 10) // in blocks
	p, err := spawnIn(t, c, "/", "/bin/sh", "sh", "-c", "ulimit -c")
	if err != nil {
		t.Fatal(err)
	}
	if out, _ := p.wait(); out != want {
		t.Errorf("the limit of the child is %s, want %s", out, want)
	}
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &after); err != nil || before != after {
		t.Errorf("this process had the limit %v, and has %v: %v", before, after, err)
	}
	c.Rlimits[0].Name = "wishes"
	if _, err := spawnIn(t, c, "/", "/bin/true", "true"); err == nil {
		t.Error("an unknown limit was accepted")
	}
}

func TestOOMScore(t *testing.T) {
	w := newEnv(t, nil)
	p := w.task(nil).shell("echo on; read x; cat /proc/self/oom_score_adj")
	if got := p.readLine(); got != "on" {
		t.Fatal(got)
	}
	// Its standard input is empty, so it may have continued before the score was set.
	p.wait()
	w.task(nil).expect("while [ $(cat /proc/self/oom_score_adj) != "+oomScore+" ]; do :; done; echo yes", "yes", 0)
}
