package engine

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/traceparent"
)

// attemptsOf is a store of the attempts of one task.
type attemptsOf struct {
	Store

	list []muster.Attempt
}

func (s *attemptsOf) Attempts(context.Context, muster.TaskID) ([]muster.Attempt, error) {
	return s.list, nil
}

func (s *attemptsOf) Job(_ context.Context, id muster.JobID) (muster.Job, error) {
	return muster.Job{ID: id, UID: "j0123"}, nil
}

// TestRefusalIsNotCached checks that a session asks the store again for an attempt that was not its worker's own. That
// the attempt was assigned in this session may be forgotten by then: see maxOwned.
func TestRefusalIsNotCached(t *testing.T) {
	t.Parallel()
	st := &attemptsOf{}
	var log bytes.Buffer
	s := New(Config{Store: st, Log: slog.New(slog.NewTextHandler(&log, nil))}).newSession("w1", func(*link.ToWorker) {})
	a := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	check := func(when string, want bool) {
		t.Helper()
		if ok, err := s.owns(t.Context(), a); ok != want || err != nil {
			t.Errorf("%s: the attempt is the worker's own: %t, %v; want %t", when, ok, err, want)
		}
	}
	check("before it is assigned", false)
	st.list = []muster.Attempt{{ID: a, Worker: "w2"}}
	check("while it is another worker's", false)
	st.list = []muster.Attempt{{ID: a, Worker: "w1"}}
	check("once it is assigned", true)
	if want := "worker=w1 attempt=1.0#1 trace_id=" + traceparent.TraceText("j0123"); strings.Count(log.String(), want) != 1 {
		t.Errorf("the log does not contain %q exactly once: %s", want, log.String())
	}
}
