package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// conn is a connection with the statements that were prepared on it. It serves
// one goroutine at a time.
type conn struct {
	db     *sqlite3.Conn
	stmts  map[string]*sqlite3.Stmt
	broken bool // in a transaction that could not be undone: it is of no more use
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
	var first error
	for _, s := range c.stmts {
		if err := s.Close(); err != nil && first == nil {
			first = err
		}
	}
	if err := c.db.Close(); err != nil && first == nil {
		first = err
	}
	return first
}

// closeWith closes the connection because of err, which it returns.
func (c *conn) closeWith(err error) error {
	if cerr := c.close(); cerr != nil {
		return fmt.Errorf("%w (and closing: %w)", err, cerr)
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

// exec runs a statement that returns no rows; bind sets its parameters in their order.
func (c *conn) exec(sql string, bind func(*params)) error {
	s, err := c.stmt(sql)
	if err != nil {
		return err
	}
	p := params{s: s}
	if bind != nil {
		bind(&p)
	}
	if p.err != nil {
		return p.err
	}
	return s.Exec()
}

// query runs a statement and calls row for each row of its result, until row
// returns false.
func (c *conn) query(sql string, bind func(*params), row func(*columns) bool) error {
	s, err := c.stmt(sql)
	if err != nil {
		return err
	}
	p := params{s: s}
	if bind != nil {
		bind(&p)
	}
	if p.err != nil {
		return p.err
	}
	for s.Step() {
		cols := columns{s: s}
		more := row(&cols)
		if cols.err != nil {
			return firstError(cols.err, s.Reset())
		}
		if !more {
			return s.Reset()
		}
	}
	err = s.Err()
	// Reset repeats the error of the last step.
	return firstError(err, s.Reset())
}

// inTx runs f in a transaction: all of it happens, or nothing. It ends early,
// undone, when ctx ends.
func (c *conn) inTx(ctx context.Context, begin string, f func() error) (err error) {
	background := c.db.SetInterrupt(ctx)
	defer c.db.SetInterrupt(background)
	if err := c.exec(begin, nil); err != nil {
		return err
	}
	err = f()
	if err == nil {
		err = c.exec("COMMIT", nil)
	}
	if err != nil && !c.db.GetAutocommit() {
		c.db.SetInterrupt(background)
		if rerr := c.exec("ROLLBACK", nil); rerr != nil {
			c.broken = true
			return fmt.Errorf("%w (and undoing: %w)", err, rerr)
		}
	}
	return err
}

// Reads take a snapshot at their first statement; a write takes the lock at once.
const (
	forReading = "BEGIN DEFERRED"
	forWriting = "BEGIN IMMEDIATE"
)

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
