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

// state is what is on disk. Every change is there when the method returns nil. Its methods may be called at the same time; changes that
// come together share one transaction.
type state struct{ db *bbolt.DB }

// The buckets: workers by their ids, tasks that are held by theirs, and those that are over.
const (
	bucketWorkers = "workers"
	bucketTasks   = "tasks"
	bucketOver    = "over"  // task id → past
	bucketPast    = "order" // sequence → task id, to forget the oldest
)

// maxPast is how many tasks that are over are remembered.
const maxPast = 10_000

const (
	stateWait  = 3 * time.Second // for another process that is just ending
	batchDelay = time.Millisecond
)

// workerRecord is a worker on disk.
type workerRecord struct {
	Facts  Facts             `json:"facts"`
	Place  string            `json:"place"`            // its folder in workers
	Away   string            `json:"away,omitempty"`   // why it does not belong to the fleet now
	Strays map[string]string `json:"strays,omitempty"` // tasks that are over and that it may still run, with why
}

// taskRecord is a held task on disk.
type taskRecord struct {
	Worker    string            `json:"worker"`
	Attempt   json.RawMessage   `json:"attempt"` // a run.Task
	Offered   muster.Time       `json:"offered"`
	Began     muster.Time       `json:"began,omitzero"`
	Artifacts []muster.Artifact `json:"artifacts,omitempty"`
	Cut       bool              `json:"cut,omitempty"`    // the log has no more room
	Report    *muster.Report    `json:"report,omitempty"` // once it was finished
}

// past is a task that is over.
type past struct {
	Worker string `json:"worker"`
	Cause  string `json:"cause"` // a key of causes
	Task   string `json:"task"`  // the attempt, for people
}

func openState(dir string) (*state, error) {
	path := filepath.Join(dir, "fleet.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: stateWait, NoFreelistSync: true, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, muster.Errorf(muster.Conflict, "another process uses %s", dir)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "%s cannot be opened: %w; if it is damaged, move it away: the workers register again then", path, err)
	}
	db.MaxBatchDelay = batchDelay
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range []string{bucketWorkers, bucketTasks, bucketOver, bucketPast} {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "%s cannot be written: %w", path, err), db.Close())
	}
	return &state{db: db}, nil
}

func (s *state) close() error { return s.db.Close() }

// change makes one change.
func (s *state) change(f func(tx *bbolt.Tx) error) error {
	if err := s.db.Batch(f); err != nil {
		return muster.Errorf(muster.Unavailable, "the state of foreign workers cannot be written: %w", err)
	}
	return nil
}

func put(tx *bbolt.Tx, bucket, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(id), b)
}

func (s *state) putWorker(id string, r *workerRecord) error {
	return s.change(func(tx *bbolt.Tx) error { return put(tx, bucketWorkers, id, r) })
}

func (s *state) dropWorker(id string) error {
	return s.change(func(tx *bbolt.Tx) error { return tx.Bucket([]byte(bucketWorkers)).Delete([]byte(id)) })
}

func (s *state) putTask(id string, r *taskRecord) error {
	return s.change(func(tx *bbolt.Tx) error { return put(tx, bucketTasks, id, r) })
}

// end moves a task to those that are over.
func (s *state) end(id string, p past) error {
	return s.change(func(tx *bbolt.Tx) error {
		if err := tx.Bucket([]byte(bucketTasks)).Delete([]byte(id)); err != nil {
			return err
		}
		over, order := tx.Bucket([]byte(bucketOver)), tx.Bucket([]byte(bucketPast))
		if over.Get([]byte(id)) != nil {
			return nil
		}
		n, err := order.NextSequence()
		if err != nil {
			return err
		}
		if n > maxPast {
			old := key(n - maxPast)
			if gone := order.Get(old); gone != nil {
				if err := errors.Join(over.Delete(append([]byte(nil), gone...)), order.Delete(old)); err != nil {
					return err
				}
			}
		}
		return errors.Join(order.Put(key(n), []byte(id)), put(tx, bucketOver, id, p))
	})
}

func key(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// over returns what is remembered of a task that is over; ok is false if nothing is.
func (s *state) over(id string) (p past, ok bool) {
	err := s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketOver)).Get([]byte(id))
		if b == nil {
			return errNone
		}
		return json.Unmarshal(b, &p)
	})
	return p, err == nil
}

var errNone = errors.New("there is no such entry")

// load calls worker and task for each that is there. A record that cannot be read is passed to bad, and left out.
func (s *state) load(worker func(id string, r workerRecord), task func(id string, r taskRecord), bad func(id string, err error)) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		err := tx.Bucket([]byte(bucketWorkers)).ForEach(func(id, b []byte) error {
			var r workerRecord
			if err := json.Unmarshal(b, &r); err != nil {
				bad(string(id), err)
				return nil
			}
			worker(string(id), r)
			return nil
		})
		if err != nil {
			return err
		}
		return tx.Bucket([]byte(bucketTasks)).ForEach(func(id, b []byte) error {
			var r taskRecord
			if err := json.Unmarshal(b, &r); err != nil {
				bad(string(id), err)
				return nil
			}
			task(string(id), r)
			return nil
		})
	})
}

// remove removes a folder with all that is in it.
func remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return muster.Errorf(muster.Internal, "%s cannot be removed: %w", dir, err)
	}
	return nil
}
