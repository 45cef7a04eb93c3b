package remote

import (
	"context"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/client"
)

// maxPieces limits the ranges of tasks of one selector, as the server does.
const maxPieces = 1_000

// resolve sets the spans of a selector with a stage or elements, for which it reads the job.
func resolve(ctx context.Context, c *client.Client, s *Selector) error {
	if s.Stage == "" && s.Elements == "" {
		return nil
	}
	job, err := c.Job(ctx, s.Job)
	if err != nil {
		return err
	}
	s.Spans, err = findElements(&job, s.Stage, s.Elements)
	return err
}

// findElements returns the tasks of the elements of a stage, all of them if elements is "".
func findElements(job *muster.Job, stage, elements string) ([]client.Span, error) {
	g, err := findStage(job, stage)
	if err != nil {
		return nil, err
	}
	if elements == "" {
		return []client.Span{{First: g.First, Last: g.First + g.Size - 1}}, nil
	}
	spec := &job.Spec.Tasks[g.Index]
	if !spec.HasElements() {
		return nil, muster.Errorf(muster.NotFound, "stage %s of job %s has no elements: use %s.%s", g.Name, job.ID, job.ID, g.Name)
	}
	var spans []client.Span
	if ranges, err := muster.ParseArray(elements); err == nil && ranges.Limit > 0 {
		return nil, muster.Errorf(muster.Invalid, "%%%d has no meaning here: write elements only", ranges.Limit)
	} else if err == nil && ranges.From == "" {
		for _, r := range ranges.Ranges {
			found := positions(spec, r)
			if len(found) == 0 {
				return nil, muster.Errorf(muster.NotFound, "job %s has no element %s: %s", job.ID, r, describeElements(spec))
			}
			spans = append(spans, found...)
		}
	} else if spec.Axes() != nil && strings.Contains(elements, "=") {
		spans = combinations(spec, elements)
	} else if err != nil {
		return nil, err
	}
	if len(spans) == 0 {
		return nil, muster.Errorf(muster.NotFound, "job %s has no element %s: %s", job.ID, muster.Truncate(elements), describeElements(spec))
	}
	for i := range spans {
		if spans[i].First >= g.Size {
			return nil, muster.Errorf(muster.NotFound, "job %s has no element %s: stage %s has %d", job.ID, muster.Truncate(elements), g.Name, g.Size)
		}
		spans[i].First += g.First
		spans[i].Last = min(spans[i].Last, g.Size-1) + g.First
	}
	if spans = muster.MergeSpans(spans); len(spans) > maxPieces {
		return nil, muster.Errorf(muster.Invalid, "%s selects %d separate tasks, at most %d: select fewer", muster.Truncate(elements), len(spans), maxPieces)
	}
	return spans, nil
}

// findStage returns the stage with a name, or for "" the only stage with elements.
func findStage(job *muster.Job, name string) (*muster.Group, error) {
	if job.Spec == nil {
		return nil, muster.Errorf(muster.Forbidden, "the stages of job %s are not visible to this key: select tasks by number, such as %s.0", job.ID, job.ID)
	}
	if name == "" {
		i, ok := app.ArrayStage(job)
		if !ok {
			return nil, muster.Errorf(muster.NotFound, "job %s has %s: %s", job.ID, arrayCount(job), "name the stage, as in "+job.ID.String()+".STAGE.57, or use the task's number")
		}
		return &job.Groups[i], nil
	}
	names := make([]string, len(job.Groups))
	for i := range job.Groups {
		if names[i] = job.Groups[i].Name; names[i] == name {
			return &job.Groups[i], nil
		}
	}
	return nil, muster.Errorf(muster.NotFound, "job %s has no stage %s: it has %s", job.ID, muster.Truncate(name), muster.Truncate(app.JoinComma(names)))
}

func arrayCount(job *muster.Job) string {
	if slices.ContainsFunc(job.Spec.Tasks, func(t muster.TaskSpec) bool { return t.HasElements() }) {
		return "several stages with elements"
	}
	return "no array, matrix or gang"
}

