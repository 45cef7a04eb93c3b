package fleet

import (
	"errors"
	"testing"

	"go.etcd.io/bbolt"
)

// BreakDisk makes all writes of the state fail until mend is called.
func (f *Fleet) BreakDisk(t *testing.T) (mend func()) {
	t.Helper()
	if err := f.state.close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		s, err := openState(f.cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		f.state.db = s.db
	}
}

// HoldWrites keeps the worker's record from being written until release is called.
func (w *Worker) HoldWrites() (release func()) {
	w.saving.Lock()
	return w.saving.Unlock
}

// OnDisk reports whether the record of a task is on disk, and whether that of one that is over is.
func (f *Fleet) OnDisk(t *testing.T, id string) (held, over bool) {
	t.Helper()
	err := f.state.db.View(func(tx *bbolt.Tx) error {
		held = tx.Bucket([]byte(bucketTasks)).Get([]byte(id)) != nil
		over = tx.Bucket([]byte(bucketOver)).Get([]byte(id)) != nil
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return held, over
}

// ForgetWorker removes the record of a worker from the folder of a fleet that does not run, as a crash in the middle of a removal leaves it.
func ForgetWorker(t *testing.T, dir, id string) {
	t.Helper()
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.dropWorker(id), s.close()); err != nil {
		t.Fatal(err)
	}
}
