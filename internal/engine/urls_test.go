package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
)

// TestURLsInResults checks that a result's artifact://{NAME} becomes the URL of that artifact, that all else stays, and that a missing artifact
// fails the attempt.
func TestURLsInResults(t *testing.T) {
	s := &session{url: "https://h:1"}
	report := func(result string) muster.Report {
		r := muster.Report{
			Attempt: muster.AttemptID{Task: muster.TaskID{Job: 7, Num: 2}, N: 1}, Outcome: muster.AttemptSucceeded, Result: []byte(result),
			Artifacts: []muster.Artifact{{Name: "a b/m.pt"}, {Name: "x"}},
		}
		s.fillURLs(&r)
		return r
	}
	for result, want := range map[string]string{
		`{"u":"artifact://{a b/m.pt}","l":["artifact://{x}"]}`:                      `{"u":"https://h:1/api/v1/tasks/7.2/artifacts/a%20b/m.pt","l":["https://h:1/api/v1/tasks/7.2/artifacts/x"]}`,
		`{"text":"say \"artifact://{x}\"","n":1.50,"part":"see artifact://{none}"}`: `{"text":"say \"artifact://{x}\"","n":1.50,"part":"see artifact://{none}"}`,
		`"artifact://{}"`: `"artifact://{}"`,
		``:                ``,
	} {
		if got := report(result); string(got.Result) != want || got.Outcome != muster.AttemptSucceeded {
			t.Errorf("%s became %s (%s)", result, got.Result, got.Message)
		}
	}
	for result, want := range map[string]string{
		`{"u":"artifact://{y}"}`: "artifact://{y}, but there is no such artifact",
		`["` + strings.Repeat("x", muster.MaxResultSize-30) + `","artifact://{x}"]`: "larger than 256KiB",
	} {
		if got := report(result); got.Outcome != muster.AttemptFailed || got.Reason != muster.ResultInvalid || !strings.Contains(got.Message, want) || got.Result != nil {
			t.Errorf("%.40s: %s %s %s", result, got.Outcome, got.Reason, got.Message)
		}
	}
}

func TestAllowlistsHaveTheServerOfTheirURLs(t *testing.T) {
	hosts := []string{"pypi.org"}
	for _, c := range []struct {
		server    string
		container bool
		want      []string
	}{
		{"http://10.0.0.5:8700", true, []string{"pypi.org", "10.0.0.5:8700"}},
		{"https://muster.example.org", false, []string{"pypi.org", "muster.example.org"}},
		{"http://[fd00::1]:8700", true, []string{"pypi.org", "[fd00::1]:8700"}},
		{"http://127.0.0.1:8700", false, []string{"pypi.org", "127.0.0.1:8700"}},
		{"http://127.0.0.1:8700", true, hosts},
		{"https://pypi.org", false, hosts},
		{"", false, hosts},
	} {
		if got := withServer(hosts, c.server, c.container); !slices.Equal(got, c.want) {
			t.Errorf("%s, in a container: %v: %v", c.server, c.container, got)
		}
	}
}
