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
