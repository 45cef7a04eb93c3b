package api_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cid"
)

// Parsers accept all strings that match the document's patterns, and usual strings match their pattern.
func TestPatternsMatchTheParsers(t *testing.T) {
	patterns := map[string]string{}
	for path, item := range api.Document().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Delete} {
			if op == nil || path == "/api/v1/tasks" { // its cursor is of another form
				continue
			}
			for _, p := range op.Parameters {
				if p.Schema.Pattern != "" {
					patterns[p.Name] = p.Schema.Pattern
				}
			}
		}
	}
	components := api.Document().Components.Schemas.Map()
	patterns["duration"] = components["Kill"].Properties["grace"].AnyOf[1].Pattern
	patterns["size"] = components["GPURequest"].Properties["memory"].AnyOf[1].Pattern
	for name, c := range map[string]struct {
		read      func(string) error
		good, bad []string
	}{
		"job":      {func(s string) error { _, err := muster.ParseJobID(s); return err }, []string{"1", "17", "999999999999999999"}, []string{"", "0", "01", "-1", "x", "1.0", "9999999999999999999"}},
		"task":     {func(s string) error { _, err := muster.ParseTaskID(s); return err }, []string{"1.0", "17.3", "999999999999999999.9999999"}, []string{"1", "1.", "0.1", "1.01", "1.99999999", "1.0#1"}},
		"tasks":    {func(s string) error { _, err := wire.ParseSpans(s); return err }, []string{"0", "0-9,12", "9999999-9999999"}, []string{"x", "1-", "-1", "1,,2"}},
		"duration": {func(s string) error { _, err := muster.ParseDuration(s); return err }, []string{"90", "90s", "10m", "1h30m", "7d", "0.5d", "1.5h", "99999h99999h99999h99999h", "9999.9d"}, []string{"", "soon", "1x", "-1s", "1d2h"}},
		"size": {func(s string) error { _, err := muster.ParseSize(s); return err },
			[]string{"512MiB", "10GB", "4G", "1.5 GiB", "100", "999999TiB", "9999B", "20gib"}, []string{"", "much", "-1", "1QB", "GiB"}},
		"cid": {func(s string) error { _, err := cid.Canonical(s); return err },
			[]string{"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o", "QmP" + strings.Repeat("1", 43), "Qme" + strings.Repeat("z", 43), "bafybeicg2rebjoofv4kbyovkw7af3rpiitvnl6i7ckcywaq6xjcxnc2mby", "bafybeia" + strings.Repeat("a", 51), "bafybeih" + strings.Repeat("h", 50) + "4"},
			[]string{"", "x", "Qm", "zQm"}},
		"cursor": {nil, []string{"0", "17"}, []string{"", "-1", "x"}},
		"sha256": {nil, []string{strings.Repeat("0a", 32)}, []string{"x", strings.Repeat("A", 64)}},
		"worker": {nil, []string{"w-1", "rig 7"}, []string{"", "a/b"}},
	} {
		p, known := patterns[name]
		if !known {
			t.Errorf("%s has no pattern", name)
			continue
		}
		re := regexp.MustCompile(p)
		for _, s := range c.good {
			if !re.MatchString(s) {
				t.Errorf("%s: %q does not match %s", name, s, p)
			}
			if c.read != nil && c.read(s) != nil {
				t.Errorf("%s: %q matches and is rejected: %v", name, s, c.read(s))
			}
		}
		for _, s := range c.bad {
			if re.MatchString(s) {
				t.Errorf("%s: %q matches %s", name, s, p)
			}
		}
	}
}

func TestContentTypesOfStreams(t *testing.T) {
	for path, want := range map[string][]string{
		"/api/v1/tasks/{task}/logs":             {"text/plain", "text/event-stream"},
		"/api/v1/tasks/{task}/usage":            {"application/json", "text/event-stream"},
		"/api/v1/events":                        {"text/event-stream"},
		"/api/v1/tasks/{task}/artifacts/{name}": {"*/*"},
		"/ipfs/{cid}":                           {"*/*"},
	} {
		content := api.Document().Paths[path].Get.Responses["200"].Content
		for _, kind := range want {
			if content[kind] == nil {
				t.Errorf("%s does not document content type %s", path, kind)
			}
		}
		if len(content) != len(want) {
			t.Errorf("%s documents %d content types, want %d", path, len(content), len(want))
		}
	}
}

func TestNullableFieldsAreDocumented(t *testing.T) {
	components := api.Document().Components.Schemas
	for name, body := range map[string]any{
		"NewKey": map[string]any{"name": "x", "role": "viewer", "project": nil, "ttl": nil}, "Drain": map[string]any{"deadline": nil}, "Pause": map[string]any{"for": nil},
	} {
		var result huma.ValidateResult
		huma.Validate(components, components.Map()[name], huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, body, &result)
		for _, err := range result.Errors {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p := components.Map()["NewKey"].Properties; !p["project"].Nullable || len(p["ttl"].AnyOf) != 3 || p["name"].Nullable {
		t.Errorf("NewKey: %+v", p)
	}
}

func TestParametersWithoutValuesAreRefused(t *testing.T) {
	s := apitest.Start(t, nil)
	for path, want := range map[string]int{
		"/api/v1/kinds?own=": http.StatusBadRequest, "/api/v1/kinds?own=x": http.StatusBadRequest, "/api/v1/kinds?own=true": http.StatusOK,
		"/api/v1/jobs?limit=": http.StatusBadRequest, "/api/v1/jobs?name=": http.StatusOK, "/api/v1/jobs?order=": http.StatusBadRequest,
	} {
		expectStatus(t, s, request{method: "GET", path: path}, want)
	}
	blob := "/api/v1/blobs/" + helloSum
	expectStatus(t, s, request{method: "PUT", path: blob, body: "hello\n", header: map[string]string{"Upload-Offset": ""}}, http.StatusBadRequest)
	expectStatus(t, s, request{method: "PUT", path: blob, body: "hello\n"}, http.StatusCreated)
}

// A path without parameters has its own methods, not those of a matching path with parameters.
func TestLiteralPathsHaveTheirOwnMethods(t *testing.T) {
	s := apitest.Start(t, nil)
	for _, method := range []string{"GET", "PUT", "HEAD", "OPTIONS", "DELETE"} {
		resp, _ := send(t, s, request{method: method, path: "/api/v1/blobs/missing"})
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow: %q", method, resp.StatusCode, resp.Header.Get("Allow"))
		}
	}
	expectStatus(t, s, request{method: "HEAD", path: "/api/v1/jobs"}, http.StatusOK)
}
