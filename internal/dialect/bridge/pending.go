package bridge

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
)

// FindOutboxes lists the outboxes of the bridge that keeps its data in dir, which some systems' bridges do in a folder below it.
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

// CountPending counts the jobs of the outbox at path that have no final report yet. While a bridge runs on it the outbox cannot be read, and running is
// true. Nothing is changed.
func CountPending(path string) (jobs int, running bool, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: readTimeout})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, muster.Errorf(muster.Unavailable, "%s cannot be read: %w", path, err)
	}
	list, err := readRecords(db)
	for _, r := range list {
		if !r.isClosed() {
			jobs++
		}
	}
	return jobs, false, errors.Join(err, db.Close())
}
