package fleet

import (
	"errors"
	"testing"

	"go.etcd.io/bbolt"
)

// BreakDisk makes all writes of the state fail until mend is called.
func (f *Fleet) BreakDisk(t *testing.T) (mend func()) {
	t.Helper()
	if err := f.store.db.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		s, err := openStore(f.cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		f.store.db = s.db
	}
}

// BlockWrites keeps the worker's record from being written until release is called.
func (w *Worker) BlockWrites() (release func()) {
	w.saveMu.Lock()
	return w.saveMu.Unlock
}

// OnDisk reports whether a task is on disk, as a held or as a finished one.
func (f *Fleet) OnDisk(t *testing.T, id string) (held, finished bool) {
	t.Helper()
	err := f.store.db.View(func(tx *bbolt.Tx) error {
		held = tx.Bucket([]byte(bucketTasks)).Get([]byte(id)) != nil
		finished = tx.Bucket([]byte(bucketFinished)).Get([]byte(id)) != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return held, finished
}

// DeleteWorkerRecord removes the record of a worker while no fleet runs, like a crash during a removal.
func DeleteWorkerRecord(t *testing.T, dir, id string) {
	t.Helper()
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.dropWorker(id), s.db.Close()); err != nil {
		t.Fatal(err)
	}
}
