//go:build linux

package chaos

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// awaitRecovery waits until the fleet has recovered from the last fault, and returns how long that took for each worker: until it has run a
// task.
func (c *cluster) awaitRecovery(ctx context.Context) error {
	start := time.Now()
	cl := c.client(30*time.Second, false)
	var all sync.WaitGroup
	failed := make([]error, len(c.workers))
	for i, p := range c.workers {
		all.Go(func() {
			p.start()
			failed[i] = await(ctx, 2*time.Minute, func() error {
				w, err := cl.Worker(ctx, p.name)
				if err == nil && w.State == muster.WorkerDraining {
					_, _ = cl.ResumeWorker(ctx, p.name)
				}
				if err == nil && (w.State != muster.WorkerActive || w.Constrained != "") {
					err = fmt.Errorf("worker %s is %s %s two minutes after all faults ended", p.name, w.State, w.Constrained)
				}
				return err
			})
			if failed[i] == nil {
				spec := &muster.Spec{Name: "canary", Project: "canary", Tasks: []muster.TaskSpec{{
					Kind: muster.KindProcess, Run: &muster.Command{Argv: []string{"true"}}, Where: muster.Where{Workers: []string{p.name}},
				}}}
				priority := muster.MaxPriority
				spec.Priority = &priority
				failed[i] = c.runJob(ctx, cl, spec)
				c.t.Logf("%s runs tasks %.1f s after the last fault", p.name, time.Since(start).Seconds())
			}
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// runJob submits a job that must succeed.
func (c *cluster) runJob(ctx context.Context, cl *client.Client, spec *muster.Spec) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	job, err := cl.Submit(ctx, spec, client.SubmitOptions{})
	if err == nil {
		job, err = cl.Wait(ctx, job.ID)
	}
	if err == nil && job.State != muster.JobSucceeded {
		err = fmt.Errorf("job %s ended as %s", job.ID, job.State)
	}
	if err != nil {
		return fmt.Errorf("a task for %v after all faults have ended: %w", spec.Tasks[0].Where.Workers, err)
	}
	return nil
}

// awaitJobs waits until no job is open, up to limit. The checker reports open ones.
func (c *cluster) awaitJobs(ctx context.Context, limit time.Duration) {
	cl := c.client(30*time.Second, false)
	_ = await(ctx, limit, func() error {
		open := client.JobQuery{States: []muster.JobState{muster.JobWaiting, muster.JobQueued, muster.JobRunning}, Page: 1}
		for job, err := range cl.Jobs(ctx, open) {
			if err != nil {
				return err
			}
			return fmt.Errorf("job %s is %s", job.ID, job.State)
		}
		return nil
	})
}

// readState reads all jobs with their tasks and attempts. What cannot be read is an error.
func (c *cluster) readState(ctx context.Context) ([]FinalJob, error) {
	cl := c.client(time.Minute, false)
	var list []FinalJob
	for job, err := range cl.Jobs(ctx, client.JobQuery{Page: 1000}) {
		if err != nil {
			return nil, fmt.Errorf("list jobs: %w", err)
		}
		if job.Project != "canary" {
			job.Spec = nil
			list = append(list, FinalJob{Job: job})
		}
	}
	return list, c.readTasks(ctx, list)
}

// readTasks reads the tasks and attempts of jobs.
func (c *cluster) readTasks(ctx context.Context, list []FinalJob) error {
	cl := c.client(time.Minute, false)
	return forEach(list, func(j *FinalJob) error {
		for task, err := range cl.Tasks(ctx, j.Job.ID, client.TaskQuery{Page: 1000}) {
			if err != nil {
				return fmt.Errorf("list the tasks of job %s: %w", j.Job.ID, err)
			}
			attempts, err := cl.Attempts(ctx, task.ID)
			if err != nil {
				return fmt.Errorf("list the attempts of task %s: %w", task.ID, err)
			}
			task.Usage, task.Grant = nil, nil
			for i := range attempts {
				attempts[i].Usage = nil
			}
			j.Tasks = append(j.Tasks, FinalTask{Task: task, Attempts: attempts})
		}
		return nil
	})
}

// forEach calls f for all of a list, a few at once.
func forEach[T any](list []T, f func(*T) error) error {
	var all sync.WaitGroup
	errs := make([]error, len(list))
	slots := make(chan struct{}, 4)
	for i := range list {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = f(&list[i])
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// readContents reads the logs of all attempts, and the artifacts of all tasks.
func (c *cluster) readContents(ctx context.Context, list []FinalJob) error {
	cl := c.client(time.Minute, false)
	return forEach(list, func(j *FinalJob) error {
		for i := range j.Tasks {
			t := &j.Tasks[i]
			t.Logs, t.Files = map[int]string{}, map[string]string{}
			for _, a := range t.Attempts {
				var out bytes.Buffer
				for l, err := range cl.Logs(ctx, t.Task.ID, client.LogOptions{Attempt: a.ID.N, Stream: client.Stdout}) {
					if err != nil {
						return fmt.Errorf("the log of attempt %s: %w", a.ID, err)
					}
					out.Write(l.Data)
				}
				t.Logs[a.ID.N] = out.String()
			}
			for _, a := range t.Task.Artifacts {
				sum := sha256.New()
				if err := cl.ReadArtifact(ctx, t.Task.ID, a, sum); err != nil {
					t.Files[a.Name] = err.Error() // the checker compares it with a hash
					continue
				}
				t.Files[a.Name] = hex.EncodeToString(sum.Sum(nil))
			}
		}
		return nil
	})
}

// readEffects reads all effect files.
func (c *cluster) readEffects() (map[string]string, error) {
	entries, err := os.ReadDir(c.effects)
	if err != nil {
		return nil, err
	}
	m := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(c.effects, e.Name()))
		if err != nil {
			return nil, err
		}
		m[e.Name()] = string(b)
	}
	return m, nil
}

// panics finds what a program writes when it breaks.
func (c *cluster) panics() []string {
	var found []string
	paths, _ := filepath.Glob(filepath.Join(c.dir, "logs", "*"))
	for _, path := range paths {
		b, _ := os.ReadFile(path)
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "WARNING: DATA RACE") || strings.Contains(line, "goroutine 1 [") {
				found = append(found, filepath.Base(path)+": "+strings.TrimSpace(line))
			}
		}
	}
	return found
}

// saveData copies the folders of a failed run from their small file systems, and prints their path.
func (c *cluster) saveData() string {
	to := filepath.Join(c.dir, "kept")
	for _, p := range append([]*process{c.server}, c.workers...) {
		_ = filepath.WalkDir(p.data, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // what is gone is gone
			}
			rel, err := filepath.Rel(c.dir, path)
			if err != nil {
				return nil //nolint:nilerr // it is below
			}
			b, err := os.ReadFile(path)
			if err == nil {
				err = os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o755)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, rel), b, 0o600)
			}
			if err != nil {
				c.t.Logf("%s is not kept: %v", path, err)
			}
			return nil
		})
	}
	return c.dir
}
