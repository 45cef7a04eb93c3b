package store

import (
	"context"

	"github.com/muster-dev/muster"
)

// CacheStore stores the results that tasks of a project share. Commit adds them, and counts hits.
type CacheStore interface {
	// CacheEntry returns the entry with a key, also if it has expired, and false if there is none.
	CacheEntry(ctx context.Context, project, key string) (muster.CacheEntry, bool, error)
	// CacheEntries lists the entries that expire after a time, the newest first, at most limit, without Metrics and Result.
	CacheEntries(ctx context.Context, q CacheQuery) ([]muster.CacheEntry, error)
	// DeleteCacheEntries deletes the selected entries, and returns their number.
	DeleteCacheEntries(ctx context.Context, s CacheSelection) (int, error)
	// DeleteExpiredCacheEntries deletes up to limit entries that expired at a time or before, and returns their number.
	DeleteExpiredCacheEntries(ctx context.Context, at muster.Time, limit int) (int, error)
	// CacheBlobs lists the artifacts of entries that expire after a time, by a number, from the one after the given one.
	CacheBlobs(ctx context.Context, at muster.Time, after int64, limit int) (page []BlobRef, next int64, done bool, err error)
}

// CacheQuery selects entries of a project.
type CacheQuery struct {
	Project string
	Now     muster.Time // they expire later
	Limit   int
}

// CacheSelection selects the entries of a project that have all of what is set.
type CacheSelection struct {
	Project string
	Job     muster.JobID // of whose tasks they are; 0 means any
	Kind    string       // "" means any
	Name    string       // of their stage; "" means any
	Key     string       // begins with this
}
