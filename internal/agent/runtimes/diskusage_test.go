//go:build linux

package runtimes_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/agent/runtimes"
)

// module is about what a wheel of the tests takes on the disk.
const module = 512 << 10

// TestWhatRuntimesShareCountsOnce holds that a package that several runtimes have is on the disk once, counts once, and
// is freed with the last of them: eviction counts what is freed, not the apparent size of a runtime.
func TestWhatRuntimesShareCountsOnce(t *testing.T) {
	w := newTestEnv(t)
	for _, name := range []string{"wide", "other"} {
		w.wheel(name, "1.5")
	}
	w.define("pair", "nugget", "wide")
	w.define("last", "other")
	rts := w.open()
	for i, name := range []string{"tiny", "pair"} {
		rt, _ := w.get(rts, name)
		then := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(rt.VenvDir, "muster-runtime.json"), then, then); err != nil {
			t.Fatal(err)
		}
	}
	d := rts.Disk()
	tiny, pair := w.state(rts, "tiny").Size, w.state(rts, "pair").Size
	if tiny < module || pair < 2*module || d.Total > tiny+pair+d.Cached-module {
		t.Errorf("%s and %s take %+v", tiny, pair, d)
	}
	if d.Own["tiny"] > tiny-module || d.Own["pair"] < module || d.Own["pair"] > pair-module {
		t.Errorf("of %s and %s they have for themselves %+v", tiny, pair, d)
	}

	// To remove the one that was used before frees what it has for itself, which is not enough.
	tight := w.open(func(c *runtimes.Config) { c.Budget = 2*module + 3*d.Own["tiny"] })
	w.get(tight, "last")
	for name, want := range map[string]runtimes.State{"tiny": runtimes.Absent, "pair": runtimes.Absent, "last": runtimes.Ready} {
		if e := w.state(tight, name); e.State != want {
			t.Errorf("%s is %+v\n%s", name, e, &w.log)
		}
	}
	if now := tight.Disk(); now.Total > 2*module+3*d.Own["tiny"] {
		t.Errorf("then they take %+v", now)
	}
}

// TestADeadIndex checks that a build fails if the index accepts connections and does not answer.
func TestADeadIndex(t *testing.T) {
	w := newTestEnv(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // only the kernel accepts connections
	t.Setenv("UV_DEFAULT_INDEX", "http://"+l.Addr().String()+"/simple")
	t.Setenv("UV_FIND_LINKS", "")
	t.Setenv("PIP_FIND_LINKS", "")
	t.Setenv("UV_HTTP_TIMEOUT", "1")
	t.Setenv("UV_HTTP_RETRIES", "0")
	var h recordingObserver
	_, err = w.open(func(c *runtimes.Config) { c.Wheels = "" }).Get(t.Context(), "tiny", h.observer())
	wantMissing(t, err, "cannot build the runtime tiny", l.Addr().String(), "timed out")
	if !strings.Contains(h.String(), "uv: ") {
		t.Errorf("the log of a failed build has no output of uv: %s", &h)
	}
}

// TestAFullDisk ends a build with its reason, and leaves no more on the disk than was there.
func TestAFullDisk(t *testing.T) {
	w := newTestEnv(t)
	if err := syscall.Mount("muster", w.data, "tmpfs", 0, "size=400k"); err != nil {
		t.Skipf("skipped: no file system can be mounted: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(w.data, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	_, err := w.open().Get(t.Context(), "tiny", discardObserver)
	taskErr, ok := errors.AsType[*run.TaskError](err)
	if !ok || taskErr.Reason != muster.DiskFull || !strings.Contains(taskErr.Message, "cannot build the runtime tiny") {
		t.Errorf("it ends with %v", err)
	}
	if d := w.open().Disk(); d.Cached > 200<<10 || len(w.unfinished()) > 0 {
		t.Errorf("left are %+v and %q", d, w.unfinished())
	}
	if err := syscall.Mount("muster", w.data, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	rt, _ := w.get(w.open(), "tiny")
	works(t, rt)
}
