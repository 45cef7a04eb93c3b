// Package boltdb opens bbolt databases. One process at a time uses a database.
package boltdb

import (
	"encoding/json"
	"errors"
	"io"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/muster-dev/muster"
)

// lockTimeout is how long to wait for another process that is exiting.
const lockTimeout = 3 * time.Second

// Open opens or creates the database at path, with buckets. The error is a Conflict with the text inUse if another process uses the
// database. The text advice is added to the error for a database that cannot be opened otherwise.
func Open(path, inUse, advice string, buckets ...string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, NoStatistics: true})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, muster.Errorf(muster.Conflict, "%s", inUse)
	}
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "cannot open %s: %w%s", path, err, advice)
	}
	if err := CreateBuckets(db, buckets...); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// CreateBuckets creates the buckets that do not exist.
func CreateBuckets(db *bbolt.DB, buckets ...string) error {
	err := db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return muster.Errorf(muster.Internal, "cannot write %s: %w", db.Path(), err)
	}
	return nil
}

// PutJSON stores v as JSON.
func PutJSON(b *bbolt.Bucket, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put([]byte(key), data)
}

// View calls f with the database as of one moment: its size in bytes, and a writer of all of them. Writers of the database continue.
func View(db *bbolt.DB, f func(size int64, content io.WriterTo) error) error {
	return db.View(func(tx *bbolt.Tx) error { return f(tx.Size(), tx) })
}
