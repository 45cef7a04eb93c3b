package mlochost

import (
	"cmp"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
	"github.com/muster-dev/muster/internal/dialect/mloc"
)

// Bounds of what the gateway remembers of submissions.
const (
	maxTasks     = 20_000 // beyond it, submissions that have ended are forgotten, oldest first
	maxOpenTasks = 10_000 // tasks that have not ended
)

// task is what the gateway knows of one task that a client submitted. It is kept on disk.
type task struct {
	ID         string   `json:"id"`
	Submission string   `json:"submission"`
	Seq        uint64   `json:"seq"` // the order of submission
	Stage      string   `json:"stage,omitempty"`
	Name       string   `json:"name,omitempty"` // metadata.name
	Type       string   `json:"type"`
	Load       int      `json:"load,omitempty"`
	Needs      []string `json:"needs,omitempty"` // ids of tasks that must be done first

	State      string       `json:"state"`
	Job        muster.JobID `json:"job,omitempty"` // 0 until it was submitted
	Attempts   int          `json:"attempts,omitempty"`
	Attempt    int          `json:"attempt,omitempty"` // the attempt whose result a worker of MLOC delivered to this host
	Worker     string       `json:"worker,omitempty"`
	LastFailed string       `json:"last_failed,omitempty"`
	Error      string       `json:"error,omitempty"`
	Queued     time.Time    `json:"queued,omitzero"`
	Submitted  time.Time    `json:"submitted,omitzero"`
	Dispatched time.Time    `json:"dispatched,omitzero"`
	Started    time.Time    `json:"started,omitzero"`
	Finished   time.Time    `json:"finished,omitzero"`

	Parent   string   `json:"parent,omitempty"`   // into which it was merged
	Children []string `json:"children,omitempty"` // that were merged into it
	Alone    bool     `json:"alone,omitempty"`    // not to be merged again
	MergeKey string   `json:"merge_key,omitempty"`
}

func (t *task) final() bool { return t.State == mloc.StateDone || t.State == mloc.StateFailed }

// taskStore keeps tasks of clients in a file: what it has acknowledged is there after a crash. Its methods may be called at
// the same time; what they return is the caller's.
type taskStore struct {
	db    *bbolt.DB
	ended func(*task) // called once for each task that ends, before anyone sees that it has; it must not call the store

	mu    sync.Mutex
	tasks map[string]*task
	order []*task               // by Seq
	jobs  map[muster.JobID]bool // that were submitted for tasks
	seq   uint64
}

// The file's buckets.
var (
	bucketTasks    = []byte("tasks")    // id → task
	bucketDocs     = []byte("docs")     // id → document as submitted, with its stage's spec merged in
	bucketResolved = []byte("resolved") // id → document with its references resolved
	bucketYAML     = []byte("yaml")     // submission → what the client sent
)

func openTaskStore(dir string, ended func(*task)) (*taskStore, error) {
	db, err := boltdb.Open(filepath.Join(dir, "tasks.db"), "another server uses the tasks of the MLOC dialect: stop it first", "",
		string(bucketDocs), string(bucketResolved), string(bucketYAML), string(bucketTasks))
	if err != nil {
		return nil, err
	}
	l := &taskStore{db: db, ended: ended, tasks: map[string]*task{}, jobs: map[muster.JobID]bool{}}
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketTasks).ForEach(func(_, v []byte) error {
			t := &task{}
			if err := json.Unmarshal(v, t); err != nil {
				return err
			}
			l.index(t)
			return nil
		})
	})
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "cannot read the tasks of the MLOC dialect: %w", err), db.Close())
	}
	slices.SortFunc(l.order, func(a, b *task) int { return cmp.Compare(a.Seq, b.Seq) })
	return l, nil
}

func (l *taskStore) index(t *task) {
	l.order = append(l.order, t)
	l.tasks[t.ID] = t
	l.seq = max(l.seq, t.Seq)
	if t.Job != 0 {
		l.jobs[t.Job] = true
	}
}

// add stores the tasks of one submission, all or none. docs are in the order of the tasks.
func (l *taskStore) add(yaml string, tasks []task, docs []mloc.Document) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	open := 0
	for _, t := range l.order {
		if !t.final() {
			open++
		}
	}
	if open+len(tasks) > maxOpenTasks {
		return muster.Errorf(muster.Unavailable, "%d tasks have not ended yet: at most %d may wait", open, maxOpenTasks)
	}
	err := l.db.Update(func(tx *bbolt.Tx) error {
		for i := range tasks {
			l.seq++
			tasks[i].Seq = l.seq
			if err := errors.Join(put(tx, bucketTasks, tasks[i].ID, tasks[i]), put(tx, bucketDocs, tasks[i].ID, docs[i])); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketYAML).Put([]byte(tasks[0].Submission), []byte(yaml))
	})
	if err != nil {
		return l.storeError(err)
	}
	for _, t := range tasks {
		l.index(&t)
	}
	return nil
}

