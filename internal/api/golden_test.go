package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
)

var update = flag.Bool("update", false, "update the golden files")

// request is one HTTP request of a test.
type request struct {
	method, path string
	token        string // "" means the admin's, "none" means none
	header       map[string]string
	body         string
}

// send performs a request and returns the answer with its body read.
func send(t *testing.T, s *apitest.Server, q request) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), q.method, s.URL+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	switch q.token {
	case "":
		req.Header.Set("Authorization", "Bearer "+apitest.AdminToken)
	case "none":
	default:
		req.Header.Set("Authorization", "Bearer "+q.token)
	}
	for k, v := range q.header {
		req.Header.Set(k, v)
	}
	noRedirect := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := noRedirect.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, data
}

var (
	anyTime          = regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)
	anySecret        = regexp.MustCompile(`mst_([a-z]+)_[a-z2-7]{32}`)
	anyPrefix        = regexp.MustCompile(`("prefix": "mst_[a-z]+_)[a-z2-7]{4}"`)
	anyKey           = regexp.MustCompile(`"k[a-z2-7]{8}"`)
	anyWebhookSecret = regexp.MustCompile(`\b(msg_)[A-Z2-7]{26}|(whsec_)[A-Za-z0-9+/]{43}=|(sealed:)[A-Za-z0-9_-]+|("took": )[0-9.e-]+`)
	anySystem        = regexp.MustCompile(`("os"|"arch"): "[a-z0-9]+"`)
	anyDevice        = regexp.MustCompile(`("device"|"user_code"): "[^"]+"`)
	anyProvider      = regexp.MustCompile(`http://127\.0\.0\.1:\d+/device(\?user_code=)?[A-Z-]*`)
	anyAuditHead     = regexp.MustCompile(`("base"|"head"): "[0-9a-f]{64}@\d+"`)
	anyAuditCount    = regexp.MustCompile(`"records": \d+`)
	anyIdentity      = regexp.MustCompile(`("server": ")[\w-]{43}"|("token": ")eyJ[^"]+"|("exchange": ")[\w+/]{43}="|("signature": ")[\w+/]{86}=="`)
	anyWorker        = regexp.MustCompile(`"w-[a-z2-7]{12}"`)
)

// render returns an answer as in a golden file, with placeholders for values that differ
// between runs.
func render(t *testing.T, q request, resp *http.Response, body []byte) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n%d\n", q.method, q.path, resp.StatusCode)
	for _, h := range []string{"Content-Type", "Location", "Www-Authenticate", "Allow", "Etag", "Content-Disposition", "Content-Range", "Upload-Offset"} {
		if v := resp.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", h, v)
		}
	}
	b.WriteString("\n")
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		var indented bytes.Buffer
		if err := json.Indent(&indented, body, "", "  "); err != nil {
			t.Fatalf("%s %s: %v in %s", q.method, q.path, err, body)
		}
		body = indented.Bytes()
	}
	text := anyTime.ReplaceAllString(string(body), `"TIME"`)
	text = anySecret.ReplaceAllString(text, "mst_${1}_SECRET")
	text = anyPrefix.ReplaceAllString(text, `${1}PREF"`)
	text = anyKey.ReplaceAllString(text, `"KEY"`)
	text = anySystem.ReplaceAllString(text, `${1}: "SYSTEM"`)
	text = anyAuditHead.ReplaceAllString(text, `${1}: "HEAD"`)
	text = anyAuditCount.ReplaceAllString(text, `"records": 1`)
	text = anyIdentity.ReplaceAllString(text, `${1}${2}${3}${4}RANDOM"`)
	text = anyWorker.ReplaceAllString(text, `"WORKER"`)
	text = anyDevice.ReplaceAllString(text, `${1}: "CODE"`)
	text = anyProvider.ReplaceAllString(text, "http://PROVIDER/device${1}")
	text = anyWebhookSecret.ReplaceAllString(text, "${1}${2}${3}${4}RANDOM")
	b.WriteString(text)
	return b.String()
}

const helloSum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" // of "hello\n"

