package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/pressly/goose/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// snapshotPages is how many pages are copied without a pause: 1 MiB.
const snapshotPages = 256

// Snapshot implements store.Snapshotter. It uses a connection of its own and SQLite's online backup inside one read transaction: the
// copy does not start again when the writer commits, and neither the writer nor readers wait for it. Meanwhile the write-ahead
// log grows by what is written.
func (s *Store) Snapshot(ctx context.Context, path string) (info store.DatabaseInfo, err error) {
	select {
	case <-s.closed:
		return info, errClosed()
	default:
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return info, muster.Errorf(muster.Unavailable, "cannot create the copy of the database: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(s.wrapError(ctx, "copy", err), removeDatabase(path))
		}
	}()
	if err := f.Close(); err != nil {
		return info, err
	}
	c, err := openConn(ctx, s.path, readerPragmas)
	if err != nil {
		return info, err
	}
	// Otherwise closing the last connection to the database of a stopped server would change it.
	_, err = c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true)
	if err == nil {
		err = c.inTx(ctx, forReading, func() error {
			if info, err = c.info(); err != nil { // takes the snapshot
				return err
			}
			return s.copyPages(ctx, c, path)
		})
	}
	if err = errors.Join(err, c.close()); err != nil {
		return info, err
	}
	stat, err := os.Stat(path)
	if err != nil {
		return info, err
	}
	info.Bytes = stat.Size()
	return info, nil
}

func (s *Store) copyPages(ctx context.Context, c *conn, path string) (err error) {
	b, err := c.db.BackupInit("main", uri(path, copyVFSName, path))
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, b.Close()) }()
	for {
		began := time.Now()
		done, err := b.Step(snapshotPages)
		if done || err != nil {
			return err
		}
		select { // leave the disk and the processor to others half of the time
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return muster.Errorf(muster.Unavailable, "copying the database: %w", context.Cause(ctx))
		case <-s.closed:
			return errClosed()
		}
	}
}

// Stopped is the database of a server that does not run. It is locked, so that no server starts, and never written: its schema
// stays as it is. Close it.
type Stopped struct{ s Store }

// OpenStopped locks the database at path. It refuses one that a server uses, and one without some acknowledged commits.
func OpenStopped(ctx context.Context, path string) (*Stopped, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot resolve the path of the database: %w", err)
	}
	d := &Stopped{Store{path: path, closed: make(chan struct{})}}
	if _, err := os.Stat(path); err != nil {
		return nil, muster.Errorf(muster.NotFound, "there is no database of a server: %w", err)
	}
	if err := d.s.acquireLock(); err != nil {
		return nil, err
	}
	if err := d.check(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Stopped) check(ctx context.Context) error {
	if err := registerVFS(); err != nil {
		return d.s.wrapError(ctx, "open", err)
	}
	loss, err := d.s.detectLoss(ctx, 0)
	if err == nil && loss != nil {
		err = d.s.lossError(loss)
	}
	return err
}

// Snapshot implements store.Snapshotter.
func (d *Stopped) Snapshot(ctx context.Context, path string) (store.DatabaseInfo, error) {
	return d.s.Snapshot(ctx, path)
}

// Close unlocks the database.
func (d *Stopped) Close() error { return d.s.lock.Close() }

// removeDatabase removes the database file at path with the files that SQLite puts beside it.
func removeDatabase(path string) error {
	var errs []error
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// info reads everything but the size.
func (c *conn) info() (info store.DatabaseInfo, err error) {
	var p position
	if err := c.readPosition(&p); err != nil {
		return info, err
	}
	info.ID, info.NextJob = p.id, p.nextJob
	info.Schema, _, err = first(c, "SELECT ifnull(max(version_id), 0) FROM goose_db_version WHERE is_applied", nil, number[int64])
	return info, err
}

// Verify reads a whole database file that no process has open and that has no write-ahead log, without changing anything. It
// returns Conflict for a database of a newer Muster, and Internal for a damaged one.
func Verify(ctx context.Context, path string) (info store.DatabaseInfo, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return info, muster.Errorf(muster.Unavailable, "cannot resolve the path of the database: %w", err)
	}
	s := &Store{path: path}
	defer func() {
		if err != nil {
			err = s.wrapError(ctx, "check", err)
		}
	}()
	stat, err := os.Stat(path)
	if err != nil {
		return info, err
	}
	db, err := sqlite3.OpenContext(ctx, uri(path, "os", path)+"&mode=ro&immutable=1")
	if err != nil {
		return info, err
	}
	c := &conn{db: db, stmts: make(map[string]*sqlite3.Stmt)}
	defer func() { err = errors.Join(err, c.close()) }()
	background := db.SetInterrupt(ctx)
	defer db.SetInterrupt(background)
	id, _, err := first(c, "PRAGMA application_id", nil, number[int64])
	if err != nil {
		return info, err
	}
	if id != applicationID {
		return info, muster.Errorf(muster.Conflict, "the file %s is not a database of Muster", path)
	}
	problem, _, err := first(c, "PRAGMA quick_check(1)", nil, text[string])
	if err != nil {
		return info, err
	}
	if problem != "ok" {
		return info, muster.Errorf(muster.Internal, "the database %s is damaged: %s", path, problem)
	}
	if info, err = c.info(); err != nil {
		return info, err
	}
	info.Bytes = stat.Size()
	supported, err := newestSchema()
	if err != nil {
		return info, err
	}
	if info.Schema > supported {
		return info, newerSchemaError(path, info.Schema, supported)
	}
	return info, nil
}

// newestSchema returns the version of the schema that this program writes.
func newestSchema() (newest int64, err error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return 0, err
	}
	for _, name := range files {
		v, err := goose.NumericComponent(name)
		if err != nil {
			return 0, fmt.Errorf("number of %s: %w", name, err)
		}
		newest = max(newest, v)
	}
	return newest, nil
}

func newerSchemaError(path string, schema, supported int64) error {
	return muster.Errorf(muster.Conflict,
		"the database %s has schema version %d and this muster supports versions up to %d: run a newer muster, or restore a backup from before the upgrade",
		path, schema, supported)
}
