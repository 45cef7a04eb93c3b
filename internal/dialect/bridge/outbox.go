package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
)

// The states of a job in the outbox.
const (
	stateAccepted  = "accepted"  // not submitted yet
	stateSubmitted = "submitted" // a job of Muster
	stateEnded     = "ended"     // not reported yet
	stateSending   = "sending"   // the final report may have been sent
	stateReported  = "reported"  // the foreign server has the final report
	stateRejected  = "rejected"  // the foreign server permanently refused the final report
)

// Limits of the outbox.
const (
	maxOpenJobs   = 10_000              // without a final report
	maxClosedJobs = 20_000              // kept so that they do not run again
	closedSlack   = 2_000               // more than maxClosedJobs before some are removed
	closedTTL     = 30 * 24 * time.Hour // of a closed job
	maxForeignID  = 1024                // bytes
	batchDelay    = 2 * time.Millisecond
	jobsBucket    = "jobs"
)

// OutboxName is the name of the file with a bridge's jobs.
const OutboxName = "outbox.db"

type record struct {
	ID       string          `json:"id"`
	State    string          `json:"state"`
	At       muster.Time     `json:"at"`             // of the last change of State
	Spec     *muster.Spec    `json:"spec,omitempty"` // until the job is submitted
	Meta     json.RawMessage `json:"meta,omitempty"`
	Job      muster.JobID    `json:"job,omitempty"`
	Attempt  int             `json:"attempt,omitempty"`  // whose log was sent last
	Lines    int             `json:"lines,omitempty"`    // of that log that are acknowledged, as an older Muster counted them; 0 with LogID
	LogID    string          `json:"log_id,omitempty"`   // of the last line that is acknowledged
	Refused  string          `json:"refused,omitempty"`  // why Muster refused the job
	Rejected string          `json:"rejected,omitempty"` // why the foreign server refused the report
}

func (r *record) isClosed() bool { return r.State == stateReported || r.State == stateRejected }

// outbox stores records on disk. One process at a time has it open.
type outbox struct{ db *bbolt.DB }

func openOutbox(dir string) (*outbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the bridge's data directory: %w", err)
	}
	inUse := "another bridge uses the data directory " + dir + ": stop it, or choose another --data"
	db, err := boltdb.Open(filepath.Join(dir, OutboxName), inUse, "", jobsBucket)
	if err != nil {
		return nil, err
	}
	db.MaxBatchDelay = batchDelay
	return &outbox{db: db}, nil
}

// recordKey returns the key of a record: foreign ids may be too long for one.
func recordKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// update commits a change with commit, which is a method of db.
func (o *outbox) update(commit func(func(*bbolt.Tx) error) error, change func(*bbolt.Bucket) error) error {
	if err := commit(func(tx *bbolt.Tx) error { return change(tx.Bucket([]byte(jobsBucket))) }); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot write %s: %w", o.db.Path(), err)
	}
	return nil
}

// put stores records; they are on disk when it returns.
func (o *outbox) put(records ...*record) error {
	return o.update(o.db.Batch, func(b *bbolt.Bucket) error {
		for _, r := range records {
			if err := boltdb.PutJSON(b, recordKey(r.ID), r); err != nil {
				return err
			}
		}
		return nil
	})
}

// newRecord returns r as it will be read from disk, so that a job does not depend on restarts of the bridge.
func newRecord(r *record) (*record, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot encode job %s: %w", r.ID, err)
	}
	return decodeRecord(data)
}

func decodeRecord(data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.ID == "" {
		return nil, errors.New("a record has no id")
	}
	return r, nil
}

func readRecords(db *bbolt.DB) (list []*record, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(jobsBucket))
		if bucket == nil {
			return nil // the bridge was killed at its first start
		}
		return bucket.ForEach(func(_, data []byte) error {
			r, err := decodeRecord(data)
			if err != nil {
				return muster.Errorf(muster.Internal, "damaged record in %s: move the file away; its jobs will not be reported", db.Path())
			}
			list = append(list, r)
			return nil
		})
	})
	return list, err
}

// load reads all records, and removes closed ones that are too old or too many.
func (o *outbox) load(now time.Time) ([]*record, error) {
	list, err := readRecords(o.db)
	if err != nil {
		return nil, err
	}
	closed := map[string]time.Time{}
	for _, r := range list {
		if r.isClosed() {
			closed[r.ID] = r.At.Std()
		}
	}
	old := selectExpired(closed, now)
	if err := o.remove(old); err != nil {
		return nil, err
	}
	for _, id := range old {
		delete(closed, id)
	}
	return slices.DeleteFunc(list, func(r *record) bool {
		_, kept := closed[r.ID]
		return r.isClosed() && !kept
	}), nil
}

func (o *outbox) remove(ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	return o.update(o.db.Update, func(b *bbolt.Bucket) error {
		for _, id := range ids {
			if err := b.Delete([]byte(recordKey(id))); err != nil {
				return err
			}
		}
		return nil
	})
}

// selectExpired lists the closed jobs that are too old, and the oldest of too many.
func selectExpired(closed map[string]time.Time, now time.Time) []string {
	ids := slices.Collect(maps.Keys(closed))
	slices.SortFunc(ids, func(a, b string) int { return closed[b].Compare(closed[a]) }) // newest first
	for i, id := range ids {
		if i >= maxClosedJobs || now.Sub(closed[id]) > closedTTL {
			return ids[i:]
		}
	}
	return nil
}

// FindOutboxes lists the outboxes of the bridge with the data directory dir. Some bridges have theirs in a subdirectory.
func FindOutboxes(dir string) (paths []string) {
	for _, sub := range []string{"", "jobs"} {
		path := filepath.Join(dir, sub, OutboxName)
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

const readTimeout = 200 * time.Millisecond

// CountPending counts the jobs without a final report in the outbox at path. It cannot read the outbox while a bridge uses it: then running
// is true.
func CountPending(path string) (jobs int, running bool, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: readTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, muster.Errorf(muster.Unavailable, "cannot read %s: %w", path, err)
	}
	list, err := readRecords(db)
	for _, r := range list {
		if !r.isClosed() {
			jobs++
		}
	}
	return jobs, false, errors.Join(err, db.Close())
}
