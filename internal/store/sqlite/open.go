package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/store"
)

// Store is one open database. All methods may be called at the same time.
type Store struct {
	path string
	lock *os.File

	mark *os.File // commitMarkName
	loss *Loss    // accepted loss, or nil

	writeMu       sync.Mutex
	lastCommit    position
	writer        *conn                         // nil after Close
	resolvedSpecs map[groupKey]*muster.TaskSpec // as on disk; see cacheResolved
	openTasks     map[int64]struct{}            // rows of tasks on disk that have not ended

	readers chan *conn // nil entries are connections not opened yet
	closed  chan struct{}
}

var (
	_ store.Writer         = (*Store)(nil)
	_ store.Reader         = (*Store)(nil)
	_ store.KeyStore       = (*Store)(nil)
	_ store.EnrolmentStore = (*Store)(nil)
	_ store.Snapshotter    = (*Store)(nil)
)

const maxReaders = 4

// The WAL is checkpointed every 16 MiB instead of 4, so that pages that change
// often are copied back less often, and truncated after a burst.
const (
	writerPragmas = `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
PRAGMA cache_size = -32768; PRAGMA wal_autocheckpoint = 4096; PRAGMA journal_size_limit = 67108864; PRAGMA temp_store = MEMORY;`
	readerPragmas = `PRAGMA query_only = ON; PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY;`
)

var errLocked = errors.New("locked")

// Open opens the database file at path, creating it and its directory if needed,
// and updates its schema. It refuses a file that another server has
// open, one of a newer Muster, one that is not a database of Muster, and, without AcceptLoss, one without
// some acknowledged commits.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot resolve the path of the database: %w", err)
	}
	s := &Store{
		path:          path,
		resolvedSpecs: make(map[groupKey]*muster.TaskSpec),
		openTasks:     make(map[int64]struct{}),
		readers:       make(chan *conn, maxReaders),
		closed:        make(chan struct{}),
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot create the directory of the database: %w", err)
	}
	if err := s.acquireLock(); err != nil {
		return nil, err
	}
	if err := s.open(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) acquireLock() (err error) {
	s.lock, err = lockFile(s.path + lockSuffix)
	if errors.Is(err, errLocked) {
		return muster.Errorf(muster.Conflict, "the database %s is in use by another server: stop that server, or choose another data directory", s.path)
	}
	if err != nil {
		return muster.Errorf(muster.Unavailable, "cannot lock the database %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	if err := registerVFS(); err != nil {
		return s.wrapError(ctx, "open", err)
	}
	loss, err := s.detectLoss(ctx, o.UsedJob)
	if err != nil {
		return err
	}
	if loss != nil && !o.AcceptLoss {
		return s.lossError(loss)
	}
	if err := migrate(ctx, s.path); err != nil {
		return s.wrapError(ctx, "prepare", err)
	}
	if s.mark, err = openCommitMark(filepath.Dir(s.path)); err != nil {
		return err
	}
	if err := restrictFile(s.path + "-shm"); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot restrict the database to its user: %w", err)
	}
	if s.writer, err = openConn(ctx, s.path, writerPragmas); err != nil {
		return s.wrapError(ctx, "open", err)
	}
	for range maxReaders {
		s.readers <- nil
	}
	if s.loss = loss; loss != nil {
		return s.acceptLoss(ctx, loss)
	}
	if err := s.writer.inTx(ctx, forReading, func() error { return s.writer.readPosition(&s.lastCommit) }); err != nil {
		return s.wrapError(ctx, "read", err)
	}
	s.writeMark() // there may be no mark yet, or one from before a loss of power
	return nil
}

// restrictFile makes a file that only its user reads and writes, or restricts the one that is there. SQLite gives its log the mode of
// its database; the driver gives shared memory 0666 less the umask.
func restrictFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

// Loss returns what the database lacks if Open accepted a loss, or nil.
func (s *Store) Loss() *Loss { return s.loss }

// Close waits for running calls and closes the file. Later calls fail with Unavailable.
func (s *Store) Close() error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	select {
	case <-s.closed:
		return nil
	default:
		close(s.closed)
	}
	var errs []error
	if s.writer != nil {
		for range maxReaders {
			if c := <-s.readers; c != nil {
				errs = append(errs, c.close())
			}
		}
		// Last, because the last connection moves the WAL into the database.
		errs = append(errs, s.writer.close())
		s.writer = nil
	}
	if s.mark != nil {
		errs = append(errs, s.mark.Close())
	}
	errs = append(errs, s.lock.Close())
	if err := errors.Join(errs...); err != nil {
		return muster.Errorf(muster.Internal, "closing the database %s: %w", s.path, err)
	}
	return nil
}

// readTx runs f in a transaction on a free reading connection: f sees one consistent snapshot.
func (s *Store) readTx(ctx context.Context, f func(*conn) error) error {
	select { // closed has priority over a free reader
	case <-s.closed:
		return errClosed()
	default:
	}
	var c *conn
	select {
	case <-s.closed:
		return errClosed()
	case <-ctx.Done():
		return muster.Errorf(muster.Unavailable, "waiting to read the database: %w", context.Cause(ctx))
	case c = <-s.readers:
	}
	defer func() {
		if c != nil && c.broken {
			_ = c.close() // inTx has returned the error
			c = nil
		}
		s.readers <- c
	}()
	if c == nil {
		opened, err := openConn(ctx, s.path, readerPragmas)
		if err != nil {
			return s.wrapError(ctx, "open", err)
		}
		c = opened
	}
	if err := c.inTx(ctx, forReading, func() error { return f(c) }); err != nil {
		return s.wrapError(ctx, "read", err)
	}
	return nil
}
