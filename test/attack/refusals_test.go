//go:build unix

package attack

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/testkit"
)

// wantRefused sends an assignment of a hostile server to a worker, and fails the test unless the worker rejects it with a message that has why.
// The task would write a file.
func (s *hostileServer) wantRefused(flags []string, change func(*muster.TaskSpec, *link.Assign), why string) {
	s.t.Helper()
	conn := s.startWorker(flags...)
	proof := filepath.Join(s.t.TempDir(), "ran")
	attempt := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	spec := muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "touch " + proof}}
	assign := link.Assign{Attempt: attempt, Ref: 1, Grant: muster.Grant{Slots: 1}}
	change(&spec, &assign)
	s.send(conn, &link.ToWorker{Specs: []link.GroupSpec{{Ref: 1, UID: "u", Name: "t", Spec: spec}}, Assign: []link.Assign{assign}})
	s.receive(conn, "an answer", func(f *link.ToServer) bool {
		switch {
		case len(f.Rejected) > 0:
			if got := f.Rejected[0].Message; !strings.Contains(got, why) {
				s.t.Errorf("the worker rejects the task: %s; want %q", got, why)
			}
		case len(f.Accepted)+len(f.Started)+len(f.Finished) > 0:
			s.t.Errorf("the worker runs the task: %+v", f)
		default:
			return false
		}
		return true
	})
	if _, err := os.Stat(proof); err == nil {
		s.t.Error("the task has run")
	}
}

func TestWorkersRefuseKindsThatTheyDoNotOffer(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused([]string{"--allow-kinds", muster.KindNoop}, func(*muster.TaskSpec, *link.Assign) {}, "does not run tasks of kind process")
}

func TestWorkersRefuseVariablesThatTheirOwnersDoNotAllow(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused([]string{"--allow-env", "MODEL_*"}, func(s *muster.TaskSpec, _ *link.Assign) {
		s.Env = map[string]string{"LD_PRELOAD": "/tmp/evil.so"}
	}, "its owner does not allow tasks to set the variable LD_PRELOAD")
}

func TestWorkersRefuseLongerTimeoutsThanTheirOwnersAllow(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused([]string{"--max-task-timeout", "1h"}, func(s *muster.TaskSpec, _ *link.Assign) {
		s.Timeout = muster.MaxTimeout
	}, "its owner does not allow timeouts over 1h0m0s")
}

func TestWorkersEndTasksWithoutATimeoutAtTheirMaximum(t *testing.T) {
	t.Parallel()
	s := newHostileServer(t, http.NotFound)
	conn := s.startWorker("--max-task-timeout", "300ms")
	s.assign(conn, 1, muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "exec sleep 1000"}})
	s.receive(conn, "a report", func(f *link.ToServer) bool {
		if len(f.Finished) == 0 {
			return false
		}
		if r := f.Finished[0]; r.Outcome != muster.AttemptTimedOut || r.Reason != muster.Timeout {
			t.Errorf("the task ended with %+v", r)
		}
		return true
	})
}

func TestWorkersRefuseMoreTasksThanTheirMaximum(t *testing.T) {
	t.Parallel()
	s := newHostileServer(t, http.NotFound)
	conn := s.startWorker("--max-tasks", "2")
	for job := range 3 {
		s.assign(conn, job+1, muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "exec sleep 1000"}})
	}
	s.receive(conn, "an answer to the last one", func(f *link.ToServer) bool {
		if len(f.Rejected) > 0 {
			if r := f.Rejected[0]; r.Attempt.Task.Job != 3 || !strings.Contains(r.Message, "this worker runs at most 2 tasks at once, and runs 2") {
				t.Errorf("%+v", r)
			}
			return true
		}
		for _, a := range f.Accepted {
			if a.Task.Job == 3 {
				t.Error("the worker takes a third task")
				return true
			}
		}
		return false
	})
}