// startPopulatedServer starts a server with objects of each kind: job 1 succeeded with output
// and an artifact, job 2 failed and was retried, and job 3 waits.
func startPopulatedServer(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.Start(t, nil)
	submitOK := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	submit := func(spec string) {
		t.Helper()
		resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: spec, header: map[string]string{"Content-Type": "application/yaml"}})
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("submit: %d %s", resp.StatusCode, body)
		}
	}
	submitOK(s.PutBlob(t.Context(), helloSum, "hello\n"))
	w := s.ConnectWorker(t, "w1")
	submit("name: greet\nlabels: {team: vision}\nrun: echo hello\n")
	id := w.StartNext()
	out := apitest.EncodeRecord(tasklog.Stdout, "hello\n")
	out = append(out, apitest.EncodeRecord(tasklog.Stderr, "a warning\n")...)
	out = append(out, apitest.EncodeRecord(tasklog.Usage, `{"at":"2020-01-02T15:04:05.000Z","cpu":0.5,"memory":1048576,"pids":2}`)...)
	out = append(out, apitest.EncodeRecord(tasklog.Progress, `{"progress":0.5,"step":"epoch 1/2","metrics":{"loss":0.25}}`)...)
	out = append(out, apitest.EncodeRecord(tasklog.Progress, `{"checkpoint":true}`)...)
	out = append(out, apitest.EncodeRecord(tasklog.Progress, `{"progress":1,"metrics":{"loss":0.125}}`)...)
	out = append(out, apitest.EncodeRecord(tasklog.Stdout, "bye\n")...)
	size, err := s.Logs.Append(t.Context(), id, 0, out)
	submitOK(err)
	w.Finish(id, muster.AttemptSucceeded, size, muster.Artifact{Name: "out/hello world.txt", Size: 6, SHA256: helloSum})
	w.Finish(id, muster.AttemptFailed, 0) // too late
	submit("name: flaky\nproject: speech\nkind: noop\nretries: {max: 1, backoff: 0s}\n")
	w.Finish(w.StartNext(), muster.AttemptFailed, 0)
	w.Finish(w.StartNext(), muster.AttemptFailed, 0)
	submit("name: big\nkind: noop\narray: 0-9\nresources: {memory: 64GiB}\nenv: {SEED: \"${index}\"}\n")
	return s
}

// startDeviceServer starts a server with a worker that has all fields: devices, one of them
// quarantined, their load, why it accepts no new tasks, and a task that resumed from a
// checkpoint.
func startDeviceServer(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.Start(t, nil)
	w := s.ConnectWorker(t, "w2")
	w.Send(&link.ToServer{Offer: &muster.Offer{
		Tags: []string{"cuda", "gpu"}, Kinds: []string{muster.KindNoop, muster.KindProcess, muster.KindScript, "resize"}, OwnKinds: json.RawMessage(resize),
		Lacks: []string{muster.FeatureGang, muster.FeatureCancel}, Projects: []string{"default"},
		Resources: muster.Resources{CPUs: 8, Memory: 8 << 30, Disk: 8 << 30, Slots: 2, MaxTasks: 4, GPUs: []muster.GPU{
			{UUID: "GPU-a", Index: 0, Vendor: "nvidia", Name: "NVIDIA A100-SXM4-40GB", Memory: 40 << 30, Quarantined: "an uncorrected ECC error (XID 48)"},
			{UUID: "MIG-b", Index: 1, Vendor: "nvidia", Name: "NVIDIA A100-SXM4-40GB", Memory: 5 << 30, MIG: "1g.5gb", Parent: "GPU-c"},
		}},
	}})
	resp, body := send(t, s, request{method: "POST", path: "/api/v1/jobs", body: "run: python train.py\ncheckpoint: ckpt/\n", header: map[string]string{"Content-Type": "application/yaml"}})
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("submit: %d %s", resp.StatusCode, body)
	}
	tree := `{"files":[]}`
	if err := s.PutBlob(t.Context(), emptyTree, tree); err != nil {
		t.Fatal(err)
	}
	id := w.StartNext()
	for _, sample := range []string{
		`{"at":"2020-01-02T15:04:05.000Z","cpu":2,"memory":1073741824,"disk":4096,"read":10,"write":20,"net_in":1,"net_out":2,"pids":3,"gpus":[{"uuid":"MIG-b","memory":2147483648,"own":1073741824}]}`,
		`{"at":"2020-01-02T15:04:10.000Z","cpu":1,"memory":2147483648,"pids":4}`,
	} {
		appendLog(t, s, id, apitest.EncodeRecord(tasklog.Usage, sample))
	}
	busy, hot, memory := 0.97, 81.0, muster.Size(31<<30)
	w.Send(&link.ToServer{
		Ready: &link.Ready{Constrained: "the GPUs are in use by their owner"}, Saved: []link.Saved{{Attempt: id, SHA256: emptyTree}},
		Renew: &link.Renew{Held: []muster.AttemptID{id}, Load: &muster.Load{CPU: 0.25, Memory: 1 << 30, GPUs: []muster.GPULoad{
			{UUID: "GPU-a", Utilization: &busy, Memory: &memory, Temperature: &hot},
		}}},
	})
	return s
}

