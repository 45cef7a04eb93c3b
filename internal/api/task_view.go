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
	"github.com/muster-dev/muster/internal/dag"
)

const (
	// maxEventAttempts is the maximum number of attempts in the events of a task, maxEventCheckpoints that of checkpoints per attempt.
	maxEventAttempts    = 200
	maxEventCheckpoints = 20
)

func (s *server) taskViewRoutes() {
	handle(s, route{id: "get-task-spec", method: http.MethodGet, path: apiPath("/tasks/{task}/spec"), tag: "tasks", verb: auth.ReadJobs,
		summary: "Show the spec of a task with the values of its element"}, s.taskSpec)
	handle(s, route{id: "list-task-events", method: http.MethodGet, path: apiPath("/tasks/{task}/events"), tag: "tasks", verb: auth.ReadJobs,
		summary: "List the events of a task's lifecycle"}, s.taskEvents)
}

func (s *server) taskSpec(ctx context.Context, in *TaskPath) (*response[wire.ElementSpec], error) {
	task, err := s.Store.Task(ctx, in.id)
	if err != nil {
		return nil, err
	}
	job, err := s.Store.Job(ctx, task.Job)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(job.Groups, func(g muster.Group) bool { return g.Index == task.Group })
	if job.Spec == nil || i < 0 || task.Group >= len(job.Spec.Tasks) {
		return nil, muster.Errorf(muster.NotFound, "the spec of task %s is not stored", task.ID)
	}
	group := &job.Groups[i]
	spec := group.Resolved
	if spec == nil {
		spec = &job.Spec.Tasks[task.Group]
	}
	resp := wire.ElementSpec{Task: task.ID, Image: task.Image, Resolved: group.Resolved != nil || len(spec.Needs) == 0}
	resp.Spec = *dag.Bind(spec, task.ID.Num-group.First)
	if principalOf(ctx).Job != 0 {
		resp.Spec.Env = redact.Env(resp.Spec.Env)
	}
	return respond(resp), nil
}

func (s *server) taskEvents(ctx context.Context, in *TaskPath) (*response[wire.TaskEvents], error) {
	task, attempts, err := s.taskAttempts(ctx, in.id)
	if err != nil {
		return nil, err
	}
	list := wire.TaskTimeline(&task, attempts[max(0, len(attempts)-maxEventAttempts):])
	if task.Checkpoint != "" {
		release, err := s.chartLimiter.acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		for i := max(0, len(attempts)-maxMetricAttempts); i < len(attempts); i++ {
			m, err := s.readMetrics(ctx, &attempts[i], curveLimits{points: 10, bytes: maxMetricBytes})
			if err != nil {
				return nil, err
			}
			for _, at := range m.Checkpoints[max(0, len(m.Checkpoints)-maxEventCheckpoints):] {
				list = append(list, wire.TaskEvent{At: at, Type: wire.EventCheckpoint, Attempt: m.Attempt, Worker: attempts[i].Worker})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b wire.TaskEvent) int { return cmp.Compare(a.At, b.At) })
	return respond(wire.TaskEvents{Events: nonNil(list)}), nil
}
