package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/link"
)

// Live artifacts are served and announced at once, and the last ones of a lost attempt are kept.
func TestFilesOfARunningTask(t *testing.T) {
	const other = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	s := apitest.Start(t, nil)
	for sum, text := range map[string]string{helloSum: "hello\n", other: "hello world"} {
		if err := s.PutBlob(t.Context(), sum, text); err != nil {
			t.Fatal(err)
		}
	}
	w := s.ConnectWorker(t, "w1")
	submit(t, s, `{"kind":"noop"}`)
	id := w.StartNext()
	for sum, text := range map[string]string{helloSum: "hello\n", other: "hello world"} {
		w.Send(&link.ToServer{Progress: []muster.Progress{{Attempt: id, Artifacts: []muster.Artifact{{Name: "live/a.txt", Size: int64(len(text)), SHA256: sum}}}}})
		eventuallyTrue(t, func() bool {
			_, body := send(t, s, request{method: "GET", path: "/api/v1/tasks/1.0"})
			return strings.Contains(string(body), `"state":"running"`) && strings.Contains(string(body), sum)
		})
		list := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/artifacts"}, http.StatusOK)
		attempts := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/attempts"}, http.StatusOK)
		if !strings.Contains(string(list), sum) || !strings.Contains(string(attempts), sum) {
			t.Errorf("the artifacts are %s, the attempts %s", list, attempts)
		}
		if b := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/live/a.txt"}, http.StatusOK); string(b) != text {
			t.Errorf("it is %q, want %q", b, text)
		}
	}
	last := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/live/a.txt"}, http.StatusOK)
	w.Goodbye()
	for _, path := range []string{"live/a.txt", "live/a.txt?attempt=1"} { // it waits for another worker
		if b := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/" + path}, http.StatusOK); string(b) != string(last) {
			t.Errorf("%s is %q, want %q", path, b, last)
		}
	}
	id = s.ConnectWorker(t, "w2").StartNext()
	if b := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/live/a.txt?attempt=1"}, http.StatusOK); id.N != 2 || string(b) != string(last) {
		t.Errorf("for the first attempt with %s: got %q, want %q", id, b, last)
	}
}

// Artifacts of an attempt are kept when its finished task is retried.
func TestFilesOfARetriedTask(t *testing.T) {
	s := apitest.Start(t, nil)
	if err := s.PutBlob(t.Context(), helloSum, "hello\n"); err != nil {
		t.Fatal(err)
	}
	w := s.ConnectWorker(t, "w1")
	submit(t, s, `{"kind":"noop"}`)
	w.Finish(w.StartNext(), muster.AttemptFailed, 0, muster.Artifact{Name: "live/a.txt", Size: 6, SHA256: helloSum})
	eventuallyTrue(t, func() bool {
		_, body := send(t, s, request{method: "GET", path: "/api/v1/tasks/1.0"})
		return strings.Contains(string(body), `"state":"failed"`)
	})
	w.Goodbye()
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs/1/retry"}, http.StatusOK)
	for _, path := range []string{"artifacts", "artifacts?attempt=1", "attempts"} {
		if b := expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/" + path}, http.StatusOK); !strings.Contains(string(b), helloSum) {
			t.Errorf("%s are %s", path, b)
		}
	}
}
