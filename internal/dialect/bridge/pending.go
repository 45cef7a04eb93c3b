package bridge

import (
	"encoding/json"
	"errors"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
)

// OutboxName is the file of a bridge's jobs in its data folder.
const OutboxName = outboxName

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
	err = db.View(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(recordsBucket))
		if bucket == nil {
			return nil // a bridge that was killed at its first start
		}
		return bucket.ForEach(func(_, data []byte) error {
			r := &record{}
			if err := json.Unmarshal(data, r); err != nil {
				return muster.Errorf(muster.Internal, "%s has a damaged record", path)
			}
			if !r.closed() {
				jobs++
			}
			return nil
		})
	})
	return jobs, false, errors.Join(err, db.Close())
}