// assign sends the only task of a job to a worker.
func (s *hostileServer) assign(conn link.ServerConn, job int, spec muster.TaskSpec) {
	s.t.Helper()
	s.send(conn, &link.ToWorker{
		Specs:  []link.GroupSpec{{Ref: job, UID: "u", Name: "t", Spec: spec}},
		Assign: []link.Assign{{Attempt: muster.AttemptID{Task: muster.TaskID{Job: muster.JobID(job)}, N: 1}, Ref: job, Grant: muster.Grant{Slots: 1}}},
	})
}

func TestWorkersRefuseMoreCoresThanTheyOffer(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused([]string{"--cpus", "1"}, func(_ *muster.TaskSpec, a *link.Assign) { a.Grant.CPUs = 64 }, "not enough free cpus")
}

func TestWorkersRefuseMoreMemoryThanTheyOffer(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused([]string{"--memory", "1GiB"}, func(_ *muster.TaskSpec, a *link.Assign) { a.Grant.Memory = 1 << 50 }, "not enough free memory")
}

func TestWorkersRefuseDevicesThatTheyDoNotHave(t *testing.T) {
	t.Parallel()
	newHostileServer(t, http.NotFound).wantRefused(nil, func(_ *muster.TaskSpec, a *link.Assign) { a.Grant.GPUs = []string{"GPU-of-another-machine"} }, "has no GPU GPU-of-another-machine")
}

// A worker ends the session of a server that grants amounts whose sums overflow, and takes none of the frame.
func TestWorkersRefuseAmountsThatOverflow(t *testing.T) {
	t.Parallel()
	for grant, taken := range map[string]bool{
		`"slots":1`:    true, // which shows that nothing else ends the session
		`"cpus":1e300`: false, `"memory":9223372036854775807`: false, `"slots":9223372036854775807`: false, `"slots":1,"gpus":["a","a"]`: false,
	} {
		t.Run(grant, func(t *testing.T) {
			t.Parallel()
			s := newHostileServer(t, http.NotFound)
			conn := s.startWorker()
			testkit.NoError(t, linktest.SendRaw(t.Context(), conn, `{"seq":2,"specs":[{"ref":1,"uid":"u","name":"t","spec":{"kind":"noop"}}],`+
				`"assign":[{"attempt":"1.0#1","ref":1,"grant":{`+grant+`}}]}`))
			ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
			defer cancel()
			for {
				f, err := conn.Recv(ctx)
				switch {
				case ctx.Err() != nil:
					t.Fatal("the worker neither takes the task nor ends the session")
				case err != nil && taken:
					t.Fatalf("the session ended: %v", err)
				case err == nil && len(f.Finished) == 0:
					continue
				case err == nil && !taken:
					t.Fatalf("the worker took the task: %+v", f.Finished)
				}
				return
			}
		})
	}
}

// An input of a hostile server is written nowhere but in the task's folder.
func TestInputsStayInTheTasksFolder(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"../escaped", "/tmp/escaped-" + filepath.Base(t.TempDir()), "a/../../escaped"} {
		s := newHostileServer(t, http.NotFound)
		conn := s.startWorker()
		attempt := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
		s.send(conn, &link.ToWorker{
			Specs: []link.GroupSpec{{Ref: 1, UID: "u", Name: "t", Spec: muster.TaskSpec{Kind: muster.KindProcess, Run: &muster.Command{Shell: "true"}}}},
			Assign: []link.Assign{{
				Attempt: attempt, Ref: 1, Grant: muster.Grant{Slots: 1}, Inputs: []muster.InputFile{{Path: path, SHA256: strings.Repeat("0", 64), Size: 1}},
			}},
		})
		s.receive(conn, "a failed report", func(f *link.ToServer) bool {
			if len(f.Finished) > 0 && (f.Finished[0].Outcome != muster.AttemptFailed || !strings.Contains(f.Finished[0].Message, "outside")) {
				t.Errorf("input %q: %+v", path, f.Finished[0])
			}
			return len(f.Finished) > 0
		})
	}
}
