package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/engine"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
)

// stuckLogs cannot archive a log.
type stuckLogs struct {
	engine.Logs

	tried atomic.Int64
}

func (l *stuckLogs) Archive(context.Context, muster.AttemptID) (bool, error) {
	l.tried.Add(1)
	return false, errors.New("permission denied")
}

// TestFailureToSetALogAsideIsLogged checks that an attempt is still assigned, and that the engine continues.
func TestFailureToSetALogAsideIsLogged(t *testing.T) {
	r := start(t)
	id := r.submit(t, 1) // no worker is connected
	r.stop()
	logs := &stuckLogs{}
	var out bytes.Buffer
	r = startIn(t, r.dir, func(cfg *engine.Config) {
		logs.Logs = cfg.Logs
		cfg.Logs = logs
		cfg.Log = slog.New(slog.NewTextHandler(&out, nil))
	})
	p := r.connect(t)
	a := p.next(t, "an assignment", assigns).Assign[0].Attempt
	if a.Task.Job != id || logs.tried.Load() == 0 {
		t.Fatalf("attempt %s is assigned after %d tries to set its log aside", a, logs.tried.Load())
	}
	if err := r.Health(); err != nil {
		t.Errorf("the engine is not well: %v", err)
	}
	if err := p.Handle(t.Context(), &link.ToServer{Finished: []muster.Report{succeeded(a)}}); err != nil {
		t.Fatal(err)
	}
	p.next(t, "an acknowledgement", func(f *link.ToWorker) bool { return len(f.FinishedAck) > 0 })
	job, err := r.store.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	if want := "attempt=" + a.String() + " trace_id=" + traceparent.TraceText(job.UID); !strings.Contains(out.String(), want) {
		t.Errorf("the log does not contain %q: %s", want, out.String())
	}
}

// TestOldNegativeLookupIsCorrected checks that a blob which an attempt needs since the last look at the worker's attempts is found:
// at once for a download, and after two seconds for an upload, whose lookups take no time before that.
func TestOldNegativeLookupIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		p := r.connect(t)
		files := map[string]string{}
		for _, name := range []string{"first", "second"} {
			files[name] = r.putTree(t, r.put(t, []byte(name)))
		}
		reads := func(name string, stale bool) bool {
			t.Helper()
			_, ok, err := r.NeedsBlob(t.Context(), "w1", files[name], stale)
			if err != nil {
				t.Fatal(err)
			}
			return ok
		}
		assigned := func(name string) {
			t.Helper()
			s := spec(1)
			s.Tasks[0].Files = "sha256:" + files[name]
			if _, err := r.Submit(t.Context(), s, store.IdempotencyKey{Owner: "me"}); err != nil {
				t.Fatal(err)
			}
			p.next(t, "an assignment", assigns)
		}
		for name := range files {
			if reads(name, false) {
				t.Errorf("the %s tree is needed before any attempt", name)
			}
		}
		assigned("first")
		began := time.Now()
		if reads("first", true) {
			t.Error("an upload's lookup did not take the last answer")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("it took %s", took)
		}
		if !reads("first", false) {
			t.Error("a download of what an attempt needs is refused")
		}
		if !reads("first", true) {
			t.Error("the result of the download is not cached for uploads")
		}
		assigned("second")
		time.Sleep(2 * time.Second)
		if !reads("second", true) {
			t.Error("an upload's lookup finds after two seconds that the blob is not needed")
		}
		if _, ok, err := r.NeedsBlob(t.Context(), "w1", strings.Repeat("0", 64), false); ok || err != nil {
			t.Errorf("a blob of no attempt: %t, %v", ok, err)
		}
	})
}

// TestDamagedTreeIsSetAside checks that a corrupt list of files is quarantined, and may be uploaded again.
func TestDamagedTreeIsSetAside(t *testing.T) {
	r := start(t)
	file := r.put(t, []byte("weights"))
	tree := r.putTree(t, file)
	path := filepath.Join(r.dir, "blobs", tree[:2], tree[2:4], tree)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// It is still a list of files, with another size.
	if err := os.WriteFile(path, bytes.Replace(b, []byte(`"size":1`), []byte(`"size":2`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, err := r.Files(t.Context(), tree); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a damaged tree has the files %v, %v", files, err)
	}
	if _, err := r.blobs.Stat(t.Context(), tree); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the damaged file still exists: %v", err)
	}
	if err := r.blobs.Put(t.Context(), tree, 0, bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
	if files, err := r.Files(t.Context(), tree); err != nil || len(files) != 1 || files[0] != (store.Blob{SHA256: file, Size: 1}) {
		t.Errorf("after a new upload the tree has the files %v, %v", files, err)
	}
}