func put(tx *bbolt.Tx, bucket []byte, key string, v any) error {
	b, err := mloc.Encode(v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucket).Put([]byte(key), b)
}

// storeError returns the error of a transaction, nil if there is none.
func (l *taskStore) storeError(err error) error {
	if _, ok := errors.AsType[*muster.Error](err); ok || err == nil {
		return err
	}
	return muster.Errorf(muster.Internal, "cannot store the tasks of the MLOC dialect: %w", err)
}

// update stores what f makes of a task, and returns it. f may refuse by an error, and is called with a copy.
func (l *taskStore) update(id string, f func(*task) error) (task, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.tasks[id]
	if old == nil {
		return task{}, muster.Errorf(muster.NotFound, "task not found")
	}
	t := *old
	t.Children = slices.Clone(old.Children)
	if err := f(&t); err != nil {
		return t, err
	}
	if err := l.db.Update(func(tx *bbolt.Tx) error { return put(tx, bucketTasks, id, t) }); err != nil {
		return *old, l.storeError(err)
	}
	if t.final() && !old.final() {
		l.ended(&t)
	}
	*old = t
	if t.Job != 0 {
		l.jobs[t.Job] = true
	}
	return t, nil
}

// putResolved stores the document with which a task is carried out.
func (l *taskStore) putResolved(id string, d mloc.Document) error {
	return l.storeError(l.db.Update(func(tx *bbolt.Tx) error { return put(tx, bucketResolved, id, d) }))
}

func (l *taskStore) get(id string) (task, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.tasks[id]; t != nil {
		return *t, true
	}
	return task{}, false
}

// hasJob reports whether a job was submitted for a task.
func (l *taskStore) hasJob(id muster.JobID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.jobs[id]
}

// list returns the tasks that f selects, in the order of their submission.
func (l *taskStore) list(f func(*task) bool) []task {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []task
	for _, t := range l.order {
		if f(t) {
			found = append(found, *t)
		}
	}
	return found
}

// doc returns a task's document: as it was submitted, or, if there is one, as it was resolved.
func (l *taskStore) doc(id string, resolved bool) (mloc.Document, error) {
	var d mloc.Document
	err := l.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketResolved).Get([]byte(id))
		if b == nil || !resolved {
			b = tx.Bucket(bucketDocs).Get([]byte(id))
		}
		if b == nil {
			return muster.Errorf(muster.NotFound, "task not found")
		}
		return mloc.Decode(b, 4*mloc.MaxExpanded, &d)
	})
	return d, l.storeError(err)
}

// yaml returns what a client sent.
func (l *taskStore) yaml(submission string) string {
	var s string
	_ = l.db.View(func(tx *bbolt.Tx) error { // what cannot be read is not there
		s = string(tx.Bucket(bucketYAML).Get([]byte(submission)))
		return nil
	})
	return s
}

// prune forgets the oldest submissions that have ended while there are too many tasks, and returns the ids of their
// tasks.
func (l *taskStore) prune(limit int) ([]string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.order) <= limit {
		return nil, nil
	}
	open := map[string]bool{}
	for _, t := range l.order {
		if !t.final() {
			open[t.Submission] = true
			for _, need := range t.Needs { // its result may be asked for
				if n := l.tasks[need]; n != nil {
					open[n.Submission] = true
				}
			}
		}
	}
	pruned := map[string]bool{}
	var ids []string
	for _, t := range l.order {
		if (len(l.order)-len(ids) > limit || pruned[t.Submission]) && !open[t.Submission] {
			pruned[t.Submission] = true
			ids = append(ids, t.ID)
		}
	}
	err := l.db.Update(func(tx *bbolt.Tx) error {
		var err error
		for _, id := range ids {
			for _, bucket := range [][]byte{bucketTasks, bucketDocs, bucketResolved} {
				err = errors.Join(err, tx.Bucket(bucket).Delete([]byte(id)))
			}
			err = errors.Join(err, tx.Bucket(bucketYAML).Delete([]byte(l.tasks[id].Submission)))
		}
		return err
	})
	if err != nil {
		return nil, l.storeError(err)
	}
	l.order = slices.DeleteFunc(l.order, func(t *task) bool { return pruned[t.Submission] })
	for _, id := range ids {
		delete(l.jobs, l.tasks[id].Job)
		delete(l.tasks, id)
	}
	return ids, nil
}

// dependents returns the ids of tasks that need each task.
func (l *taskStore) dependents() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := map[string][]string{}
	for _, t := range l.order {
		for _, need := range t.Needs {
			m[need] = append(m[need], t.ID)
		}
	}
	return m
}

// knownFolders returns the folders of results that belong to tasks.
func (l *taskStore) knownFolders() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	folders := map[string]bool{}
	for id := range l.tasks {
		folders[mloc.SafeID(id)] = true
	}
	return folders
}
