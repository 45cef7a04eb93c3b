//go:build unix

package obs_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/traceparent"
)

// collectedSpan is a span as the collector got it.
type collectedSpan struct {
	*otlp.Span

	service string
}

func (s collectedSpan) attribute(key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			if v, ok := a.Value.Value.(interface{ GetStringValue() string }); ok {
				return v.GetStringValue()
			}
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// traceCollector is a collector of traces.
type traceCollector struct {
	url     string
	release chan struct{} // if not nil, it answers when this is closed

	mu    sync.Mutex
	spans []collectedSpan
}

func newTraceCollector(t *testing.T) *traceCollector {
	t.Helper()
	r := &traceCollector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var got collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &got)
		}
		if err != nil || req.URL.Path != "/v1/traces" || req.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s with %s: %v", req.Method, req.URL, req.Header.Get("Content-Type"), err)
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		if r.release != nil {
			<-r.release
		}
		r.add(&got)
		w.Header().Set("Content-Type", "application/x-protobuf")
		answer, _ := proto.Marshal(&collector.ExportTraceServiceResponse{})
		_, _ = w.Write(answer)
	}))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *traceCollector) add(got *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, res := range got.ResourceSpans {
		service := ""
		for _, a := range res.Resource.Attributes {
			if a.Key == "service.name" {
				service = a.Value.GetStringValue()
			}
		}
		for _, scope := range res.ScopeSpans {
			for _, s := range scope.Spans {
				r.spans = append(r.spans, collectedSpan{s, service})
			}
		}
	}
}

// spansOf returns the spans of a trace.
func (r *traceCollector) spansOf(trace string) []collectedSpan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.spans), func(s collectedSpan) bool { return hex.EncodeToString(s.TraceId) != trace })
}

// jobs returns the trace of the root span of a job, or "".
func (r *traceCollector) traceOf(job muster.JobID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.Name == "job "+job.String() {
			return hex.EncodeToString(s.TraceId)
		}
	}
	return ""
}

// count returns the number of spans.
func (r *traceCollector) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans)
}

// tree writes a trace as lines "service name", with two blanks for each level, children in the order of their begin.
func tree(spans []collectedSpan, parent []byte, depth int) string {
	var b strings.Builder
	children := slices.DeleteFunc(slices.Clone(spans), func(s collectedSpan) bool { return !bytes.Equal(s.ParentSpanId, parent) })
	slices.SortStableFunc(children, func(a, b collectedSpan) int {
		return int(int64(a.StartTimeUnixNano)/1e6 - int64(b.StartTimeUnixNano)/1e6)
	})
	for _, s := range children {
		failed := ""
		if s.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
			failed = " failed: " + s.Status.Message
		}
		fmt.Fprintf(&b, "%s%s: %s%s\n", strings.Repeat("  ", depth), strings.TrimPrefix(s.service, "muster-"), s.Name, failed)
		b.WriteString(tree(spans, s.SpanId, depth+1))
	}
	return b.String()
}

