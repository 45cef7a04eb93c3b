package modelpool

import (
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/agent/isolation"
)

func TestHostIsIsolatedLikeTasks(t *testing.T) {
	data := t.TempDir()
	limits, err := isolation.New(isolation.Config{Data: data, Log: slog.New(slog.DiscardHandler), Read: []string{os.Args[0]}})
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	k := newPool(t, Config{Data: data, Isolator: limits})
	h := serverSpec("a", "")
	h.Memory = 256 << 20
	p, release := acquire(t, k, h)
	release()
	score, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) != oomScore {
		t.Errorf("the kernel's score is %s, %v", score, err)
	}
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/status")
	if err != nil || !strings.Contains(string(status), "NoNewPrivs:\t1") {
		t.Errorf("it may get new privileges: %v", err)
	}
	k.mu.Lock()
	c, dir, sock := k.servers["a"].Isolation, k.servers["a"].dir, k.servers["a"].socket()
	k.mu.Unlock()
	if os.Geteuid() == 0 { // tasks are other users: they come to the socket by its name, and cannot find out that
		for path, want := range map[string]os.FileMode{dir: os.ModeDir | 0o711, sock: os.ModeSocket | 0o666} {
			if st, err := os.Stat(path); err != nil || st.Mode() != want || c.User == nil || !c.User.Dynamic {
				t.Errorf("%s has the mode %v, want %v: %v", path, st.Mode(), want, err)
			}
		}
	}
	if len(c.Cgroups) == 0 {
		t.Skip("no control groups can be made here")
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), "/0.1-1\n") {
		t.Errorf("its groups are %s, %v", groups, err)
	}
	k.Close()
	limits.Close() // what the kernel has not let go of at once is removed by then
	for _, g := range c.Cgroups {
		if _, err := os.Stat(g.Path); err == nil && !g.Shared {
			t.Errorf("the group %s is left", g.Path)
		}
	}
}
