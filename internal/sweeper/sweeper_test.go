package sweeper_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/retention"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/sweeper"
)

// fixture is a server's stores without clients, in virtual time.
type fixture struct {
	*world
	*testing.T

	log bytes.Buffer
	cfg func(*sweeper.Config)
}

// inBubble runs a test with an open world.
func inBubble(t *testing.T, run func(f *fixture)) {
	t.Helper()
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(20 * 365 * 24 * time.Hour) // far from the time zero of rows
		w := &world{t: t, dir: dir, rnd: rand.New(rand.NewPCG(1, 1)), jobs: map[muster.JobID]*model{}, removed: map[muster.JobID]bool{}, quiet: true, server: retention.DefaultServerPolicy()}
		w.start(-1)
		f := &fixture{world: w, T: t}
		run(f)
		f.cancel(context.Canceled)
		w.close()
		if w.fatal != nil {
			t.Error(w.fatal)
		}
	})
}

// restart closes and opens the stores.
func (f *fixture) restart() {
	f.Helper()
	f.cancel(context.Canceled)
	f.close()
	f.start(-1)
}

func (f *fixture) sweeper() *sweeper.Sweeper {
	cfg := sweeper.Config{
		Store: faultyStore{f.store, f.world, f.process}, Engine: &modelEngine{f.world, f.process}, Logs: faultyLogs{f.logs, f.world, f.process},
		Blobs: faultyBlobs{f.blobs, f.world, f.process}, Options: f.policy, Server: f.server, Log: slog.New(slog.NewTextHandler(&f.log, nil)),
	}
	if f.cfg != nil {
		f.cfg(&cfg)
	}
	return sweeper.New(cfg)
}

// live runs the sweeper for a time.
func (f *fixture) live(d time.Duration) {
	ctx, cancel := context.WithTimeout(f.ctx, d)
	defer cancel()
	_ = f.sweeper().Run(ctx) // it returns nil
}

// during runs fn while the sweeper runs.
func (f *fixture) during(fn func(s *sweeper.Sweeper)) {
	ctx, cancel := context.WithCancel(f.ctx)
	s := f.sweeper()
	var group sync.WaitGroup
	group.Go(func() { _ = s.Run(ctx) })
	defer group.Wait() // also after Fatal
	defer cancel()
	fn(s)
}

// ended stores an ended job of a project.
func (f *fixture) ended(project string, age time.Duration) muster.JobID {
	f.Helper()
	f.next++
	at := muster.NewTime(time.Now().Add(-age))
	m := &model{id: f.next, worker: "w0", assigned: at}
	job, group := jobRows(m.id, strings.Repeat("0", 64), at)
	job.Project = project
	group.Materialized = 1
	task := taskRow(&job, &group, m, muster.Succeeded, at)
	job.Usage.LogBytes = muster.LogOverhead
	if err := f.store.Commit(f.ctx, newJob(&job, &group, &task)); err != nil {
		f.Fatal(err)
	}
	if _, err := f.logs.Append(f.ctx, muster.AttemptID{Task: muster.TaskID{Job: m.id}, N: 1}, 0, []byte("hello\n")); err != nil {
		f.Fatal(err)
	}
	return m.id
}

// wantJobs checks which jobs exist.
func (f *fixture) wantJobs(want ...muster.JobID) {
	f.Helper()
	var got []muster.JobID
	for id := range f.next + 1 {
		if _, err := f.store.Job(f.ctx, id); err == nil {
			got = append(got, id)
		}
	}
	if !slices.Equal(got, want) {
		f.Fatalf("the jobs %v exist, want %v", got, want)
	}
}

// used makes the database one that needs no time before the defaults apply.
func (f *fixture) used() {
	f.Helper()
	if start, _, err := f.store.RetentionStart(f.ctx); err != nil || start != 0 {
		f.Fatalf("the defaults of a new database apply from %s on: %v", start, err)
	}
}

const aDay = 24 * time.Hour

func TestDefaultsAndOverrides(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.used()
		f.ended("default", 31*aDay)
		young := f.ended("default", 29*aDay)
		long := f.ended("long", 89*aDay)
		f.ended("long", 91*aDay)
		forever := f.ended("archive", 5000*aDay)
		s := f.sweeper()
		for project, jobs := range map[string]string{"long": "90d", "archive": "forever"} {
			if err := s.SetPolicy(f.ctx, project, &wire.RetentionPolicy{Jobs: jobs}); err != nil {
				f.Fatal(err)
			}
		}
		f.live(30 * time.Minute)
		f.wantJobs(young, long, forever)
		if err := s.SetPolicy(f.ctx, "archive", nil); err != nil {
			f.Fatal(err)
		}
		f.live(30 * time.Minute)
		f.wantJobs(young, long)
		for _, bad := range []wire.RetentionPolicy{{}, {Jobs: "soon"}} {
			if err := s.SetPolicy(f.ctx, "x", &bad); muster.CodeOf(err) != muster.Invalid {
				f.Errorf("the policy %+v: %v", bad, err)
			}
		}
	})
}