// positions returns the positions of the elements whose index is one of r's numbers.
func positions(spec *muster.TaskSpec, r muster.Range) []client.Span {
	all := muster.Array{Ranges: []muster.Range{{First: 0, Last: int64(spec.Size()) - 1, Step: 1}}}
	if spec.DynamicArray() {
		all.Ranges[0].Last = muster.MaxFanOut - 1
	} else if spec.Array != nil {
		all = *spec.Array
	}
	step := max(r.Step, 1)
	var spans []client.Span
	var before int64 // elements in earlier ranges
	for _, own := range all.Ranges {
		ownStep := max(own.Step, 1)
		// Elements first to last of this range are at least r.First and at most r.Last.
		first := max(0, r.First-own.First+ownStep-1) / ownStep
		last := min(r.Last-own.First, own.Last-own.First)
		if last >= 0 {
			last /= ownStep
		}
		switch {
		case first > last:
		case step == 1:
			spans = append(spans, client.Span{First: int(before + first), Last: int(before + last)})
		default:
			for i := first; i <= last && len(spans) <= maxPieces; i++ {
				if (own.First+i*ownStep-r.First)%step == 0 {
					spans = append(spans, client.Span{First: int(before + i), Last: int(before + i)})
				}
			}
		}
		before += own.Len()
	}
	return spans
}

// combinations returns the positions of the elements of a matrix or sweep with a name such as lr=0.1,seed=2, or with these values of some axes.
func combinations(spec *muster.TaskSpec, name string) []client.Span {
	want, axes := map[string]string{}, spec.Axes()
	for pair := range strings.SplitSeq(name, ",") {
		axis, value, _ := strings.Cut(pair, "=")
		if slices.Contains(axes, axis) {
			want[axis] = value
		} else {
			want = nil // a value with a comma: only the whole name matches
			break
		}
	}
	var spans []client.Span
	for i := range spec.Size() {
		match := want != nil
		for k, value := range spec.Combination(i) {
			if v, has := want[axes[k]]; has && v != value {
				match = false
			}
		}
		if !match && (want != nil || spec.Element(i) != name) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].Last == i-1 {
			spans[n-1].Last = i
		} else if spans = append(spans, client.Span{First: i, Last: i}); len(spans) > maxPieces {
			break
		}
	}
	return spans
}

// describeElements describes the elements of a stage in an error.
func describeElements(spec *muster.TaskSpec) string {
	switch {
	case spec.Array != nil:
		return "its array is " + muster.Truncate(spec.Array.String())
	case spec.Matrix != nil:
		return "its matrix has elements such as " + muster.Truncate(spec.Element(0))
	case spec.Sweep != nil:
		return "its sweep has elements such as " + muster.Truncate(spec.Element(0))
	default:
		return "its gang has the ranks " + muster.Range{First: 0, Last: int64(spec.Size()) - 1, Step: 1}.String()
	}
}

// TaskJobs are jobs by number, to name their tasks.
type TaskJobs map[muster.JobID]*muster.Job

// LoadTaskJobs reads the jobs of the selectors, each once.
func LoadTaskJobs(ctx context.Context, c *client.Client, sels []Selector) (TaskJobs, error) {
	jobs := TaskJobs{}
	for _, sel := range sels {
		if jobs[sel.Job] != nil {
			continue
		}
		job, err := c.Job(ctx, sel.Job)
		if err != nil {
			return nil, err
		}
		jobs[sel.Job] = &job
	}
	return jobs, nil
}

// Address is app.TaskAddress for a task of one of the jobs.
func (j TaskJobs) Address(id muster.TaskID) string { return app.TaskAddress(j[id.Job], id) }

// Multiple reports whether the selectors, whose jobs were loaded, select more than one task.
func (j TaskJobs) Multiple(sels []Selector) bool {
	if len(sels) != 1 {
		return true
	}
	if sels[0].Spans != nil {
		_, single := sels[0].Task()
		return !single
	}
	return j[sels[0].Job].Counts.Total() > 1
}