// sortLines sorts the lines of a tree: spans of one parent that begin in the same millisecond have no order.
func sortLines(tree string) string {
	lines := strings.Split(strings.TrimSpace(tree), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// awaitTree waits until a trace has this tree.
func (r *traceCollector) awaitTree(t *testing.T, c *mustertest.Cluster, trace string, root []byte, want string) []collectedSpan {
	t.Helper()
	c.Await("the spans of trace "+trace, 30*time.Second, func() error {
		if got := tree(r.spansOf(trace), root, 0); sortLines(got) != sortLines(want) {
			return fmt.Errorf("the spans are\n%s", got)
		}
		return nil
	})
	return r.spansOf(trace)
}

// submitTraced posts a job within a trace.
func submitTraced(t *testing.T, c *mustertest.Cluster, spec *muster.Spec, parent string) muster.JobID {
	t.Helper()
	body, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+c.Addr+"/api/v1/jobs", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+mustertest.AdminToken)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("traceparent", parent)
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var job muster.Job
	if err := json.NewDecoder(resp.Body).Decode(&job); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return job.ID
}

const fullTree = `
server: job 1
  server: submit
    server: decide
    server: commit
  server: queue 1.0
  server: attempt 1.0#1
    server: decide
    server: commit
    server: assign
    worker: run
    worker: report
`

// TestTraces runs jobs with a server and a worker that both send traces to a real receiver.
func TestTraces(t *testing.T) {
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // ms
	r := newTraceCollector(t)
	c := mustertest.NewWith(t, t.TempDir(), mustertest.Options{Flags: []string{"--otlp", r.url, "--log-level", "debug"}})
	c.StartWorker("w", t.TempDir(), "--otlp", r.url+"/", "--log-level", "debug")

	parent := traceparent.Parent{Trace: [16]byte{1, 2, 3}, Span: [8]byte{4, 5, 6}, Flags: 1}
	job := submitTraced(t, c, mustertest.ShellSpec("one", `echo "$TRACEPARENT"`), parent.String())
	c.Wait(job, time.Minute)
	trace := hex.EncodeToString(parent.Trace[:])
	spans := r.awaitTree(t, c, trace, parent.Span[:], fullTree)
	checkTimes(t, spans)
	run := spans[slices.IndexFunc(spans, func(s collectedSpan) bool { return s.Name == "run" })]
	if got, want := strings.TrimSpace(c.Output(muster.TaskID{Job: job})), "00-"+trace+"-"+hex.EncodeToString(run.SpanId)+"-01"; got != want {
		t.Errorf("the task found TRACEPARENT=%s, want %s", got, want)
	}
	if run.attribute("muster.task") != "1.0" || run.attribute("muster.job") != "1" || !strings.HasPrefix(run.attribute("muster.worker"), "w-") {
		t.Errorf("the run has %v", run.Attributes)
	}
	if want := "trace_id=" + trace; !strings.Contains(c.Server.Log(), want) {
		t.Errorf("no line of the server's log has %s", want)
	}

	t.Run("an unsampled trace", func(t *testing.T) {
		parent := traceparent.Parent{Trace: [16]byte{7}, Span: [8]byte{8}}
		job := submitTraced(t, c, mustertest.ShellSpec("unsampled", `echo "$TRACEPARENT"`), parent.String())
		c.Wait(job, time.Minute)
		if got := strings.TrimSpace(c.Output(muster.TaskID{Job: job})); !strings.HasPrefix(got, "00-07000000") || !strings.HasSuffix(got, "-00") {
			t.Errorf("the task found TRACEPARENT=%s", got)
		}
		failing := mustertest.ShellSpec("failing", "exit 3")
		failing.Tasks[0].Retries.Max = 1
		failing.Tasks[0].Env = map[string]string{traceparent.EnvVar: "mine"}
		next := c.Submit(failing)
		c.Wait(next.ID, time.Minute)
		c.Await("the trace of the next job", 30*time.Second, func() error {
			if r.traceOf(next.ID) == "" {
				return errors.New("it has none")
			}
			return nil
		})
		r.awaitTree(t, c, r.traceOf(next.ID), nil, `
server: job 3 failed: failed
  server: submit
    server: decide
    server: commit
  server: queue 3.0
  server: attempt 3.0#1 failed: exit_code
    server: decide
    server: commit
    server: assign
    worker: run failed: exit_code
    worker: report
  server: queue 3.0
  server: attempt 3.0#2 failed: exit_code
    server: decide
    server: commit
    server: assign
    worker: run failed: exit_code
    worker: report
`)
		if spans := r.spansOf("07" + strings.Repeat("0", 30)); len(spans) > 0 {
			t.Errorf("%d spans of a trace that is not sampled were sent", len(spans))
		}
	})

	t.Run("a server that is killed", func(t *testing.T) {
		parent := traceparent.Parent{Trace: [16]byte{9}, Span: [8]byte{9}, Flags: 1}
		trace := hex.EncodeToString(parent.Trace[:])
		job := submitTraced(t, c, mustertest.ShellSpec("killed", "sleep 4"), parent.String())
		c.AwaitRunning(job, 1)
		c.Await("what the server did is sent", 30*time.Second, func() error {
			if n := len(r.spansOf(trace)); n < 5 {
				return fmt.Errorf("%d spans", n)
			}
			return nil
		})
		c.Server.Kill()
		c.StartServer()
		c.Wait(job, time.Minute)
		r.awaitTree(t, c, trace, parent.Span[:], strings.ReplaceAll(strings.ReplaceAll(fullTree, " 1.0", " 4.0"), "job 1", "job 4"))
	})
}

// checkTimes checks that consecutive spans do not overlap.
func checkTimes(t *testing.T, spans []collectedSpan) {
	t.Helper()
	const clock = int64(2 * time.Millisecond) // rows have milliseconds
	at := map[string]collectedSpan{}
	for _, s := range spans {
		at[s.Name] = s // of decide and commit those of the attempt or the submit: either will do
	}
	for _, pair := range [][2]string{{"decide", "commit"}, {"queue 1.0", "attempt 1.0#1"}, {"run", "report"}} {
		before, after := at[pair[0]], at[pair[1]]
		if int64(before.EndTimeUnixNano) > int64(after.StartTimeUnixNano)+clock {
			t.Errorf("%s ends after %s begins", pair[0], pair[1])
		}
	}
	for _, s := range spans {
		duration := time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano)
		if s.EndTimeUnixNano < s.StartTimeUnixNano || duration > time.Minute {
			t.Errorf("%s lasted %s", s.Name, duration)
		}
	}
}
