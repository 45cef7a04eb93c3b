package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/tasklog"
)

// TestMetricsOfManyAttemptsAreLimited checks that the attempts of a task share the maximum size of an answer.
func TestMetricsOfManyAttemptsAreLimited(t *testing.T) {
	const attempts, points, limit = 20, 400, 17 << 20
	s := apitest.Start(t, nil)
	w := s.ConnectWorker(t, "w1")
	submit(t, s, `{"kind":"noop","retries":{"max":19,"backoff":"1ms","max_backoff":"1ms"}}`)
	record := apitest.EncodeRecord(tasklog.Progress, `{"step":"`+strings.Repeat("s", 4000)+`","metrics":{"loss":1}}`)
	for range attempts {
		id := w.StartNext()
		size, err := s.Logs.Append(t.Context(), id, 0, bytes.Repeat(record, points))
		if err != nil {
			t.Fatal(err)
		}
		w.Finish(id, muster.AttemptFailed, size)
	}
	body := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/metrics?points=5000"}, http.StatusOK)
	var m wire.Metrics
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	if len(body) > limit || len(m.Attempts) != attempts {
		t.Fatalf("%d attempts in %d bytes, at most %d are wanted", len(m.Attempts), len(body), limit)
	}
	for _, a := range m.Attempts {
		if a.Taken != points || len(a.Points) < 100 || len(a.Points) >= points {
			t.Errorf("attempt %d has %d points of %d", a.Attempt, len(a.Points), a.Taken)
		}
	}
}
