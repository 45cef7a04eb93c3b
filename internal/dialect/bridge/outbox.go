package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
)

// The states of a job in the outbox.
const (
	stateAccepted  = "accepted"  // to be submitted
	stateSubmitted = "submitted" // a job of Muster
	stateEnded     = "ended"     // to be reported
	stateSending   = "sending"   // the final report may have been sent
	stateReported  = "reported"  // the foreign server has the final report
	stateRejected  = "rejected"  // the foreign server refuses the final report for good
)

// Limits of the outbox.
const (
	maxOpen       = 10_000              // jobs that are not finally reported
	maxClosed     = 20_000              // others that are remembered, so that they are not run again
	keepClosed    = 30 * 24 * time.Hour // how long
	outboxWait    = 3 * time.Second     // for another process that is just ending
	maxForeignID  = 1024                // bytes
	batchDelay    = 2 * time.Millisecond
	outboxName    = "outbox.db"
	recordsBucket = "jobs"
)

// record is one job of the foreign server, as stored.
type record struct {
	ID       string          `json:"id"`
	State    string          `json:"state"`
	At       muster.Time     `json:"at"`             // of its last change of state
	Spec     *muster.Spec    `json:"spec,omitempty"` // until it is submitted
	Meta     json.RawMessage `json:"meta,omitempty"`
	Job      muster.JobID    `json:"job,omitempty"`
	Attempt  int             `json:"attempt,omitempty"`  // whose log was last sent
	Lines    int             `json:"lines,omitempty"`    // of that log that were acknowledged
	Refused  string          `json:"refused,omitempty"`  // why Muster does not take the job
	Rejected string          `json:"rejected,omitempty"` // why the foreign server does not take the report
}

func (r *record) closed() bool { return r.State == stateReported || r.State == stateRejected }

// outbox keeps records on disk. One process at a time has it open.
type outbox struct{ db *bbolt.DB }

func openOutbox(dir string) (*outbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "the bridge's data folder cannot be made: %w", err)
	}
	path := filepath.Join(dir, outboxName)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: outboxWait, NoFreelistSync: true, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, muster.Errorf(muster.Conflict, "another bridge uses the data folder %s: stop it, or give this one a --data of its own", dir)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "%s cannot be opened: %w", path, err)
	}
	db.MaxBatchDelay = batchDelay
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists([]byte(recordsBucket))
		return err
	})
	if err != nil {
		return nil, errors.Join(muster.Errorf(muster.Internal, "%s cannot be written: %w", path, err), db.Close())
	}
	return &outbox{db: db}, nil
}

func (o *outbox) close() error { return o.db.Close() }

// key is a record's place: foreign ids may be long.
func key(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return []byte(hex.EncodeToString(sum[:16]))
}

// put stores records; they are on disk when it returns.
func (o *outbox) put(records ...*record) error {
	err := o.db.Batch(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(recordsBucket))
		for _, r := range records {
			data, err := json.Marshal(r)
			if err != nil {
				return err
			}
			if err := b.Put(key(r.ID), data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return muster.Errorf(muster.Unavailable, "the bridge cannot write %s: %w", o.db.Path(), err)
	}
	return nil
}

// load reads all records, and forgets closed ones that are too old or too many.
func (o *outbox) load(now time.Time) ([]*record, error) {
	var all []*record
	err := o.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(recordsBucket)).ForEach(func(_, data []byte) error {
			r := &record{}
			if err := json.Unmarshal(data, r); err != nil || r.ID == "" {
				return muster.Errorf(muster.Internal, "%s has a damaged record: move the file away; jobs in it are not reported then", o.db.Path())
			}
			all = append(all, r)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	old := expired(all, now)
	if len(old) == 0 {
		return all, nil
	}
	gone := map[string]bool{}
	err = o.db.Update(func(tx *bbolt.Tx) error {
		for _, r := range old {
			gone[r.ID] = true
			if err := tx.Bucket([]byte(recordsBucket)).Delete(key(r.ID)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "the bridge cannot write %s: %w", o.db.Path(), err)
	}
	return slices.DeleteFunc(all, func(r *record) bool { return gone[r.ID] }), nil
}

// expired lists the closed records that need not be remembered.
func expired(all []*record, now time.Time) []*record {
	var closed []*record
	for _, r := range all {
		if r.closed() {
			closed = append(closed, r)
		}
	}
	slices.SortFunc(closed, func(a, b *record) int { return b.At.Std().Compare(a.At.Std()) }) // newest first
	for i, r := range closed {
		if i >= maxClosed || now.Sub(r.At.Std()) > keepClosed {
			return closed[i:]
		}
	}
	return nil
}
