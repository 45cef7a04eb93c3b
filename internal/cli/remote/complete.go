package remote

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/client"
)

// The number of candidates of a completion, and of jobs whose projects are known.
const (
	completedJobs    = 50
	completedTasks   = 100
	jobsWithProjects = 200
)

// Complete returns the Completer that asks the server of the options. It tries once, and reads no token from standard input.
func (r *ServerOptions) Complete(list func(ctx context.Context, server *client.Client, prefix string, args []string) ([]app.Candidate, error)) app.Completer {
	return func(ctx context.Context, prefix string, args []string) ([]app.Candidate, error) {
		if r.Token.FromInput() {
			return nil, nil
		}
		target, _, err := r.resolve()
		if err != nil {
			return nil, err
		}
		server, err := client.New(target.URL, target.Token, target.Options(client.Options{RetryTimeout: time.Nanosecond}))
		if err != nil {
			return nil, err
		}
		return list(ctx, server, prefix, args)
	}
}

// CompleteSelectors returns the Completer of jobs and tasks: the newest jobs, and behind a dot the stages and tasks of a job.
func (r *ServerOptions) CompleteSelectors() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, prefix string, _ []string) ([]app.Candidate, error) {
		if job, task, ok := strings.Cut(prefix, "."); ok {
			return completeTasks(ctx, server, job, task)
		}
		return completeJobs(ctx, server)
	})
}

// CompleteJobs returns the Completer of the newest jobs.
func (r *ServerOptions) CompleteJobs() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		return completeJobs(ctx, server)
	})
}

func completeJobs(ctx context.Context, server *client.Client) ([]app.Candidate, error) {
	jobs, err := Collect(server.Jobs(ctx, client.JobQuery{Page: completedJobs}), completedJobs)
	var all []app.Candidate
	for _, j := range jobs {
		all = append(all, app.Candidate{Value: j.ID.String(), Usage: j.Name + ", " + string(j.State)})
	}
	if len(all) > 0 {
		all = append(all, app.Candidate{Value: "last", Usage: "the newest job"})
	}
	return all, err
}

// completeTasks returns the stages of a job, and those of its tasks whose number begins with prefix.
func completeTasks(ctx context.Context, server *client.Client, number, prefix string) ([]app.Candidate, error) {
	sel, err := ParseSelector(number)
	if err != nil || sel.Elements != "" {
		return nil, err
	}
	if sel.Job == 0 {
		if sel.Job, err = LastJob(ctx, server); err != nil {
			return nil, err
		}
	}
	job, err := server.Job(ctx, sel.Job)
	if err != nil {
		return nil, err
	}
	var all []app.Candidate
	if len(job.Groups) > 1 {
		for _, g := range job.Groups {
			all = append(all, app.Candidate{Value: number + "." + g.Name, Usage: "stage, " + g.State})
		}
	}
	spans, ok := numbersWith(prefix, job.Counts.Total())
	if !ok {
		return all, nil
	}
	tasks, err := Collect(server.Tasks(ctx, sel.Job, client.TaskQuery{Spans: spans, Page: completedTasks}), completedTasks)
	for _, t := range tasks {
		all = append(all, app.Candidate{Value: number + "." + strconv.Itoa(t.ID.Num), Usage: t.State.String()})
	}
	return all, err
}

// numbersWith returns the numbers below n that begin with the digits of prefix: nil means all, false that there are none.
func numbersWith(prefix string, n int64) ([]client.Span, bool) {
	if prefix == "" {
		return nil, n > 0
	}
	first, err := strconv.Atoi(prefix)
	if err != nil || strconv.Itoa(first) != prefix { // 00, +1
		return nil, false
	}
	var spans []client.Span
	for width := 1; int64(first) < n; first, width = first*10, width*10 {
		spans = append(spans, client.Span{First: first, Last: first + width - 1})
		if first == 0 {
			break
		}
	}
	return spans, len(spans) > 0
}

// CompleteRunning returns the Completer of running tasks, followed by suffix.
func (r *ServerOptions) CompleteRunning(suffix string) app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		tasks, err := Collect(server.AllTasks(ctx, []muster.TaskState{muster.Running}, completedTasks), completedTasks)
		var all []app.Candidate
		for _, t := range tasks {
			all = append(all, app.Candidate{Value: t.ID.String() + suffix, Usage: t.Name})
		}
		return all, err
	})
}

