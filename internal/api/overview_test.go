package api_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// eventually requests the overview until a condition holds: it is up to a second old.
func eventually(t *testing.T, c *client.Client, name string, ok func(*wire.Overview) bool) wire.Overview {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		o, err := c.Overview(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		if ok(&o) {
			return o
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %+v", name, o)
		}
		time.Sleep(20 * time.Millisecond) // each look takes its time, and nothing announces the next one
	}
}

// TestOverviewSurvivesARestart checks that finished and running tasks are counted after a restart of the server.
func TestOverviewSurvivesARestart(t *testing.T) {
	s := startPopulatedServer(t)
	want := eventually(t, s.Client(t), "before", func(o *wire.Overview) bool { return o.Tasks[muster.Failed] == 1 && o.Tasks[muster.Queued] == 10 }).Tasks
	s.Stop()
	s.Start(t)
	o := eventually(t, s.Client(t), "after", func(o *wire.Overview) bool { return o.Tasks == want })
	if o.Workers.Unreachable != 1 || o.Rate != (wire.Rate{}) || len(o.Attention) != 1 || o.Attention[0].Kind != wire.WorkerUnreachable {
		t.Errorf("after a restart: %+v", o)
	}
}

// TestOverviewListsFailingJobs checks that three failed jobs of a name need attention, and that keys of other projects do not see them.
func TestOverviewListsFailingJobs(t *testing.T) {
	s := apitest.Start(t, nil)
	w := s.ConnectWorker(t, "w1")
	for range 3 {
		resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"name":"nightly","project":"speech","tasks":[{"kind":"noop"}]}`})
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("submit: %d %s", resp.StatusCode, body)
		}
		w.Finish(w.StartNext(), muster.AttemptFailed, 0)
	}
	o := eventually(t, s.Client(t), "nothing needs attention", func(o *wire.Overview) bool { return len(o.Attention) > 0 })
	if a := o.Attention[0]; len(o.Attention) != 1 || a.Kind != wire.JobFailing || a.Job != 3 || a.JobName != "nightly" || !strings.Contains(a.Message, "last 3 jobs") {
		t.Errorf("attention: %+v", o.Attention)
	}
	for project, want := range map[string]int{"speech": 1, "vision": 0} {
		o, err := s.ClientWith(t, s.CreateKey(t, auth.Viewer, project, "")).Overview(t.Context(), true)
		if err != nil || len(o.Attention) != want || o.Tasks[muster.Failed] != int64(3*want) {
			t.Errorf("a key of project %s sees %+v and %v, %v", project, o.Attention, o.Tasks, err)
		}
	}
}

// TestViewsRequirePermissions checks what keys can see of the fleet and of other projects' jobs.
func TestViewsRequirePermissions(t *testing.T) {
	s := startPopulatedServer(t)
	for _, c := range []struct {
		role    auth.Role
		project string
		path    string
		want    int
	}{
		{auth.Join, "", "/overview", http.StatusForbidden},
		{auth.Worker, "", "/history", http.StatusForbidden},
		{auth.Viewer, "", "/overview", http.StatusOK},
		{auth.Viewer, "speech", "/jobs/2/states", http.StatusOK},
		{auth.Viewer, "speech", "/jobs/1/states", http.StatusNotFound},
		{auth.Viewer, "speech", "/jobs/1/usage", http.StatusNotFound},
		{auth.Viewer, "speech", "/jobs/1/previous", http.StatusNotFound},
	} {
		worker := muster.WorkerID("")
		if c.role == auth.Worker {
			worker = "w1"
		}
		resp, body := send(t, s, request{method: "GET", path: "/api/v1" + c.path, token: s.CreateKey(t, c.role, c.project, worker)})
		if resp.StatusCode != c.want {
			t.Errorf("%s of project %q asks for %s: %d %s", c.role, c.project, c.path, resp.StatusCode, body)
		}
	}
}

// TestStatesOfAJob checks that states and their event id are consistent: states and later events together are the latest state.
func TestStatesOfAJob(t *testing.T) {
	s := apitest.Start(t, nil)
	c := s.Client(t)
	spec := &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 299, Step: 1}}}}}}
	job, err := c.Submit(t.Context(), spec, client.SubmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := s.ConnectWorker(t, "w1")
	for i := range 300 {
		outcome := muster.AttemptSucceeded
		if i%7 == 0 {
			outcome = muster.AttemptFailed
		}
		w.Finish(w.StartNext(), outcome, 0)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		states := get[wire.States](t, s, "/jobs/"+job.ID.String()+"/states")
		if len(states.Stages) != 1 {
			t.Fatalf("%+v", states)
		}
		counts := muster.Counts{}
		states.Stages[0].ForEach(func(_ int, state muster.TaskState) { counts[state]++ })
		if counts != states.Stages[0].Counts {
			t.Fatalf("the states are %v, the stage counts %v", counts, states.Stages[0].Counts)
		}
		if counts[muster.Failed] == 43 && counts[muster.Succeeded] == 257 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the job does not end: %v", counts)
		}
	}
	part := get[wire.States](t, s, "/jobs/"+job.ID.String()+"/states?from=5&to=8")
	if len(part.Stages) != 1 || part.Stages[0].From != 5 || part.Stages[0].Length != 4 {
		t.Fatalf("a part: %+v", part)
	}
	previous, err := c.PreviousJob(t.Context(), job.ID)
	if muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the first job of a name has the previous one %s, %v", previous.ID, err)
	}
	if u := get[wire.JobUsage](t, s, "/jobs/"+job.ID.String()+"/usage"); u.Job != job.ID || u.Attempts != 0 {
		t.Errorf("usage: %+v", u)
	}
	if h, err := c.History(t.Context(), client.HistoryQuery{Worker: "name-of-w1", Points: 20}); err != nil || len(h.Times) < 20 || len(h.Series["cpu"]) != len(h.Times) {
		t.Errorf("history: %+v, %v", h, err)
	}
}

// get reads a resource.
func get[T any](t *testing.T, s *apitest.Server, path string) (out T) {
	t.Helper()
	resp, body := send(t, s, request{method: "GET", path: "/api/v1" + path, token: apitest.AdminToken})
	if err := json.Unmarshal(body, &out); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, body, err)
	}
	return out
}

// startLargeFleet starts a server with 2,000 workers of 8 devices each and 1,000,000 tasks. Every hundredth worker has a problem.
func startLargeFleet(b *testing.B) *apitest.Server {
	b.Helper()
	s := apitest.Start(b, nil)
	var gpus []muster.GPU
	for i := range 8 {
		gpus = append(gpus, muster.GPU{UUID: fmt.Sprintf("GPU-8932f937-d72c-4106-c12f-20bd9faed9f%d", i), Index: i, Vendor: "nvidia", Name: "NVIDIA H100 80GB HBM3", Memory: 80 << 30})
	}
	load := &muster.Load{CPU: 0.5, Memory: 1 << 36}
	for i := range gpus {
		load.GPUs = append(load.GPUs, muster.GPULoad{UUID: gpus[i].UUID, Utilization: new(0.97), Memory: new(muster.Size(42_949_672_960)), Temperature: new(81.0), Power: new(312.4)})
	}
	for i := range 2_000 {
		h := &link.Hello{
			Version: link.Version, Worker: muster.WorkerID(fmt.Sprintf("w-%012d", i)), Name: fmt.Sprintf("node-%04d", i), Price: 12.5, Build: "v0.0.0-test",
			Offer: muster.Offer{Kinds: []string{muster.KindNoop}, Resources: muster.Resources{CPUs: 64, Memory: 512 << 30, Disk: 1 << 40, Slots: 64, GPUs: gpus}},
		}
		if i%100 == 0 {
			h.Constrained = "disk at 1GiB free is under 5GiB; takes tasks again above 6GiB"
		}
		session, _, err := s.Engine.Open(b.Context(), h, func(*link.ToWorker) {})
		if err != nil {
			b.Fatal(err)
		}
		if err := session.Handle(b.Context(), &link.ToServer{Seq: 1, Renew: &link.Renew{Load: load}}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range 100 {
		spec := &muster.Spec{Name: fmt.Sprint("job-", i), Project: "default", Tasks: []muster.TaskSpec{{
			Name: "task", Kind: muster.KindNoop, Array: &muster.Array{Ranges: []muster.Range{{First: 0, Last: 9_999, Step: 1}}}, Resources: muster.Request{Memory: 1 << 40},
		}}}
		if _, err := s.Engine.Submit(b.Context(), spec, store.IdempotencyKey{}); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// BenchmarkOverview requests the overview of 2,000 workers and 1,000,000 tasks: computed, cached, and compressed.
func BenchmarkOverview(b *testing.B) {
	s := startLargeFleet(b)
	getOverview := func(b *testing.B, path string, header map[string]string) int64 {
		b.Helper()
		req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.URL+"/api/v1"+path, nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
		for k, v := range header {
			req.Header.Set(k, v)
		}
		resp, err := (&http.Transport{DisableCompression: true}).RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp.StatusCode, err)
		}
		return n
	}
	for name, path := range map[string]string{"gpus": "/overview", "no-gpus": "/overview?gpus=false"} {
		b.Run("made/"+name, func(b *testing.B) {
			n := int64(0)
			for b.Loop() {
				b.StopTimer()
				time.Sleep(time.Second) // until what is in memory is too old
				b.StartTimer()
				n = getOverview(b, path, nil)
			}
			b.ReportMetric(float64(n), "bytes")
		})
		b.Run("cached/"+name, func(b *testing.B) {
			for b.Loop() {
				getOverview(b, path, nil)
			}
		})
	}
	b.Run("compressed", func(b *testing.B) {
		n := int64(0)
		for b.Loop() {
			n = getOverview(b, "/overview", map[string]string{"Accept-Encoding": "gzip"})
		}
		b.ReportMetric(float64(n), "bytes")
	})
}

// TestLargeResponsesAreCompressed checks that clients that accept gzip get the same answer compressed, and others uncompressed.
func TestLargeResponsesAreCompressed(t *testing.T) {
	s := apitest.Start(t, nil)
	spec := &muster.Spec{}
	for i := range 40 {
		spec.Tasks = append(spec.Tasks, muster.TaskSpec{Name: fmt.Sprint("stage-", i), Kind: muster.KindNoop})
	}
	if _, err := s.Client(t).Submit(t.Context(), spec, client.SubmitOptions{}); err != nil {
		t.Fatal(err)
	}
	read := func(accept string) (plain []byte, encoding string) {
		t.Helper()
		resp, body := send(t, s, request{method: "GET", path: "/api/v1/jobs/1/states", header: map[string]string{"Accept-Encoding": accept}})
		if encoding = resp.Header.Get("Content-Encoding"); encoding == "" {
			return body, encoding
		}
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		plain, err = io.ReadAll(z)
		if err != nil || len(plain) < 2*len(body) {
			t.Fatalf("%d bytes became %d, %v", len(plain), len(body), err)
		}
		return plain, encoding
	}
	for accept, want := range map[string]string{"gzip": "gzip", "br, GZIP;q=0.5": "gzip", "gzip;q=0": "", "identity": "", "br": ""} {
		body, encoding := read(accept)
		var states wire.States
		if err := json.Unmarshal(body, &states); err != nil || len(states.Stages) != 40 || encoding != want {
			t.Errorf("Accept-Encoding: %s: %q, %d stages, %v", accept, encoding, len(states.Stages), err)
		}
	}
}
