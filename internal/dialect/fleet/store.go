package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
)

// store is what is on disk. Every change is there when the method returns nil. Its methods may be called at the same time; changes that
// come together share one transaction.
type store struct{ db *bbolt.DB }

// The buckets: workers by their ids, tasks that are held by theirs, and those that are over.
const (
	bucketWorkers  = "workers"
	bucketTasks    = "tasks"
	bucketFinished = "over"  // task id → past
	bucketOrder    = "order" // sequence → task id, to forget the oldest
)

// maxFinished is how many tasks that are over are remembered.
const maxFinished = 10_000

const (
	lockTimeout = 3 * time.Second // for another process that is just ending
	batchDelay  = time.Millisecond
)

// workerRecord is a worker on disk.
type workerRecord struct {
	Facts    Facts             `json:"facts"`
	Dir      string            `json:"place"`            // its folder in workers
	Inactive string            `json:"away,omitempty"`   // why it does not belong to the fleet now
	Orphans  map[string]string `json:"strays,omitempty"` // tasks that are over and that it may still run, with why
}

// taskRecord is a held task on disk.
type taskRecord struct {
	Worker       string            `json:"worker"`
	Attempt      json.RawMessage   `json:"attempt"` // a run.Task
	Offered      muster.Time       `json:"offered"`
	Began        muster.Time       `json:"began,omitzero"`
	Artifacts    []muster.Artifact `json:"artifacts,omitempty"`
	LogTruncated bool              `json:"cut,omitempty"`    // the log has no more room
	Report       *muster.Report    `json:"report,omitempty"` // once it was finished
}

// finishedTask is a task that is over.
type finishedTask struct {
	Worker string `json:"worker"`
	Cause  string `json:"cause"` // a key of causes
	Task   string `json:"task"`  // the attempt, for people
}

func openStore(dir string) (*store, error) {
	path := filepath.Join(dir, "fleet.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, muster.Errorf(muster.Conflict, "another process uses %s", dir)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "%s cannot be opened: %w; if it is damaged, move it away: the workers register again then", path, err)
	}
	db.MaxBatchDelay = batchDelay
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketWorkers, bucketTasks, bucketFinished, bucketOrder} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "%s cannot be written: %w", path, err), db.Close())
	}
	return &store{db: db}, nil
}

func (s *store) close() error { return s.db.Close() }

// update makes one change.
func (s *store) update(f func(tx *bbolt.Tx) error) error {
	if err := s.db.Batch(f); err != nil {
		return muster.Errorf(muster.Unavailable, "the state of foreign workers cannot be written: %w", err)
	}
	return nil
}

func putJSON(tx *bbolt.Tx, bucket, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(id), b)
}

func (s *store) putWorker(id string, r *workerRecord) error {
	return s.update(func(tx *bbolt.Tx) error { return putJSON(tx, bucketWorkers, id, r) })
}

func (s *store) dropWorker(id string) error {
	return s.update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketWorkers)).Delete([]byte(id)) })
}

func (s *store) putTask(id string, r *taskRecord) error {
	return s.update(func(tx *bbolt.Tx) error { return putJSON(tx, bucketTasks, id, r) })
}

// moveToFinished moves a task to those that are over.
func (s *store) moveToFinished(id string, p finishedTask) error {
	return s.update(func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketTasks)).Delete([]byte(id)); err != nil {
			return err
		}
		finished, order := tx.Bucket([]byte(bucketFinished)), tx.Bucket([]byte(bucketOrder))
		if finished.Get([]byte(id)) != nil {
			return nil
		}
		n, err := order.NextSequence()
		if err != nil {
			return err
		}
		if n > maxFinished {
			old := sequenceKey(n - maxFinished)
			if evicted := order.Get(old); evicted != nil {
				if err := errors.Join(finished.Delete(append([]byte(nil), evicted...)), order.Delete(old)); err != nil {
					return err
				}
			}
		}
		return errors.Join(order.Put(sequenceKey(n), []byte(id)), putJSON(tx, bucketFinished, id, p))
	})
}

func sequenceKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// findFinished returns what is remembered of a task that is over; ok is false if nothing is.
func (s *store) findFinished(id string) (p finishedTask, ok bool) {
	err := s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketFinished)).Get([]byte(id))
		if b == nil {
			return errNotFound
		}
		return json.Unmarshal(b, &p)
	})
	return p, err == nil
}

var errNotFound = errors.New("there is no such entry")

// load calls worker and task for each that is there. A record that cannot be read is passed to bad, and left out.
func (s *store) load(onWorker func(id string, r workerRecord), onTask func(id string, r taskRecord), onBad func(id string, err error)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return errors.Join(forEach(tx, bucketWorkers, onWorker, onBad), forEach(tx, bucketTasks, onTask, onBad))
	})
}

// forEach calls fn for each entry of a bucket, and onBad for one that is not a T.
func forEach[T any](tx *bbolt.Tx, bucket string, fn func(id string, r T), onBad func(id string, err error)) error {
	return tx.Bucket([]byte(bucket)).ForEach(func(id, b []byte) error {
		var r T
		if err := json.Unmarshal(b, &r); err != nil {
			onBad(string(id), err)
		} else {
			fn(string(id), r)
		}
		return nil
	})
}

// removeAll removes a folder with all that is in it.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return muster.Errorf(muster.Internal, "%s cannot be removed: %w", dir, err)
	}
	return nil
}
