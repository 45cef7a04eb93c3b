//go:build unix

package attack

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/mustertest"
)

// attackFrames starts a worker behind an attacker that changes the second frame of one direction of its first session, and passes all others. The
// worker connects again and works.
func (e *env) attackFrames(up bool, replace func(f linktest.Intercepted) [][]byte) *mustertest.Process {
	e.t.Helper()
	var mu sync.Mutex
	p := linktest.NewInterceptor(e.t, e.Addr, func(f linktest.Intercepted) [][]byte {
		mu.Lock()
		defer mu.Unlock()
		if f.Conn > 1 || f.Up != up || f.N == 1 {
			return [][]byte{f.Data}
		}
		return replace(f)
	}, nil)
	w := e.LaunchWorkerProgram(mustertest.Program(e.t), "victim", e.t.TempDir(), "--server", "http://"+p.Addr)
	job := e.Submit(&muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}}}})
	if ended := e.Wait(job.ID, awaitTimeout); ended.State != muster.JobSucceeded {
		e.t.Errorf("after the attack a job of the worker is %s", ended.State)
	}
	return w
}

// wantRejected fails the test unless the server has counted and recorded a frame that it rejected.
func (e *env) wantRejected(reason string) {
	e.t.Helper()
	metrics := e.do(e.request(http.MethodGet, "/metrics", mustertest.AdminToken, nil)).Body.String()
	if want := fmt.Sprintf("muster_link_frames_rejected_total{reason=%q} 1\n", reason); !strings.Contains(metrics, want) {
		e.t.Errorf("the metrics have no %s", want)
	}
	rec := e.awaitRecord(client.AuditQuery{Operation: audit.OpRejectFrame})
	if rec.Outcome != audit.Denied || !strings.Contains(rec.Detail, reason) || !strings.HasPrefix(rec.Object, "worker/") {
		e.t.Errorf("the audit log has %+v", rec)
	}
}

// altered changes one bit.
func altered(f linktest.Intercepted) [][]byte {
	b := bytes.Clone(f.Data)
	b[len(b)-2] ^= 1
	return [][]byte{b}
}

func TestAlteredFramesEndTheSession(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.attackFrames(true, altered)
	e.wantRejected(link.Altered)
}

func TestRepeatedFramesEndTheSession(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.attackFrames(true, func(f linktest.Intercepted) [][]byte { return [][]byte{f.Data, f.Data} })
	e.wantRejected(link.Replayed)
}

func TestDroppedFramesEndTheSession(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.attackFrames(true, func(f linktest.Intercepted) [][]byte {
		if f.N == 2 {
			return nil
		}
		return [][]byte{f.Data}
	})
	e.wantRejected(link.Reordered)
}

func TestFramesWithoutSignaturesEndTheSession(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.attackFrames(true, func(f linktest.Intercepted) [][]byte { return [][]byte{f.Data[bytes.IndexByte(f.Data, '{'):]} })
	e.wantRejected(link.Unsealed)
}

// A worker whose session is attacked runs nothing of a changed frame, and says why its session ended.
func TestWorkersRejectAlteredFrames(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.attackFrames(false, altered)
	if !strings.Contains(w.Log(), "a frame was rejected as altered") {
		t.Errorf("the worker's log has no rejected frame:\n%s", w.Log())
	}
}