func TestNumbersAndSizes(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.policy = retention.Policy{Jobs: &retention.Limit{Number: 3}, Logs: &retention.Limit{Bytes: 2 * (muster.LogOverhead + store.JobLogOverhead)}}
		var ids []muster.JobID
		for i := range 6 {
			ids = append(ids, f.ended("default", time.Duration(10-i)*time.Hour))
		}
		if err := f.sweeper().Keep(f.ctx, ids[0], true); err != nil {
			f.Fatal(err)
		}
		f.live(30 * time.Minute)
		f.wantJobs(ids[0], ids[3], ids[4], ids[5]) // a kept job does not count
		for _, id := range []muster.JobID{ids[0], ids[3], ids[4], ids[5]} {
			j, err := f.store.Job(f.ctx, id)
			if err != nil {
				f.Fatal(err)
			}
			if expired := j.LogsRemovedAt != 0; expired != (id == ids[3]) {
				f.Errorf("the logs of job %s are deleted: %t", id, expired)
			}
		}
	})
}

func TestLiveAndKeptJobsStay(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.policy = retention.Policy{Jobs: &retention.Limit{Age: muster.Duration(time.Hour)}}
		kept := f.ended("default", aDay)
		s := f.sweeper()
		if err := s.Keep(f.ctx, kept, true); err != nil {
			f.Fatal(err)
		}
		f.during(func(s *sweeper.Sweeper) {
			if err := f.submit(f.process, "w0", f.files(), longCall); err != nil {
				f.Fatal(err)
			}
			time.Sleep(60 * aDay)
			f.wantJobs(kept, kept+1)
			for id, want := range map[muster.JobID]string{kept: "is kept: muster unkeep 1 allows its removal", kept + 1: "is running: cancel it first, or use muster rm --force", 99: "there is no job 99"} {
				if err := s.Remove(f.ctx, id); err == nil || !strings.Contains(err.Error(), want) {
					f.Errorf("Remove %s: %v, want %s", id, err, want)
				}
			}
			if err := s.Keep(f.ctx, kept, false); err != nil {
				f.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
			f.wantJobs(kept + 1)
		})
	})
}

// A database of an older version keeps what the built-in defaults would delete for a week. What the administrator chose applies at once.
func TestDefaultsOfAnUpgradeWait(t *testing.T) {
	inBubble(t, func(f *fixture) {
		old := f.ended("default", 40*aDay)
		upgraded := upgradedStore{Sweepable: faultyStore{f.store, f.world, f.process}, start: muster.NewTime(time.Now()).Add(7 * day)}
		f.cfg = func(c *sweeper.Config) { c.Store = upgraded }
		f.live(6 * aDay)
		f.wantJobs(old)
		if !strings.Contains(f.log.String(), "older than 30 days will be deleted: set --keep-jobs") {
			f.Errorf("no warning: %s", &f.log)
		}
		status, err := f.sweeper().Status(f.ctx, "")
		if err != nil || status.StartsAt != upgraded.start {
			f.Fatalf("%+v, %v", status, err)
		}
		chosen := f.ended("default", 3*aDay)
		f.policy = retention.Policy{Logs: &retention.Limit{Age: day}}
		f.live(time.Hour)
		if j, err := f.store.Job(f.ctx, chosen); err != nil || j.LogsRemovedAt == 0 {
			f.Errorf("the logs were not deleted: %v", err)
		}
		f.live(2 * aDay)
		f.wantJobs(chosen)
	})
}

// Sweepable is a store.
type Sweepable = sweeper.Store

// upgradedStore is a store whose defaults apply later.
type upgradedStore struct {
	Sweepable

	start muster.Time
}

func (s upgradedStore) RetentionStart(ctx context.Context) (muster.Time, muster.Time, error) {
	_, last, err := s.Sweepable.RetentionStart(ctx)
	return s.start, last, err
}

// After a long pause, or a start with a wrong clock, deleting by age waits for a day.
func TestLongPauseOfTheServer(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.live(time.Hour)
		id := f.ended("default", aDay)
		f.cancel(context.Canceled)
		f.close()
		time.Sleep(40 * aDay)
		f.start(-1)
		f.live(20 * time.Hour)
		f.wantJobs(id)
		if !strings.Contains(f.log.String(), "deleting by age is delayed; check the clock") {
			f.Errorf("no warning: %s", &f.log)
		}
		f.restart() // does not begin the day again
		f.live(3 * time.Hour)
		f.wantJobs(id)
		f.live(2 * time.Hour)
		f.wantJobs()
	})
}

