package store

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/muster-dev/muster"
)

// RowsFunc reads the stored tasks of one job with numbers in span
// and a state in states (any if empty), by number, at most limit of them.
type RowsFunc func(ctx context.Context, span Span, states []muster.TaskState, limit int) ([]muster.Task, error)

// PageTasks implements Reader.Tasks for an adapter: it merges the stored tasks
// with those that it synthesizes from their groups. job has Spec and Groups, of the
// same snapshot as the rows. It synthesizes only tasks that it returns.
func PageTasks(ctx context.Context, q TaskQuery, job *muster.Job, rows RowsFunc) ([]muster.Task, string, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, "", err
	}
	from, err := parseCursor(q.Cursor)
	if err != nil {
		return nil, "", err
	}
	p := pager{ctx: ctx, job: job, states: q.States, storedOnly: q.StoredOnly, rows: rows, limit: q.Limit + 1}
	for _, span := range mergeSpans(q.Spans) {
		span.First = max(span.First, int(from))
		i, _ := slices.BinarySearchFunc(job.Groups, span.First, func(g muster.Group, num int) int { return g.First + g.Size - 1 - num })
		for ; i < len(job.Groups) && job.Groups[i].First <= span.Last && p.remaining() > 0; i++ {
			if err := p.addGroup(&job.Groups[i], span); err != nil {
				return nil, "", err
			}
		}
	}
	if len(p.page) <= q.Limit {
		return p.page, "", nil
	}
	return p.page[:q.Limit], strconv.Itoa(p.page[q.Limit].ID.Num), nil
}

// pager collects a page, and one task more, which is the first one of the next page.
type pager struct {
	ctx        context.Context //nolint:containedctx // of one call of PageTasks
	job        *muster.Job
	states     []muster.TaskState
	storedOnly bool
	rows       RowsFunc
	limit      int
	page       []muster.Task
}

func (p *pager) remaining() int { return p.limit - len(p.page) }

func (p *pager) matches(s muster.TaskState) bool {
	return len(p.states) == 0 || slices.Contains(p.states, s)
}

// addGroup adds the matching tasks of a group in span.
func (p *pager) addGroup(g *muster.Group, span Span) error {
	span.First = max(span.First, g.First)
	span.Last = min(span.Last, g.First+g.Size-1)
	if !p.mayMatch(g) {
		return nil
	}
	if p.storedOnly || !p.matches(g.UnmaterializedState) {
		return p.addRows(span)
	}
	unmaterialized := g.First + g.Materialized
	if err := p.addRows(Span{span.First, min(span.Last, unmaterialized-1)}); err != nil {
		return err
	}
	return p.addMixed(g, Span{max(span.First, unmaterialized), span.Last})
}

// mayMatch returns false for a group without tasks in the wanted states.
func (p *pager) mayMatch(g *muster.Group) bool {
	if len(p.states) == 0 {
		return true
	}
	return slices.ContainsFunc(p.states, func(s muster.TaskState) bool {
		return int(s) < len(g.Counts) && g.Counts[s] > 0
	})
}

func (p *pager) addRows(span Span) error {
	if p.remaining() == 0 || span.First > span.Last {
		return nil
	}
	got, err := p.rows(p.ctx, span, p.states, p.remaining())
	p.page = append(p.page, got...)
	return err
}

// addMixed adds the tasks of a span in which every task without a row is synthesized. It reads
// rows of all states, because a task with a row is not synthesized.
func (p *pager) addMixed(g *muster.Group, span Span) error {
	for next := span.First; next <= span.Last && p.remaining() > 0; {
		want := p.remaining()
		got, err := p.rows(p.ctx, Span{next, span.Last}, nil, want)
		if err != nil {
			return err
		}
		for i := range got {
			p.addSynthesized(g, next, got[i].ID.Num-1)
			next = got[i].ID.Num + 1
			if p.remaining() > 0 && p.matches(got[i].State) {
				p.page = append(p.page, got[i])
			}
		}
		if len(got) < want { // no rows after these
			p.addSynthesized(g, next, span.Last)
			return nil
		}
	}
	return nil
}

// addSynthesized synthesizes the tasks first to last, up to the limit.
func (p *pager) addSynthesized(g *muster.Group, first, last int) {
	for num := first; num <= last && p.remaining() > 0; num++ {
		p.page = append(p.page, SynthesizeTask(p.job, g, num))
	}
}

// SynthesizeTask returns a task that has no row, from its group. job has its Spec.
func SynthesizeTask(job *muster.Job, g *muster.Group, num int) muster.Task {
	t := muster.Task{
		ID:          muster.TaskID{Job: job.ID, Num: num},
		Job:         job.ID,
		Index:       num,
		Group:       g.Index,
		Name:        g.Name,
		State:       g.UnmaterializedState,
		Reason:      g.Reason,
		Message:     g.Message,
		CreatedAt:   job.CreatedAt,
		Synthesized: true,
	}
	if job.Spec != nil && g.Index < len(job.Spec.Tasks) {
		spec := &job.Spec.Tasks[g.Index]
		t.Kind = spec.Kind
		t.Element = spec.Element(num - g.First)
	}
	switch {
	case g.UnmaterializedState.Final():
		t.FinishedAt = g.UnmaterializedSince
	case g.UnmaterializedState == muster.Queued:
		t.QueuedAt = g.UnmaterializedSince
	}
	return t
}

// mergeSpans sorts spans and joins those that overlap or follow each other, so that each task is listed
// once. No spans mean all numbers.
func mergeSpans(spans []Span) []Span {
	if len(spans) == 0 {
		return []Span{{0, muster.MaxTasks}}
	}
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b Span) int { return a.First - b.First })
	merged := spans[:0]
	for _, s := range spans {
		switch n := len(merged) - 1; {
		case s.First > s.Last:
		case n >= 0 && s.First <= merged[n].Last+1:
			merged[n].Last = max(merged[n].Last, s.Last)
		default:
			merged = append(merged, s)
		}
	}
	return merged
}

func checkLimit(limit int) error {
	if limit < 1 {
		return muster.Errorf(muster.Invalid, "the page size %d is too small: ask for 1 or more", limit)
	}
	return nil
}

// parseCursor parses a cursor: the number of the first row of the next page.
func parseCursor(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, muster.Errorf(muster.Invalid, "%q is not a cursor: use the cursor of the previous page", s)
	}
	return n, nil
}

// UpperBound checks the query and returns the number below which all its jobs are.
func (q *JobQuery) UpperBound() (muster.JobID, error) {
	n, err := q.LowerBound()
	if q.Cursor == "" {
		n = math.MaxInt64
	}
	return n, err
}

// LowerBound checks the query and returns the number above which all its jobs are, with OldestFirst.
func (q *JobQuery) LowerBound() (muster.JobID, error) {
	if err := checkLimit(q.Limit); err != nil {
		return 0, err
	}
	n, err := parseCursor(q.Cursor)
	return muster.JobID(n), err
}

// TrimPage returns the page and its cursor. An adapter reads one job more than Limit,
// to know whether there is a next page.
func (q *JobQuery) TrimPage(jobs []muster.Job) ([]muster.Job, string) {
	if len(jobs) <= q.Limit {
		return jobs, ""
	}
	jobs = jobs[:q.Limit]
	return jobs, jobs[len(jobs)-1].ID.String()
}
