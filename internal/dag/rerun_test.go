package dag_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dag"
)

// TestReusable checks which stages of prep → train → eval, with report after prep, and of the independent other, are reused.
func TestReusable(t *testing.T) {
	t.Parallel()
	const text = `{"tasks":[{"name":"eval","needs":["train"],"run":"e"},{"name":"prep","run":"p"},{"name":"train","needs":["prep"],"array":"0-2","run":"t"},
		{"name":"report","needs":["prep"],"run":"r"},{"name":"other","run":"o"},{"name":"last","needs":["other"],"run":"l"}]}`
	for _, test := range []struct {
		from, failed, changed string
		want                  string // or a part of the error
	}{
		{from: "eval", want: "prep other train report last"},
		{from: "train", want: "prep other report last"},
		{from: "prep", want: "other last"},
		{from: "prep", failed: "prep", want: "other last"},
		{from: "eval", failed: "other", want: "prep train report"},
		{from: "eval", changed: "other", want: "prep train report"},
		{from: "eval", failed: "report", changed: "last", want: "prep other train"},
		{from: "eval", failed: "train", want: "stage train, which it needs, did not succeed"},
		{from: "eval", changed: "prep", want: "stage prep, which it needs, is changed"},
		{from: "evil", want: "there is no such stage: it has eval, prep"},
	} {
		job := muster.Job{ID: 17, Spec: parse(t, text)}
		for i := range job.Spec.Tasks {
			g := muster.Group{Index: i, Name: job.Spec.Tasks[i].Name, Size: job.Spec.Tasks[i].Size()}
			g.Counts[muster.Succeeded] = int64(g.Size)
			if g.Name == test.failed {
				g.Counts[muster.Succeeded]--
				g.Counts[muster.TimedOut]++
			}
			job.Groups = append(job.Groups, g)
		}
		spec := parse(t, strings.ReplaceAll(text, `"name":"`+test.changed+`",`, `"name":"`+test.changed+`","timeout":7,`))
		reused, err := dag.Reusable(&job, spec, test.from)
		var names []string
		for _, i := range reused {
			names = append(names, spec.Tasks[i].Name)
		}
		if got := fmt.Sprint(strings.Join(names, " "), err); err == nil && got != test.want+"<nil>" || err != nil && !strings.Contains(got, test.want) {
			t.Errorf("%+v: %s", test, got)
		}
		job.ArtifactsRemovedAt = 1
		if _, err := dag.Reusable(&job, spec, test.from); err == nil {
			t.Errorf("%+v: reused, but the artifacts were deleted", test)
		}
	}
}
