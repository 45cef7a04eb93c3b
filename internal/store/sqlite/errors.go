package sqlite

import (
	"context"
	"errors"

	"github.com/muster-dev/muster"
	"github.com/ncruces/go-sqlite3"
)

// wrapError converts an error of SQLite to a muster.Error. verb is such as "read".
func (s *Store) wrapError(ctx context.Context, verb string, err error) error {
	if e, ok := errors.AsType[*muster.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil:
		return muster.Errorf(muster.Unavailable, "cannot %s the database %s: %w", verb, s.path, context.Cause(ctx))
	case isDiskFull(err):
		return muster.Errorf(muster.StorageFull, "no space left for the database %s: free some on its disk, then try again: %w", s.path, err)
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		return muster.Errorf(muster.Unavailable, "the database %s is locked by another program: close it, then try again: %w", s.path, err)
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return muster.Errorf(muster.Internal, "the database %s is damaged: restore it from a backup: %w", s.path, err)
	default:
		return muster.Errorf(muster.Internal, "cannot %s the database %s: %w", verb, s.path, err)
	}
}

func errClosed() error { return muster.Errorf(muster.Unavailable, "the database is closed") }