// resize is the custom kinds of a worker: two kinds, one of them with a reserved name.
const resize = `[{"name":"echo","about":"Take the place of another kind.","entry":["./evil"]},
{"name":"resize","about":"Make pictures smaller.","entry":["./resize"],"run":"no","resources":{"cpus":2},"checkpoint":true,"merge_key":["width"],
"input":{"type":"object","required":["width"],"properties":{"width":{"type":"integer","minimum":1,"maximum":8192},"format":{"enum":["png","jpeg"],"default":"png"}}}}]`

const emptyTree = "602e35a92eec4bc0a2ec6ae113f07bfc6933322fb69fe8dee416e5a67217e2a2"

var goldenDevices = []goldenCase{
	{"rig-worker", request{method: "GET", path: "/api/v1/workers/w2"}, "get-worker"},
	{"rig-workers", request{method: "GET", path: "/api/v1/workers"}, "list-workers"},
	{"rig-workers-page", request{method: "GET", path: "/api/v1/workers?limit=1"}, "list-workers"},
	{"rig-workers-basic", request{method: "GET", path: "/api/v1/workers?view=basic&limit=1&cursor=w1"}, "list-workers"},
	{"rig-task", request{method: "GET", path: "/api/v1/tasks/1.0"}, "get-task"},
	{"rig-overview", request{method: "GET", path: "/api/v1/overview"}, "get-overview"},
	{"rig-usage", request{method: "GET", path: "/api/v1/tasks/1.0/usage"}, "get-usage"},
	{"rig-plan", request{method: "POST", path: "/api/v1/plan", body: `{"tasks":[{"kind":"noop","resources":{"gpus":{"count":1,"memory":"20GiB"}}}]}`}, "plan-job"},
	{"rig-kinds", request{method: "GET", path: "/api/v1/kinds?own=true"}, "list-kinds"},
	{"rig-kind", request{method: "GET", path: "/api/v1/kinds/resize"}, "get-kind"},
	{"rig-no-kind", request{method: "GET", path: "/api/v1/kinds/resise"}, "error"},
	{"rig-bad-input", request{method: "POST", path: "/api/v1/jobs", body: "kind: resize\ninput:\n  width: 1e9\n  fromat: png\n", header: map[string]string{"Content-Type": "application/yaml"}}, "error"},
	{"rig-bad-kind", request{method: "POST", path: "/api/v1/plan", body: `{"tasks":[{"kind":"resice"},{"kind":"echo","run":"true"}]}`}, "error"},
	{"rig-kind-fills", request{method: "POST", path: "/api/v1/jobs", body: "kind: resize\ninput: {width: 640}\n", header: map[string]string{"Content-Type": "application/yaml"}}, "submit-job"},
	{"rig-approved", request{method: "POST", path: "/api/v1/workers/w2/approve"}, "approve-worker"},
	{"rig-healed", request{method: "POST", path: "/api/v1/workers/w2/heal", body: `{"gpus":["0"]}`}, "heal-worker"},
	{"rig-well", request{method: "POST", path: "/api/v1/workers/w2/heal", body: `{"gpus":["MIG-b"]}`}, "error"},
	{"rig-no-gpu", request{method: "POST", path: "/api/v1/workers/w2/heal", body: `{"gpus":["7"]}`}, "error"},
	{"rig-paused", request{method: "POST", path: "/api/v1/workers/w2/pause", body: `{"for":"1h"}`}, "pause-worker"},
	{"rig-drained", request{method: "POST", path: "/api/v1/workers/w2/drain", body: `{"deadline":600}`}, "drain-worker"},
	{"rig-not-paused", request{method: "POST", path: "/api/v1/workers/w2/pause", body: `{"for":60}`}, "error"},
	{"rig-bad-deadline", request{method: "POST", path: "/api/v1/workers/w2/drain", body: `{"deadline":"soon"}`}, "error"},
	{"rig-resumed", request{method: "POST", path: "/api/v1/workers/w2/resume"}, "resume-worker"},
}