// The clock of the machine was ahead, and is right again: the server was not off for long.
func TestClockWasAhead(t *testing.T) {
	inBubble(t, func(f *fixture) {
		if err := f.store.SetLastPass(f.ctx, muster.NewTime(time.Now().Add(365*aDay))); err != nil {
			f.Fatal(err)
		}
		f.ended("default", 40*aDay)
		f.live(time.Hour)
		f.wantJobs()
	})
}

func TestPrune(t *testing.T) {
	inBubble(t, func(f *fixture) {
		var deleted sweeper.Deleted
		f.cfg = func(c *sweeper.Config) {
			c.Observe = func(d sweeper.Deleted) {
				deleted.Jobs += d.Jobs
				deleted.LogBytes += d.LogBytes
				deleted.BlobBytes += d.BlobBytes
			}
		}
		old := f.ended("default", 10*aDay)
		young := f.ended("default", aDay)
		other := f.ended("speech", 10*aDay)
		data := []byte("an unused file")
		if err := f.put(f.process, store.ProjectGrantee("default"), data, longCall); err != nil {
			f.Fatal(err)
		}
		time.Sleep(2 * aDay)
		f.during(func(s *sweeper.Sweeper) {
			req := wire.PruneRequest{Project: "default", Keep: wire.RetentionPolicy{Jobs: "7d"}, DryRun: true}
			plan, err := s.Prune(f.ctx, req)
			want := wire.Prune{
				Jobs: wire.PruneCount{Number: 1, Tasks: 1, Bytes: muster.LogOverhead + store.JobLogOverhead}, Uploads: wire.PruneCount{Number: 1, Bytes: muster.Size(len(data))},
				Examples: []muster.JobID{old},
			}
			plan.Jobs.OldestAt, plan.Uploads.OldestAt = 0, 0
			if got, wanted := mustJSON(f.T, plan), mustJSON(f.T, want); err != nil || got != wanted {
				f.Fatalf("the plan is %s, %v, want %s", got, err, wanted)
			}
			time.Sleep(30 * time.Minute)
			f.wantJobs(old, young, other)
			req.DryRun = false
			if _, err := s.Prune(f.ctx, req); err != nil {
				f.Fatal(err)
			}
			time.Sleep(30 * time.Minute)
			f.wantJobs(young, other)
			if _, err := f.blobs.Stat(f.ctx, hashOf(data)); muster.CodeOf(err) != muster.NotFound {
				f.Errorf("the unused file: %v", err)
			}
			if deleted.Jobs != 1 || deleted.LogBytes < muster.Size(len("hello\n")) || deleted.BlobBytes != muster.Size(len(data)) {
				f.Errorf("it reports %+v", deleted)
			}
			if _, err := s.Prune(f.ctx, wire.PruneRequest{Keep: wire.RetentionPolicy{Logs: "7x"}}); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "logs: ") {
				f.Errorf("a bad limit: %v", err)
			}
		})
	})
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// While deletions are held, jobs disappear and their files stay.
func TestHold(t *testing.T) {
	inBubble(t, func(f *fixture) {
		id := f.ended("default", aDay)
		f.during(func(s *sweeper.Sweeper) {
			time.Sleep(10 * time.Minute)
			release, err := s.Hold(f.ctx)
			if err != nil {
				f.Fatal(err)
			}
			if err := s.Remove(f.ctx, id); err != nil {
				f.Fatal(err)
			}
			time.Sleep(5 * time.Hour)
			f.wantJobs()
			if dirs, err := f.logs.Jobs(0, 10); err != nil || len(dirs) != 1 {
				f.Errorf("directories while deletions are held: %v, %v", dirs, err)
			}
			release()
			release() // again
			time.Sleep(10 * time.Minute)
			if dirs, err := f.logs.Jobs(0, 10); err != nil || len(dirs) != 0 {
				f.Errorf("directories afterwards: %v, %v", dirs, err)
			}
			if waiting, _, err := f.store.RemovedJobs(f.ctx, 0, 10); err != nil || len(waiting) > 0 {
				f.Errorf("waiting: %v, %v", waiting, err)
			}
		})
	})
}

// The oldest unused files go if there are too many, but none of the last hour.
func TestUploadsByNumber(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.server.Uploads = retention.Limit{Number: 2}
		var sums []string
		for _, text := range []string{"a", "b", "c", "d"} {
			if err := f.put(f.process, "p:", []byte(text), longCall); err != nil {
				f.Fatal(err)
			}
			sums = append(sums, hashOf([]byte(text)))
			time.Sleep(time.Hour)
		}
		f.live(2 * time.Hour)
		for i, sum := range sums {
			if _, err := f.blobs.Stat(f.ctx, sum); (err == nil) != (i >= 2) {
				f.Errorf("file %d: %v", i, err)
			}
		}
	})
}

