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

// Outboxes lists the outboxes of the bridge that keeps its data in dir, which some systems' bridges do in a folder below it.
func Outboxes(dir string) (paths []string) {
	for _, below := range []string{"", "jobs"} {
		path := filepath.Join(dir, below, OutboxName)
		if _, err := os.Stat(path); err == nil {
			paths = append(paths, path)
		}
	}
	return paths
}

const lookWait = 200 * time.Millisecond

// PendingIn counts the jobs of the outbox at path that have no final report yet. While a bridge runs on it the outbox cannot be read, and running is
// true. Nothing is changed.
func PendingIn(path string) (jobs int, running bool, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: lookWait})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, muster.Errorf(muster.Unavailable, "%s cannot be read: %w", path, err)
	}
	list, err := all(db)
	for _, r := range list {
		if !r.closed() {
			jobs++
		}
	}
	return jobs, false, errors.Join(err, db.Close())
}
