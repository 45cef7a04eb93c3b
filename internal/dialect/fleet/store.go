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

// store keeps workers and tasks on disk. A change is on disk when its method returns nil. Its methods may be called concurrently;
// concurrent changes share a transaction.
type store struct{ db *bbolt.DB }

const (
	bucketWorkers  = "workers" // id → workerRecord
	bucketTasks    = "tasks"   // id → taskRecord
	bucketFinished = "over"    // task id → finishedTask
	bucketOrder    = "order"   // sequence → task id, oldest first
)

const maxFinished = 10_000 // tasks in bucketFinished

const (
	lockTimeout = 3 * time.Second // for another process to end
	batchDelay  = time.Millisecond
)

// workerRecord is a worker on disk.
type workerRecord struct {
	Facts    Facts             `json:"facts"`
	Dir      string            `json:"place"`            // name of its directory
	Inactive string            `json:"away,omitempty"`   // why the worker is not part of the fleet
	Orphans  map[string]string `json:"strays,omitempty"` // tasks that are done but may still run, with the reason
}

// taskRecord is a task on disk.
type taskRecord struct {
	Worker       string            `json:"worker"`
	Attempt      json.RawMessage   `json:"attempt"` // a run.Task
	Offered      muster.Time       `json:"offered"`
	Began        muster.Time       `json:"began,omitzero"`
	Artifacts    []muster.Artifact `json:"artifacts,omitempty"`
	LogTruncated bool              `json:"cut,omitempty"`    // the log is full
	Report       *muster.Report    `json:"report,omitempty"` // the final one
}

// finishedTask is a task that is done, on disk.
type finishedTask struct {
	Worker string `json:"worker"`
	Cause  string `json:"cause"` // a name in causes
	Task   string `json:"task"`  // the Muster task, for people
}

func openStore(dir string) (*store, error) {
	path := filepath.Join(dir, "fleet.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, muster.Errorf(muster.Conflict, "another process uses the directory %s", dir)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot open %s: %w; if it is damaged, move it away: the workers then register again", path, err)
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
		return nil, errors.Join(muster.Errorf(muster.Internal, "cannot write %s: %w", path, err), db.Close())
	}
	return &store{db: db}, nil
}

func (s *store) close() error { return s.db.Close() }

// update commits one change.
func (s *store) update(f func(tx *bbolt.Tx) error) error {
	if err := s.db.Batch(f); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot write the state of foreign workers: %w", err)
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

// moveToFinished moves a task to those that are done.
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

// findFinished returns a task that is done.
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

var errNotFound = errors.New("no such entry")

// load calls onWorker for each worker, then onTask for each task, and onBad for records that cannot be read.
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

// removeAll removes a directory tree.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove %s: %w", dir, err)
	}
	return nil
}
