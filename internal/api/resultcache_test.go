package api_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

const (
	speechCache  = "/api/v1/projects/speech/cache"
	cachedSpeech = `{"project":"speech","name":"features","run":"true","cache":true,"env":{"SEED":"1"}}`
)

var goldenCache = []goldenCase{
	{"cache", request{method: "GET", path: speechCache}, "list-cache"},
	{"cache-none", request{method: "GET", path: "/api/v1/projects/vision/cache"}, "list-cache"},
	{"cache-miss", request{method: "GET", path: "/api/v1/tasks/1.0/cache"}, "explain-cache"},
	{"cache-hit", request{method: "GET", path: "/api/v1/tasks/2.0/cache"}, "explain-cache"},
	{"cache-off", request{method: "GET", path: "/api/v1/tasks/3.0/cache"}, "explain-cache"},
	{"cache-hit-task", request{method: "GET", path: "/api/v1/tasks/2.0"}, "get-task"},
	{"cache-hit-explain", request{method: "GET", path: "/api/v1/tasks/2.0/explain"}, "explain-task"},
	{"cache-clear-nothing", request{method: "DELETE", path: speechCache + "?job=9&kind=noop&stage=a&key=00"}, "clear-cache"},
	{"cache-clear-bad-key", request{method: "DELETE", path: speechCache + "?key=x"}, "error"},
	{"cache-clear", request{method: "DELETE", path: speechCache + "?job=1"}, "clear-cache"},
	{"cache-bad-lifetime", request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop","cache":"often"}`}, "error"},
}

// startCached starts a server whose cache has the result of a task that differs from 1.0 in a variable, and one that 2.0 has taken.
func startCached(t *testing.T) *apitest.Server {
	t.Helper()
	s := apitest.Start(t, nil)
	submit := func(body string) {
		expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: body}, http.StatusCreated)
	}
	submit(cachedSpeech)
	task, err := s.Store.Task(t.Context(), muster.TaskID{Job: 1})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(key string, fields []muster.CacheField) muster.CacheEntry {
		return muster.CacheEntry{
			Project: "speech", Key: key, Kind: "process", Name: "features", Origin: muster.TaskID{Job: 1, Num: 7}, CreatedAt: 4_000_000_000_000, ExpiresAt: 4_102_444_800_000, Fields: fields, Result: []byte(`{"n":1}`),
		}
	}
	other := []muster.CacheField{}
	for _, f := range task.Cache.Fields {
		if f.Name == "env.SEED" {
			f.Value = "sha256:another"
		}
		if f.Name != "isolation" {
			other = append(other, f)
		}
	}
	rows := muster.Rows{CacheEntries: []muster.CacheEntry{entry(strings.Repeat("a", 64), other), entry(task.Cache.Key, task.Cache.Fields)}}
	rows.CacheEntries[1].Origin = muster.TaskID{Job: 1} // as if it had run
	if err := s.Store.Commit(t.Context(), &store.Batch{Rows: rows}); err != nil {
		t.Fatal(err)
	}
	submit(cachedSpeech)
	submit(`{"project":"speech","kind":"noop"}`)
	return s
}

func TestGoldenCache(t *testing.T) { checkGolden(t, startCached(t), goldenCache) }

// Readers of a project see its cache without values of variables; who may remove jobs clears it. Other projects are not found.
func TestCacheByRole(t *testing.T) {
	s := startCached(t)
	viewer, submitter, other := s.CreateKey(t, auth.Viewer, "speech", ""), s.CreateKey(t, auth.Submitter, "speech", ""), s.CreateKey(t, auth.Admin, "vision", "")
	for token, want := range map[string]string{viewer: "(hidden)", submitter: "sha256:another"} {
		var x wire.TaskCache
		if err := json.Unmarshal(expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/cache", token: token}, http.StatusOK), &x); err != nil {
			t.Fatal(err)
		}
		if len(x.Differences) != 1 || x.Differences[0].Name != "env.SEED" || x.Differences[0].Entry != want {
			t.Errorf("differences: %+v, want %s", x.Differences, want)
		}
	}
	expectStatus(t, s, request{method: "DELETE", path: speechCache, token: viewer}, http.StatusForbidden)
	expectStatus(t, s, request{method: "DELETE", path: speechCache, token: other}, http.StatusForbidden)
	expectStatus(t, s, request{method: "GET", path: speechCache, token: other}, http.StatusForbidden)
	expectStatus(t, s, request{method: "GET", path: "/api/v1/tasks/1.0/cache", token: other}, http.StatusNotFound)
	if got := string(expectStatus(t, s, request{method: "DELETE", path: speechCache, token: submitter}, http.StatusOK)); !strings.Contains(got, `"deleted":2`) {
		t.Errorf("cleared: %s", got)
	}
}