// CompleteWorkers returns the Completer of workers: by name if that is unique, else by id.
func (r *ServerOptions) CompleteWorkers() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		workers, err := server.Workers(ctx)
		same := map[string]int{}
		for _, w := range workers {
			same[w.Name]++
		}
		var all []app.Candidate
		for _, w := range workers {
			c := app.Candidate{Value: w.Name, Usage: string(w.State)}
			if same[w.Name] > 1 {
				c = app.Candidate{Value: string(w.ID), Usage: w.Name + ", " + string(w.State)}
			}
			all = append(all, c)
		}
		return all, err
	})
}

// CompleteTags returns the Completer of the tags of workers.
func (r *ServerOptions) CompleteTags() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		workers, err := server.Workers(ctx)
		var tags []string
		for _, w := range workers {
			tags = append(tags, w.Tags...)
		}
		slices.Sort(tags)
		return candidates(slices.Compact(tags)), err
	})
}

// CompleteKinds returns the Completer of kinds.
func (r *ServerOptions) CompleteKinds() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		kinds, err := server.Kinds(ctx)
		var all []app.Candidate
		for _, k := range kinds {
			all = append(all, app.Candidate{Value: k.Name, Usage: k.About})
		}
		return all, err
	})
}

// CompleteProjects returns the Completer of projects: that of the key, or those of the newest jobs.
func (r *ServerOptions) CompleteProjects() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		me, err := server.Whoami(ctx)
		if err != nil {
			return nil, err
		}
		if me.Project != "" {
			return candidates([]string{me.Project}), nil
		}
		jobs, err := Collect(server.Jobs(ctx, client.JobQuery{Page: jobsWithProjects}), jobsWithProjects)
		projects := []string{muster.DefaultProject}
		for _, j := range jobs {
			projects = append(projects, j.Project)
		}
		slices.Sort(projects)
		return candidates(slices.Compact(projects)), err
	})
}

// CompleteKeys returns the Completer of API keys by id.
func (r *ServerOptions) CompleteKeys() app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		keys, err := server.Keys(ctx)
		var all []app.Candidate
		for _, k := range keys {
			all = append(all, app.Candidate{Value: k.ID, Usage: k.Name + ", " + k.Role})
		}
		return all, err
	})
}

// CompleteContexts completes the names of saved servers.
func CompleteContexts(context.Context, string, []string) ([]app.Candidate, error) {
	saved, err := LoadContext()
	var all []app.Candidate
	for _, s := range saved.Servers {
		all = append(all, app.Candidate{Value: cmp.Or(s.Name, s.URL), Usage: s.URL})
	}
	return all, err
}

func candidates(values []string) []app.Candidate {
	all := make([]app.Candidate, len(values))
	for i, v := range values {
		all[i].Value = v
	}
	return all
}

// CompleteSchedules returns the Completer of the names of a project's schedules.
func (r *ServerOptions) CompleteSchedules(project *string) app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		list, err := server.Schedules(ctx, cmp.Or(*project, muster.DefaultProject))
		all := make([]app.Candidate, len(list))
		for i := range list {
			all[i] = app.Candidate{Value: list[i].Name, Usage: list[i].Cron + ", " + list[i].Timezone}
		}
		return all, err
	})
}

// CompleteCache returns the Completer of the keys of results in the cache of a project.
func (r *ServerOptions) CompleteCache(project *string) app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		list, err := server.Cache(ctx, cmp.Or(*project, muster.DefaultProject), 1000)
		all := make([]app.Candidate, len(list))
		for i := range list {
			all[i] = app.Candidate{Value: list[i].Key, Usage: list[i].Stage + ", task " + list[i].Origin.String()}
		}
		return all, err
	})
}

// CompleteSecrets returns the Completer of the names of a project's secrets.
func (r *ServerOptions) CompleteSecrets(project *string) app.Completer {
	return r.Complete(func(ctx context.Context, server *client.Client, _ string, _ []string) ([]app.Candidate, error) {
		list, err := server.Secrets(ctx, cmp.Or(*project, muster.DefaultProject))
		names := make([]string, len(list))
		for i := range list {
			names[i] = list[i].Name
		}
		all, _ := app.Values(names...)(ctx, "", nil)
		return all, err
	})
}
