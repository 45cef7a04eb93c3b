package fleet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
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

const batchDelay = time.Millisecond

type workerRecord struct {
	Facts    Facts             `json:"facts"`
	Dir      string            `json:"place"`            // name of its directory
	Inactive string            `json:"away,omitempty"`   // why the worker is not part of the fleet
	Orphans  map[string]string `json:"strays,omitempty"` // tasks that are done but may still run, with the reason
}

type taskRecord struct {
	Worker    string            `json:"worker"`
	Attempt   json.RawMessage   `json:"attempt"` // a run.Task
	Offered   muster.Time       `json:"offered"`
	Began     muster.Time       `json:"began,omitzero"`
	Artifacts []muster.Artifact `json:"artifacts,omitempty"`
	Report    *muster.Report    `json:"report,omitempty"` // the final one
}

type finishedTask struct {
	Worker string `json:"worker"`
	Cause  string `json:"cause"` // a name in causes
	Task   string `json:"task"`  // the Muster task, for people
}

func openStore(dir string) (*store, error) {
	db, err := boltdb.Open(filepath.Join(dir, "fleet.db"), "another process uses the directory "+dir, "; if it is damaged, move it away: the workers then register again",
		bucketWorkers, bucketTasks, bucketFinished, bucketOrder)
	if err != nil {
		return nil, err
	}
	db.MaxBatchDelay = batchDelay
	return &store{db: db}, nil
}

func (s *store) update(f func(tx *bbolt.Tx) error) error {
	if err := s.db.Batch(f); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot write the state of foreign workers: %w", err)
	}
	return nil
}

func putJSON(tx *bbolt.Tx, bucket, id string, v any) error {
	return boltdb.PutJSON(tx.Bucket([]byte(bucket)), id, v)
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

// forEach calls fn for each entry of a bucket, and onBad for one that is not a T, or for which fn fails.
func forEach[T any](s *store, bucket string, fn func(id string, r *T) error, onBad func(id string, err error)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(bucket)).ForEach(func(id, b []byte) error {
			r := new(T)
			err := json.Unmarshal(b, r)
			if err == nil {
				err = fn(string(id), r)
			}
			if err != nil {
				onBad(string(id), err)
			}
			return nil
		})
	})
}

func removeAll(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove %s: %w", dir, err)
	}
	return nil
}