// The folder and the standard input of a schedule are used as long as it exists.
func TestFilesOfSchedulesAreKept(t *testing.T) {
	inBubble(t, func(f *fixture) {
		file, stdin := []byte("a file"), []byte("standard input")
		tree := treeOf([][]byte{file})
		blobs := [][]byte{file, stdin, tree}
		for _, b := range blobs {
			if err := f.put(f.process, "p:", b, longCall); err != nil {
				f.Fatal(err)
			}
		}
		if _, err := f.store.PutSchedule(f.ctx, store.Schedule{
			Project: "default", Name: "nightly", Cron: "@daily", Missed: "skip", Overlap: "allow", Owner: "k", CreatedAt: 1, UpdatedAt: 1, Next: 1,
			Spec: &muster.Spec{Tasks: []muster.TaskSpec{{Kind: muster.KindNoop, Files: "sha256:" + hashOf(tree), Stdin: "sha256:" + hashOf(stdin)}}},
		}, false); err != nil {
			f.Fatal(err)
		}
		check := func(exist bool) {
			for _, b := range blobs {
				if _, err := f.blobs.Stat(f.ctx, hashOf(b)); (err == nil) != exist {
					f.Errorf("%s exists: %t, want %t", b, err == nil, exist)
				}
			}
		}
		f.live(60 * aDay)
		check(true)
		if err := f.store.DeleteSchedule(f.ctx, "default", "nightly"); err != nil {
			f.Fatal(err)
		}
		f.live(60 * aDay)
		check(false)
	})
}

// Output that arrives after its job was removed is deleted later.
func TestOrphanLogsAreDeleted(t *testing.T) {
	inBubble(t, func(f *fixture) {
		id := f.ended("default", aDay)
		f.during(func(s *sweeper.Sweeper) {
			if err := s.Remove(f.ctx, id); err != nil {
				f.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			if _, err := f.logs.Append(f.ctx, muster.AttemptID{Task: muster.TaskID{Job: id}, N: 1}, 0, []byte("late\n")); err != nil {
				f.Fatal(err)
			}
			time.Sleep(35 * aDay)
		})
		// The times of directories are those of the system, which are after the bubble's.
		if dirs, err := f.logs.Jobs(0, 10); err != nil || len(dirs) > 1 {
			f.Errorf("directories: %v, %v", dirs, err)
		}
	})
}

// The files of a cached result stay until it expires or is cleared, though no job refers to them. Expired results are deleted.
func TestFilesOfCachedResultsStay(t *testing.T) {
	inBubble(t, func(f *fixture) {
		model, cleared := []byte("a model"), []byte("a cleared model")
		var entries []muster.CacheEntry
		for i, b := range [][]byte{model, cleared} {
			if err := f.put(f.process, "p:", b, longCall); err != nil {
				f.Fatal(err)
			}
			now := muster.NewTime(time.Now())
			entries = append(entries, muster.CacheEntry{
				Project: "default", Key: hashOf([]byte{byte(i)}), Kind: "noop", Name: "train", Origin: muster.TaskID{Job: 900}, CreatedAt: now, ExpiresAt: now.Add(muster.Duration(90 * aDay)),
				Artifacts: []muster.Artifact{{Name: "m.pt", Size: int64(len(b)), SHA256: hashOf(b)}},
			})
		}
		if err := f.store.Commit(f.ctx, &store.Batch{Rows: muster.Rows{CacheEntries: entries}}); err != nil {
			f.Fatal(err)
		}
		check := func(b []byte, exist bool) {
			f.Helper()
			if _, err := f.blobs.Stat(f.ctx, hashOf(b)); (err == nil) != exist {
				f.Errorf("%s exists: %t, want %t", b, err == nil, exist)
			}
		}
		f.live(60 * aDay)
		check(model, true)
		check(cleared, true)
		if n, err := f.store.DeleteCacheEntries(f.ctx, store.CacheSelection{Project: "default", Key: entries[1].Key}); err != nil || n != 1 {
			f.Fatalf("%d were cleared: %v", n, err)
		}
		f.live(20 * aDay)
		check(model, true)
		check(cleared, false)
		f.live(20 * aDay)
		check(model, false)
		if _, found, err := f.store.CacheEntry(f.ctx, "default", entries[0].Key); err != nil || found {
			f.Errorf("the expired result is there: %t, %v", found, err)
		}
	})
}
