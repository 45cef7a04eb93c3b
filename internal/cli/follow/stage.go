package follow

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

// stages are those of one job that has several; else there are none, and tasks go by their number.
type stages struct {
	all []muster.Group

	mu        sync.Mutex
	remaining map[int]int  // tasks of a stage that were not shown to their end
	reported  map[int]bool // stages of which it was told how they ended
}

// loadStages returns the stages of the only job that is selected, if all of it is.
func loadStages(ctx context.Context, server *client.Client, sels []remote.Selector) (*stages, error) {
	s := &stages{remaining: map[int]int{}, reported: map[int]bool{}}
	if len(sels) != 1 || sels[0].Spans != nil {
		return s, nil
	}
	job, err := server.Job(ctx, sels[0].Job)
	if err != nil || len(job.Groups) < 2 {
		return s, err
	}
	s.all = job.Groups
	for i := range s.all {
		s.remaining[s.all[i].Index] = s.all[i].Size
	}
	return s, nil
}

// stageOf returns the stage of a task, nil if it goes by its number.
func stageOf(all []muster.Group, id muster.TaskID) *muster.Group {
	if len(all) < 2 {
		return nil
	}
	for i := range all {
		if g := &all[i]; g.First <= id.Num && id.Num < g.First+g.Size {
			return g
		}
	}
	return nil
}

// label names a task where its lines begin: train, train.3 or 17.2.
func (s *stages) label(t *muster.Task) string {
	g := stageOf(s.all, t.ID)
	switch {
	case g == nil:
		return t.ID.String()
	case t.Element != "":
		return term.Sanitize(g.Name + "." + t.Element)
	case g.Size > 1:
		return term.Sanitize(g.Name) + "." + strconv.Itoa(t.ID.Num-g.First)
	default:
		return term.Sanitize(g.Name)
	}
}

// taskLabel names a task in a sentence: 17.2, or 17.2 (train) if its job has several stages.
func taskLabel(job *muster.Job, id muster.TaskID) string {
	if g := stageOf(job.Groups, id); g != nil {
		return fmt.Sprintf("%s (%s)", id, term.Sanitize(g.Name))
	}
	return id.String()
}

// taskEnded counts a task that was shown to its end. With the last one of its stage it tells how all of them ended: else nothing would
// be seen of tasks that print nothing. What it tells of a stage waits for those before it that have ended, too.
func (s *stages) taskEnded(ctx context.Context, server *client.Client, id muster.TaskID, report func(line string)) error {
	g := stageOf(s.all, id)
	if g == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remaining[g.Index]--; s.remaining[g.Index] > 0 {
		return nil
	}
	job, err := server.Job(ctx, id.Job)
	if err != nil {
		return err
	}
	for i := range job.Groups {
		g := &job.Groups[i]
		switch {
		case s.reported[g.Index] || !g.Counts.State().Final():
		case s.remaining[g.Index] > 0:
			return nil // its own last task comes back here
		default:
			s.reported[g.Index] = true
			report(stageOutcome(g))
		}
	}
	return nil
}

// stageOutcome says how a stage ended.
func stageOutcome(g *muster.Group) string {
	counts := strings.ReplaceAll(app.FormatCounts(g.Counts, false), "_", " ")
	if g.Size == 1 {
		counts = strings.TrimPrefix(counts, "1 ")
	}
	return fmt.Sprintf("muster: stage %s: %s\n", term.Sanitize(g.Name), counts)
}
