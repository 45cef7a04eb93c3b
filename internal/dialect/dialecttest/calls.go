package dialecttest

import (
	"cmp"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/auth"
)

// Call is a request for one route of a gateway with key=required, and what a key must be allowed to make it.
type Call struct {
	Path   string                     // instead of the pattern's
	Body   string                     // JSON, unless Type is set
	New    func() (path, body string) // both, called for each request: for calls that make or end something
	Type   string
	Want   int    // status for a key that may; 0 means 200
	Answer string // a part of its answer, and of no refusal

	Verb    auth.Verb // of auth.Table; "" for any key, or for Owner alone
	Owner   string    // id of the key of what the path names, which may in any case; "" for none
	Project string    // of what the path names; "" for nothing of one project
	Open    bool      // also without a key
}

// CheckCalls sends a request to each route of a gateway with each key: the answer is what auth.Can says. It fails for a route that has no call. A pattern
// may have more calls, with a text in parentheses behind it.
func CheckCalls(t *testing.T, url string, patterns []string, calls map[string]Call, callers []Caller) {
	t.Helper()
	for _, pattern := range patterns {
		if _, ok := calls[pattern]; !ok {
			t.Errorf("the route %q has no call: add one with the verb that it needs", pattern)
		}
	}
	for pattern, call := range calls {
		route, _, _ := strings.Cut(pattern, " (")
		if !slices.Contains(patterns, route) {
			t.Errorf("there is no route %q", pattern)
			continue
		}
		method, path, _ := strings.Cut(route, " ")
		allowed := 0
		for _, c := range append([]Caller{{}}, callers...) {
			call := call
			if call.Path = strings.TrimSuffix(cmp.Or(call.Path, path), "{$}"); call.New != nil {
				var named string
				named, call.Body = call.New()
				call.Path = cmp.Or(named, call.Path)
			}
			want := call.refusal(&c)
			status, answer := call.send(t, method, url, c.Secret)
			name := "a " + string(c.Role) + " of project " + c.Project
			if c.Job != 0 {
				name = "a link to a job"
			}
			switch {
			case len(want) == 0 && (status != cmp.Or(call.Want, http.StatusOK) || !strings.Contains(answer, call.Answer)):
				t.Errorf("%s as %s: %d %s, want %d", pattern, name, status, answer, cmp.Or(call.Want, http.StatusOK))
			case len(want) > 0 && (!slices.Contains(want, status) || call.Answer != "" && strings.Contains(answer, call.Answer)):
				t.Errorf("%s as %s: %d %s, want a refusal of %v", pattern, name, status, answer, want)
			case len(want) == 0:
				allowed++
			}
		}
		if allowed == 0 {
			t.Errorf("%s is allowed to no key", pattern)
		}
	}
}

// refusal returns with which statuses a caller must be refused; none if it must be allowed.
func (call *Call) refusal(c *Caller) []int {
	what := auth.Object{}
	if call.Verb == auth.JoinWorkers {
		what.Project = auth.AllProjects // gateways cannot bind their workers to a project
	}
	refused := []int{http.StatusForbidden}
	if call.Owner != "" || call.Project != "" { // the gateway may say that there is no such thing
		refused = append(refused, http.StatusNotFound)
	}
	switch {
	case c.Secret == "" && call.Open:
		return nil
	case c.Secret == "":
		return []int{http.StatusUnauthorized}
	case c.Job != 0:
		return []int{http.StatusForbidden}
	case call.Owner != "" && c.KeyID == call.Owner, call.Owner == "" && call.Verb == "":
		return nil
	case call.Verb == "", auth.Can(c.Principal, call.Verb, what) != nil:
		return refused
	case call.Project != "" && auth.Can(c.Principal, call.Verb, auth.Object{Project: call.Project}) != nil:
		return refused
	}
	return nil
}

func (call *Call) send(t *testing.T, method, url, key string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url+call.Path, strings.NewReader(call.Body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", cmp.Or(call.Type, "application/json"))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}