type goldenCase struct {
	name string
	request
	operation string // whose schema the answer must fit; "" for none
}

var golden = []goldenCase{
	{"job", request{method: "GET", path: "/api/v1/jobs/1"}, "get-job"},
	{"jobs", request{method: "GET", path: "/api/v1/jobs?limit=2"}, "list-jobs"},
	{"jobs-next", request{method: "GET", path: "/api/v1/jobs?limit=2&cursor=2"}, "list-jobs"},
	{"jobs-filtered", request{method: "GET", path: "/api/v1/jobs?label=team%3Dvision&state=succeeded&state=failed"}, "list-jobs"},
	{"tasks", request{method: "GET", path: "/api/v1/jobs/3/tasks?tasks=2-3,9"}, "list-tasks"},
	{"tasks-attempted", request{method: "GET", path: "/api/v1/jobs/2/tasks?attempted=true"}, "list-tasks"},
	{"all-tasks", request{method: "GET", path: "/api/v1/tasks?state=queued&state=failed&limit=2"}, "list-all-tasks"},
	{"all-tasks-bad-cursor", request{method: "GET", path: "/api/v1/tasks?cursor=7"}, ""},
	{"task", request{method: "GET", path: "/api/v1/tasks/1.0"}, "get-task"},
	{"task-failed", request{method: "GET", path: "/api/v1/tasks/2.0"}, "get-task"},
	{"attempts", request{method: "GET", path: "/api/v1/tasks/2.0/attempts"}, "list-attempts"},
	{"artifacts", request{method: "GET", path: "/api/v1/tasks/1.0/artifacts"}, "list-artifacts"},
	{"artifact", request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/out/hello%20world.txt"}, ""},
	{"artifact-range", request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/out/hello%20world.txt", header: map[string]string{"Range": "bytes=2-3"}}, ""},
	{"logs", request{method: "GET", path: "/api/v1/tasks/1.0/logs"}, ""},
	{"logs-events", request{method: "GET", path: "/api/v1/tasks/1.0/logs", header: map[string]string{"Accept": "text/event-stream"}}, ""},
	{"usage", request{method: "GET", path: "/api/v1/tasks/1.0/usage"}, "get-usage"},
	{"usage-none", request{method: "GET", path: "/api/v1/tasks/3.4/usage"}, "get-usage"},
	{"usage-events", request{method: "GET", path: "/api/v1/tasks/1.0/usage?follow=true"}, ""},
	{"no-attempt", request{method: "GET", path: "/api/v1/tasks/1.0/usage?attempt=2"}, "error"},
	{"explain-waiting", request{method: "GET", path: "/api/v1/tasks/3.4/explain"}, "explain-task"},
	{"explain-ended", request{method: "GET", path: "/api/v1/tasks/2.0/explain"}, "explain-task"},
	{"overview", request{method: "GET", path: "/api/v1/overview?gpus=false"}, "get-overview"},
	{"overview-project", request{method: "GET", path: "/api/v1/overview", token: "token-of-viewer-speech"}, "get-overview"},
	{"history", request{method: "GET", path: "/api/v1/history?worker=w1&points=10"}, "get-history"},
	{"history-project", request{method: "GET", path: "/api/v1/history?points=10", token: "token-of-viewer-speech"}, "get-history"},
	{"history-backwards", request{method: "GET", path: "/api/v1/history?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z"}, "error"},
	{"history-no-worker", request{method: "GET", path: "/api/v1/history?worker=w9"}, "error"},
	{"states", request{method: "GET", path: "/api/v1/jobs/3/states"}, "get-job-states"},
	{"states-part", request{method: "GET", path: "/api/v1/jobs/3/states?from=4&to=5"}, "get-job-states"},
	{"job-usage", request{method: "GET", path: "/api/v1/jobs/2/usage"}, "get-job-usage"},
	{"previous-none", request{method: "GET", path: "/api/v1/jobs/2/previous"}, "error"},
	{"plan", request{method: "POST", path: "/api/v1/plan", body: `{"tasks":[{"kind":"noop"}]}`}, "plan-job"},
	{"workers", request{method: "GET", path: "/api/v1/workers"}, "list-workers"},
	{"workers-by-id", request{method: "GET", path: "/api/v1/workers?id=w1&id=w9"}, "list-workers"},
	{"worker", request{method: "GET", path: "/api/v1/workers/name-of-w1"}, "get-worker"},
	{"worker-paused", request{method: "POST", path: "/api/v1/workers/w1/pause"}, "pause-worker"},
	{"submitted", request{method: "POST", path: "/api/v1/jobs", body: `{"name":"sums","tasks":[{"name":"a","run":["true"]},{"name":"b","needs":["a"],"run":"exit 0","matrix":{"lr":[0.1,0.2]},"timeout":60}]}`}, "submit-job"},
	{"greet-again", request{method: "POST", path: "/api/v1/jobs", body: `{"name":"greet","run":"echo hello"}`}, "submit-job"},
	{"previous", request{method: "GET", path: "/api/v1/jobs/5/previous"}, "get-previous-job"},
	{"cancelled", request{method: "POST", path: "/api/v1/jobs/3/cancel", body: `{"tasks":"0-4"}`}, "cancel-job"},
	{"retried", request{method: "POST", path: "/api/v1/jobs/2/retry"}, "retry-job"},
	{"edited", request{method: "POST", path: "/api/v1/jobs/3/edit", body: `{"priority":70,"held":true}`}, "edit-job"},
	{"edit-nothing", request{method: "POST", path: "/api/v1/jobs/3/edit", body: `{}`}, "error"},
	{"edit-ended", request{method: "POST", path: "/api/v1/jobs/1/edit", body: `{"held":true}`}, "error"},
	{"whoami", request{method: "GET", path: "/api/v1/whoami"}, "whoami"},
	{"key-made", request{method: "POST", path: "/api/v1/keys", body: `{"name":"ci","role":"submitter","project":"speech","ttl":"1h"}`}, "create-key"},
	{"keys", request{method: "GET", path: "/api/v1/keys"}, "list-keys"},
	{"missing", request{method: "POST", path: "/api/v1/blobs/missing", body: `{"sha256":["` + helloSum + `","` + strings.Repeat("0", 64) + `"]}`}, "missing-blobs"},
	{"late", request{method: "GET", path: "/api/v1/jobs/1/late"}, "list-late-reports"},
	{"task-spec", request{method: "GET", path: "/api/v1/tasks/3.4/spec"}, "get-task-spec"},
	{"task-events", request{method: "GET", path: "/api/v1/tasks/1.0/events"}, "list-task-events"},
	{"job-of-viewer", request{method: "GET", path: "/api/v1/jobs/3", token: "token-of-viewer-"}, "get-job"},
	{"task-spec-of-viewer", request{method: "GET", path: "/api/v1/tasks/3.4/spec", token: "token-of-viewer-"}, "get-task-spec"},
	{"share", request{method: "POST", path: "/api/v1/jobs/1/share", body: `{"ttl":"2h"}`}, "share-job"},
	{"share-long", request{method: "POST", path: "/api/v1/jobs/1/share", body: `{"ttl":"31d"}`}, "error"},
	{"task-metrics", request{method: "GET", path: "/api/v1/tasks/1.0/metrics"}, "get-task-metrics"},
	{"task-metrics-no-attempt", request{method: "GET", path: "/api/v1/tasks/1.0/metrics?attempt=7"}, "error"},
	{"log-window", request{method: "GET", path: "/api/v1/tasks/1.0/logs/window"}, "get-log-window"},
	{"log-window-back", request{method: "GET", path: "/api/v1/tasks/1.0/logs/window?direction=backward&bytes=5&stream=stdout"}, "get-log-window"},
	{"log-search", request{method: "GET", path: "/api/v1/tasks/1.0/logs/search?q=H"}, "search-logs"},
	{"log-search-errors", request{method: "GET", path: "/api/v1/tasks/1.0/logs/search?errors=true&direction=backward"}, "search-logs"},
	{"log-search-nothing", request{method: "GET", path: "/api/v1/tasks/1.0/logs/search"}, "error"},
	{"log-search-bad", request{method: "GET", path: "/api/v1/tasks/1.0/logs/search?q=a(&regex=true"}, "error"},
	{"log-download", request{method: "GET", path: "/api/v1/tasks/1.0/logs?download=true"}, ""},
	{"session", request{method: "POST", path: "/api/v1/session", token: "none", body: `{"token":"` + apitest.AdminToken + `"}`}, "create-session"},
	{"session-wrong", request{method: "POST", path: "/api/v1/session", token: "none", body: `{"token":"mst_admin_nonsense"}`}, "error"},
	{"check-blob", request{method: "POST", path: "/api/v1/blobs/" + helloSum + "/check"}, "check-blob"},
	{"healthz", request{method: "GET", path: "/healthz", token: "none"}, "healthz"},
	{"readyz", request{method: "GET", path: "/readyz", token: "none"}, "readyz"},

	{"no-token", request{method: "GET", path: "/api/v1/jobs", token: "none"}, "error"},
	{"wrong-token", request{method: "GET", path: "/api/v1/jobs", token: "mst_admin_nonsense"}, "error"},
	{"forbidden", request{method: "POST", path: "/api/v1/jobs", token: "token-of-viewer-", body: `{"kind":"noop"}`}, "error"},
	{"no-such-job", request{method: "GET", path: "/api/v1/jobs/99"}, "error"},
	{"no-such-task", request{method: "GET", path: "/api/v1/tasks/1.7"}, "error"},
	{"bad-id", request{method: "GET", path: "/api/v1/tasks/1-7"}, "error"},
	{"no-such-path", request{method: "GET", path: "/api/v1/job"}, "error"},
	{"wrong-method", request{method: "PUT", path: "/api/v1/jobs/1"}, "error"},
	{"unknown-parameter", request{method: "GET", path: "/api/v1/jobs?sate=queued&limit=0"}, "error"},
	{"bad-spec", request{method: "POST", path: "/api/v1/jobs", header: map[string]string{"Content-Type": "application/yaml"}, body: "name: x\nkind: noop\ntimout: 5\nresources:\n  memory: much\n"}, "error"},
	{"local-files", request{method: "POST", path: "/api/v1/jobs", body: `{"run":"x","files":"."}`}, "error"},
	{"two-jobs", request{method: "POST", path: "/api/v1/jobs", body: "kind: noop\n---\nkind: noop\n"}, "error"},
	{"nothing-to-cancel", request{method: "POST", path: "/api/v1/jobs/1/cancel"}, "error"},
	{"bad-key", request{method: "POST", path: "/api/v1/keys", body: `{"name":"x","role":"root","admin":true}`}, "error"},
	{"keep", request{method: "PUT", path: "/api/v1/jobs/1/keep"}, "keep-job"},
	{"rm-kept", request{method: "DELETE", path: "/api/v1/jobs/1"}, "error"},
	{"unkeep", request{method: "DELETE", path: "/api/v1/jobs/1/keep"}, "unkeep-job"},
	{"rm-live", request{method: "DELETE", path: "/api/v1/jobs/3"}, "error"},
	{"retention-set", request{method: "PUT", path: "/api/v1/projects/vision/retention", body: `{"jobs":"90d","logs":"7d,50GiB"}`}, "put-retention"},
	{"retention-bad", request{method: "PUT", path: "/api/v1/projects/vision/retention", body: `{"jobs":"soon"}`}, "error"},
	{"audit", request{method: "GET", path: "/api/v1/audit?operation=none"}, "list-audit-records"},
	{"audit-verify", request{method: "GET", path: "/api/v1/audit/verify"}, "verify-audit-log"},
	{"audit-verify-problem", request{method: "GET", path: "/api/v1/audit/verify?head=" + strings.Repeat("a", 64) + "@0"}, "verify-audit-log"},
	{"retention", request{method: "GET", path: "/api/v1/retention"}, "get-retention"},
	{"retention-project", request{method: "GET", path: "/api/v1/retention", token: "token-of-viewer-speech"}, "get-retention"},
	{"prune-dry", request{method: "POST", path: "/api/v1/prune", body: `{"project":"default","keep":{"jobs":"100","logs":"1B"},"dry_run":true}`}, "prune"},
	{"prune-unknown-limit", request{method: "POST", path: "/api/v1/prune", body: `{"keep":{"jobs":"100","log":"7d"}}`}, "error"},
	{"prune-no-limits", request{method: "POST", path: "/api/v1/prune", body: `{"keep":7}`}, "error"},
	{"drain-bad-deadline", request{method: "POST", path: "/api/v1/workers/w-none/drain", body: `{"deadline":true}`}, "error"},
	{"drain-long-deadline", request{method: "POST", path: "/api/v1/workers/w-none/drain", body: `{"deadline":99999999}`}, "error"},
	{"prune-bad-limit", request{method: "POST", path: "/api/v1/prune", body: `{"keep":{"jobs":"soon"}}`}, "error"},
	{"prune-viewer", request{method: "POST", path: "/api/v1/prune", token: "token-of-viewer-speech", body: `{"dry_run":true}`}, "error"},

	{"no-artifact", request{method: "GET", path: "/api/v1/tasks/1.0/artifacts/../../secret"}, ""},
	{"rm", request{method: "DELETE", path: "/api/v1/jobs/1"}, ""},
	{"key-rotated", request{method: "POST", path: "/api/v1/keys/token-of-viewer-speech/rotate"}, "rotate-key"},
	{"key-rotated-unknown", request{method: "POST", path: "/api/v1/keys/nope/rotate"}, "error"},
	{"backup-forbidden", request{method: "GET", path: "/api/v1/backup", token: "token-of-viewer-"}, "error"},
	{"rm-again", request{method: "DELETE", path: "/api/v1/jobs/1"}, "error"},
}

func TestGolden(t *testing.T) {
	s := startPopulatedServer(t)
	s.CreateKey(t, auth.Viewer, "", "")
	s.CreateKey(t, auth.Viewer, "speech", "")
	checkGolden(t, s, golden)
}

func TestGoldenDevices(t *testing.T) { checkGolden(t, startDeviceServer(t), goldenDevices) }

func checkGolden(t *testing.T, s *apitest.Server, cases []goldenCase) {
	t.Helper()
	doc := api.Document()
	for _, g := range cases {
		t.Run(g.name, func(t *testing.T) {
			resp, body := send(t, s, g.request)
			got := render(t, g.request, resp, body)
			path := filepath.Join("testdata", g.name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("the answer changed (-want +got); if that is right, run with -update:\n%s", diff)
			}
			if g.operation != "" {
				checkSchema(t, doc, g.operation, resp.StatusCode, body)
			}
		})
	}
}

// checkSchema validates an answer with its schema in the OpenAPI document.
func checkSchema(t *testing.T, doc *huma.OpenAPI, operation string, status int, body []byte) {
	t.Helper()
	schema := schemaOf(doc, operation, status)
	if schema == nil {
		t.Fatalf("the OpenAPI document has no schema for %s %d", operation, status)
	}
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	var result huma.ValidateResult
	huma.Validate(doc.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, v, &result)
	for _, err := range result.Errors {
		t.Errorf("the answer does not match the OpenAPI document: %v", err)
	}
}

func schemaOf(doc *huma.OpenAPI, operation string, status int) *huma.Schema {
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			switch {
			case op == nil:
			case operation == "error" && op.OperationID == "get-job":
				return op.Responses["default"].Content["application/problem+json"].Schema
			case op.OperationID == operation:
				if r := op.Responses[strconv.Itoa(status)]; r != nil && r.Content["application/json"] != nil {
					return r.Content["application/json"].Schema
				}
			}
		}
	}
	return nil
}

// For every operation of the OpenAPI document that answers JSON, a golden test validates
// the answer.
func TestEveryJSONOperationIsGolden(t *testing.T) {
	tested := map[string]bool{}
	for _, g := range slices.Concat(golden, goldenDevices, goldenContainers, goldenNotify, goldenSecrets, goldenSchedules, goldenCache, goldenSignIn, goldenIdentity) {
		tested[g.operation] = true
	}
	for path, item := range api.Document().Paths {
		if strings.Contains(path, "...") {
			t.Errorf("path %s is not an OpenAPI path", path)
		}
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op == nil {
				continue
			}
			for status, r := range op.Responses {
				if r.Content["application/json"] != nil && !tested[op.OperationID] {
					t.Errorf("operation %s (%s) has no golden test", op.OperationID, status)
				}
			}
		}
	}
}
