package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/redact"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/flow"
)

const (
	// eventAttempts is how many attempts the events of a task tell of, and eventCheckpoints how many checkpoints of one of them.
	eventAttempts    = 200
	eventCheckpoints = 20
)

func (s *server) taskViewRoutes() {
	handle(s, route{id: "get-task-spec", method: http.MethodGet, path: prefixed("/tasks/{task}/spec"), tag: "tasks", verb: auth.ReadJobs,
		summary: "Show what a task runs: its spec with the values of its element"}, s.taskSpec)
	handle(s, route{id: "list-task-events", method: http.MethodGet, path: prefixed("/tasks/{task}/events"), tag: "tasks", verb: auth.ReadJobs,
		summary: "List the steps in the life of a task"}, s.taskEvents)
}

func (s *server) taskSpec(ctx context.Context, in *TaskPath) (*body[wire.ElementSpec], error) {
	task, err := s.readTask(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Job(ctx, task.Job)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(job.Groups, func(g muster.Group) bool { return g.Index == task.Group })
	if job.Spec == nil || i < 0 || task.Group >= len(job.Spec.Tasks) {
		return nil, muster.Errorf(muster.NotFound, "the spec of task %s is not kept", task.ID)
	}
	group := &job.Groups[i]
	spec := group.Resolved
	if spec == nil {
		spec = &job.Spec.Tasks[task.Group]
	}
	shown := wire.ElementSpec{Task: task.ID, Image: task.Image, Resolved: group.Resolved != nil || len(spec.Needs) == 0}
	shown.Spec = *flow.Bind(spec, task.ID.Num-group.First)
	if principalOf(ctx).Job != 0 {
		shown.Spec.Env = redact.Env(shown.Spec.Env)
	}
	return answer(shown), nil
}

func (s *server) taskEvents(ctx context.Context, in *TaskPath) (*body[wire.TaskEvents], error) {
	task, attempts, err := s.taskAttempts(ctx, in.Task)
	if err != nil {
		return nil, err
	}
	list := wire.EventsOf(&task, attempts[max(0, len(attempts)-eventAttempts):])
	if task.Checkpoint != "" {
		leave, err := s.charts.take(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		for i := max(0, len(attempts)-metricAttempts); i < len(attempts); i++ {
			m, err := s.readMetrics(ctx, &attempts[i], curveLimits{points: 10, bytes: metricBytes})
			if err != nil {
				return nil, err
			}
			for _, at := range m.Checkpoints[max(0, len(m.Checkpoints)-eventCheckpoints):] {
				list = append(list, wire.TaskEvent{At: at, Type: wire.EventCheckpoint, Attempt: m.Attempt, Worker: attempts[i].Worker})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b wire.TaskEvent) int { return cmp.Compare(a.At, b.At) })
	return answer(wire.TaskEvents{Events: full(list)}), nil
}
