package api_test

import (
	"net/http"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/link"
)

// startContainerServer starts a server with two workers: w1 has no container engine, w3 has one and allows only
// some images. One task has run in a container on w3.
func startContainerServer(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.Start(t, nil)
	s.ConnectWorker(t, "w1")
	w := s.ConnectWorker(t, "w3")
	w.Send(&link.ToServer{Offer: &muster.Offer{
		Kinds:     []string{muster.KindContainer, muster.KindProcess},
		Resources: muster.Resources{CPUs: 8, Memory: 8 << 30, Disk: 8 << 30, Slots: 2},
		Allow:     &muster.Allow{Images: []string{"ghcr.io/acme/*"}, Users: []string{"1000:1000"}, Env: []string{}, Mounts: []string{"/data:ro"}, HostNetwork: true},
	}})
	for _, spec := range []string{
		`{"image":"ghcr.io/acme/train:v2","run":["train"],"container":{"entrypoint":[],"user":"1000:1000","shm_size":"1GiB",` +
			`"mounts":[{"source":"/data/set","target":"/set","read_only":true}]},"network":"allowlist","allow_hosts":["*.hf.co:443"]}`,
		`{"image":"python:3.12","run":["python","-V"]}`,
	} {
		resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: spec})
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("submit: %d %s", resp.StatusCode, body)
		}
	}
	id := w.StartNext()
	code := 0
	w.Send(&link.ToServer{Finished: []muster.Report{{
		Attempt: id, Outcome: muster.AttemptSucceeded, ExitCode: &code, FinishedAt: 1,
		Image: "ghcr.io/acme/train@sha256:602e35a92eec4bc0a2ec6ae113f07bfc6933322fb69fe8dee416e5a67217e2a2",
	}}})
	return s
}

var goldenContainers = []goldenCase{
	{"boxes-worker", request{method: "GET", path: "/api/v1/workers/w3"}, "get-worker"},
	{"boxes-job", request{method: "GET", path: "/api/v1/jobs/1"}, "get-job"},
	{"boxes-task", request{method: "GET", path: "/api/v1/tasks/1.0"}, "get-task"},
	{"boxes-attempts", request{method: "GET", path: "/api/v1/tasks/1.0/attempts"}, "list-attempts"},
	{"boxes-explain", request{method: "GET", path: "/api/v1/tasks/2.0/explain"}, "explain-task"},
}

func TestGoldenContainers(t *testing.T) { checkGolden(t, startContainerServer(t), goldenContainers) }
