package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/muster-dev/muster"
)

// conn is a connection with its prepared statements. One goroutine at a time uses it.
type conn struct {
	db     *sqlite3.Conn
	stmts  map[string]*sqlite3.Stmt
	grants grantEncoder
	broken bool // a rollback failed: the connection is unusable
}

const busyTimeout = 5 * time.Second

func openConn(ctx context.Context, path string, pragmas string) (*conn, error) {
	db, err := sqlite3.OpenContext(ctx, databaseURI(path))
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	c := &conn{db: db, stmts: make(map[string]*sqlite3.Stmt)}
	if err := db.BusyTimeout(busyTimeout); err != nil {
		return nil, c.closeWith(fmt.Errorf("set the busy timeout: %w", err))
	}
	if err := db.Exec(pragmas); err != nil {
		return nil, c.closeWith(fmt.Errorf("set up the connection: %w", err))
	}
	return c, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.db.Close())...)
}

// closeWith closes the connection after err and returns err.
func (c *conn) closeWith(err error) error {
	if cerr := c.close(); cerr != nil {
		return fmt.Errorf("%w (closing also failed: %w)", err, cerr)
	}
	return err
}

// stmt returns the statement of sql, reset and with all parameters NULL.
func (c *conn) stmt(sql string) (*sqlite3.Stmt, error) {
	s, ok := c.stmts[sql]
	if ok {
		return s, s.ClearBindings()
	}
	s, _, err := c.db.PrepareFlags(sql, sqlite3.PREPARE_PERSISTENT)
	if err != nil {
		return nil, fmt.Errorf("prepare %.40q: %w", sql, err)
	}
	c.stmts[sql] = s
	return s, nil
}

// bound returns the statement of sql with its parameters, which bind sets in their order.
func (c *conn) bound(sql string, bind func(*params)) (*sqlite3.Stmt, error) {
	s, err := c.stmt(sql)
	if err != nil || bind == nil {
		return s, err
	}
	p := params{s: s, grants: &c.grants}
	bind(&p)
	return s, p.err
}

// exec runs a statement that returns no rows.
func (c *conn) exec(sql string, bind func(*params)) error {
	s, err := c.bound(sql, bind)
	if err != nil {
		return err
	}
	return s.Exec()
}

// query runs a statement and calls row for each row of its result, until row
// returns false.
func (c *conn) query(sql string, bind func(*params), row func(*columns) bool) error {
	s, err := c.bound(sql, bind)
	if err != nil {
		return err
	}
	for s.Step() {
		cols := columns{s: s}
		more := row(&cols)
		if cols.err != nil {
			return cmp.Or(cols.err, s.Reset())
		}
		if !more {
			return s.Reset()
		}
	}
	err = s.Err()
	return cmp.Or(err, s.Reset()) // Reset repeats the error of the last step
}

// list returns the rows of a query.
func list[T any](c *conn, sql string, bind func(*params), read func(row, *T)) ([]T, error) {
	var all []T
	err := c.query(sql, bind, func(cols *columns) bool {
		var v T
		read(row{c: cols}, &v)
		all = append(all, v)
		return true
	})
	return all, err
}

// first returns the first row of a query, and whether there is one.
func first[T any](c *conn, sql string, bind func(*params), read func(row, *T)) (v T, found bool, err error) {
	err = c.query(sql, bind, func(cols *columns) bool {
		read(row{c: cols}, &v)
		found = true
		return false
	})
	return v, found, err
}

// read returns the result of f, which reads in one transaction.
func read[T any](ctx context.Context, s *Store, f func(*conn) (T, error)) (v T, err error) {
	err = s.readTx(ctx, func(c *conn) error {
		v, err = f(c)
		return err
	})
	return v, err
}

// readFirst is first in a transaction of its own.
func readFirst[T any](ctx context.Context, s *Store, sql string, bind func(*params), fields func(row, *T)) (v T, found bool, err error) {
	v, err = read(ctx, s, func(c *conn) (T, error) {
		v, found, err = first(c, sql, bind, fields)
		return v, err
	})
	return v, found, err
}

// readList is list in a transaction of its own.
func readList[T any](ctx context.Context, s *Store, sql string, bind func(*params), fields func(row, *T)) ([]T, error) {
	return read(ctx, s, func(c *conn) ([]T, error) { return list(c, sql, bind, fields) })
}

// inTx runs f in a transaction. It is rolled back if f fails or ctx ends.
func (c *conn) inTx(ctx context.Context, begin string, f func() error) (err error) {
	background := c.db.SetInterrupt(ctx)
	defer c.db.SetInterrupt(background)
	err = c.exec(begin, nil) // if ctx ends now, it may have begun and fail all the same
	if err == nil {
		err = f()
	}
	if err == nil {
		err = c.exec("COMMIT", nil)
	}
	if err != nil && !c.db.GetAutocommit() {
		c.db.SetInterrupt(background)
		if rerr := c.exec("ROLLBACK", nil); rerr != nil {
			c.broken = true
			return fmt.Errorf("%w (rolling back also failed: %w)", err, rerr)
		}
	}
	return err
}

// A read takes its snapshot at the first statement; a write takes the lock at once.
const (
	forReading = "BEGIN DEFERRED"
	forWriting = "BEGIN IMMEDIATE"
)

// wrapError converts an error of SQLite to a muster.Error. verb is such as "read".
func (s *Store) wrapError(ctx context.Context, verb string, err error) error {
	if e, ok := errors.AsType[*muster.Error](err); ok {
		return e
	}
	switch {
	case ctx.Err() != nil && (errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, ctx.Err())):
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
