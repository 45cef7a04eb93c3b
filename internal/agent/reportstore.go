package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/boltdb"
)

// ReportStore stores reports that the server has not acknowledged. Only one process may have it open, so it is also the lock on the
// worker's data dir. Its methods may be called concurrently.
type ReportStore struct {
	db     *bbolt.DB
	bucket []byte
}

const reportsBucket = "reports"

// OpenReportStore opens the store in dir, which it creates. It returns a Conflict error if another process has it open.
func OpenReportStore(dir string) (*ReportStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot create the data dir: %w", err)
	}
	inUse := "another worker uses the data dir " + dir + ": stop it, or start this one with another --data"
	db, err := boltdb.Open(filepath.Join(dir, "reports.db"), inUse, "; if it is damaged, remove it: the reports in it are lost then", reportsBucket)
	if err != nil {
		return nil, err
	}
	return &ReportStore{db: db, bucket: []byte(reportsBucket)}, nil
}

// ForWorker returns the store of one of several workers in this process. They share the file, which is closed with s.
func (s *ReportStore) ForWorker(worker string) (*ReportStore, error) {
	bucket := reportsBucket + "/" + worker
	if err := boltdb.CreateBuckets(s.db, bucket); err != nil {
		return nil, err
	}
	return &ReportStore{db: s.db, bucket: []byte(bucket)}, nil
}

// AttemptsByWorker returns the attempts with a stored report of each worker that ForWorker was called for.
func (s *ReportStore) AttemptsByWorker() (map[string][]muster.AttemptID, error) {
	byWorker := map[string][]muster.AttemptID{}
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			worker, ok := strings.CutPrefix(string(name), reportsBucket+"/")
			if !ok {
				return nil
			}
			byWorker[worker] = nil
			return b.ForEach(func(id, _ []byte) error {
				if a, err := muster.ParseAttemptID(string(id)); err == nil {
					byWorker[worker] = append(byWorker[worker], a)
				}
				return nil
			})
		})
	})
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot read %s: %w", s.db.Path(), err)
	}
	return byWorker, nil
}

// RemoveWorkers removes the reports of workers, whose stores must not be used after that.
func (s *ReportStore) RemoveWorkers(workers ...string) error {
	if len(workers) == 0 {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) error {
		for _, worker := range workers {
			if err := tx.DeleteBucket([]byte(reportsBucket + "/" + worker)); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot write %s: %w", s.db.Path(), err)
	}
	return nil
}

// Close closes the store and unlocks the data dir.
func (s *ReportStore) Close() error { return s.db.Close() }

// Reports returns the stored reports. The error names each record that cannot be read; the others are still returned.
func (s *ReportStore) Reports() ([]muster.Report, error) {
	var reports []muster.Report
	var damaged error
	err := s.db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(s.bucket).ForEach(func(id, v []byte) error {
			var r muster.Report
			if err := json.Unmarshal(v, &r); err != nil {
				damaged = errors.Join(damaged, muster.Errorf(muster.Internal, "the stored report of %s is damaged: %w", id, err))
				return nil
			}
			reports = append(reports, r)
			return nil
		})
	})
	return reports, errors.Join(damaged, err)
}

// Clear removes all reports, including damaged ones.
func (s *ReportStore) Clear() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := tx.DeleteBucket(s.bucket); err != nil {
			return err
		}
		_, err := tx.CreateBucket(s.bucket)
		return err
	})
}

// Update stores and removes reports in one transaction, which is on disk when it returns nil.
func (s *ReportStore) Update(put []*muster.Report, remove []muster.AttemptID) error {
	if len(put)+len(remove) == 0 {
		return nil
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(s.bucket)
		for _, r := range put {
			if err := boltdb.PutJSON(b, r.Attempt.String(), r); err != nil {
				return err
			}
		}
		for _, id := range remove {
			if err := b.Delete([]byte(id.String())); err != nil {
				return err
			}
		}
		return nil
	})
}
