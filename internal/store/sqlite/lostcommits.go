package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ncruces/go-sqlite3"

	"github.com/muster-dev/muster"
)

// Options are options of Open.
type Options struct {
	// UsedJob is the highest job number known to be used from outside the database, or 0.
	UsedJob muster.JobID
	// AcceptLoss opens a database that lacks acknowledged commits.
	AcceptLoss bool
}

// Loss is what a database lacks.
type Loss struct {
	OtherDatabase bool         // it is not the database that was last used in its directory
	Commits       int64        // that are missing, as far as they can be counted
	FirstJob      muster.JobID // jobs from this number on may be missing
	LastJob       muster.JobID // up to this one; less than FirstJob if no job is missing
}

// String describes the loss for messages.
func (l *Loss) String() string {
	text := fmt.Sprintf("its last %d commits are missing", l.Commits)
	switch {
	case l.OtherDatabase:
		text = "it is missing, or not the one that was last used there"
	case l.Commits == 0:
		text = "it is older than the logs beside it"
	}
	switch {
	case l.FirstJob == l.LastJob:
		text += fmt.Sprintf(", and with them job %s", l.FirstJob)
	case l.FirstJob < l.LastJob:
		text += fmt.Sprintf(", and with them jobs %s to %s", l.FirstJob, l.LastJob)
	}
	return text
}

func (s *Store) lossError(l *Loss) error {
	return muster.Errorf(muster.Conflict,
		"the database %s lacks acknowledged commits: %s; its write-ahead log (-wal) was damaged or removed, or an older copy was restored: "+
			"restore a backup of the whole data directory, or continue without them with --accept-loss", s.path, l)
}

// detectLoss compares the database with the mark and with the job numbers known to be used. It
// writes nothing, not even to the write-ahead log. It returns nil if nothing is missing.
func (s *Store) detectLoss(ctx context.Context, used muster.JobID) (*Loss, error) {
	last, marked, err := readCommitMark(filepath.Dir(s.path))
	if err != nil {
		return nil, err
	}
	onDisk, err := s.readPosition(ctx)
	if err != nil {
		return nil, err
	}
	lastUsed := used
	if marked {
		lastUsed = max(lastUsed, last.nextJob-1)
	}
	l := &Loss{FirstJob: onDisk.nextJob, LastJob: lastUsed}
	switch {
	case marked && last.id != onDisk.id:
		l.OtherDatabase = true
		l.Commits = 0
	case marked && last.seq > onDisk.seq:
		l.Commits = last.seq - onDisk.seq
	case used >= onDisk.nextJob:
	default:
		return nil, nil //nolint:nilnil // nothing is missing
	}
	return l, nil
}

// readPosition reads the position of the database on disk. A missing database, and one of an older Muster, has no id.
func (s *Store) readPosition(ctx context.Context) (p position, err error) {
	p.nextJob = 1
	if info, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return p, nil
	}
	c, err := openConn(ctx, s.path, "PRAGMA query_only = ON;")
	if err != nil {
		return p, s.wrapError(ctx, "open", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	// Otherwise closing the last connection would checkpoint and delete the write-ahead log.
	if _, err := c.db.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
		return p, s.wrapError(ctx, "open", err)
	}
	if err := c.inTx(ctx, forReading, func() error { return c.readPosition(&p) }); err != nil {
		return p, s.wrapError(ctx, "read", err)
	}
	return p, nil
}

func (c *conn) readPosition(p *position) error {
	tables, err := list(c, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('job', 'life')", nil, text[string])
	if err == nil && slices.Contains(tables, "job") {
		p.nextJob, _, err = first(c, "SELECT ifnull(max(id), 0) + 1 FROM job", nil, number[muster.JobID])
	}
	if err == nil && slices.Contains(tables, "life") {
		err = c.query("SELECT id, seq, next_job FROM life", nil, func(cols *columns) bool {
			p.id, p.seq = cols.text(), cols.int()
			p.nextJob = max(p.nextJob, muster.JobID(cols.int()))
			return true
		})
	}
	return err
}

// acceptLoss continues without the missing commits: the database gets a new id, and no job number is used twice.
func (s *Store) acceptLoss(ctx context.Context, l *Loss) error {
	return s.writeTx(ctx, func(c *conn) error {
		result, _, err := first(c, "PRAGMA integrity_check(1)", nil, text[string])
		if err != nil {
			return err
		}
		if result != "ok" {
			return muster.Errorf(muster.Internal, "the database %s is also damaged: restore it from a backup", s.path)
		}
		return c.exec("UPDATE life SET id = lower(hex(randomblob(16))), next_job = max(next_job, ?)", values(int64(l.LastJob)+1))
	})
}

// countCommit counts the commit in its own transaction. next is the least number of the next job, or 0.
func (s *Store) countCommit(next muster.JobID) error {
	return s.writer.query("UPDATE life SET seq = seq + 1, next_job = max(next_job, ?) RETURNING id, seq, next_job", values(int64(next)),
		func(cols *columns) bool {
			s.lastCommit.id, s.lastCommit.seq, s.lastCommit.nextJob = cols.text(), cols.int(), muster.JobID(cols.int())
			return true
		})
}

// writeMark writes the mark of the last commit. Without the mark a later loss of this commit is not
// detected, but the commit itself succeeded, so errors are ignored.
func (s *Store) writeMark() { _, _ = s.mark.WriteAt(s.lastCommit.markText(), 0) }

// commitMarkName is the file in the database's directory that repeats the position of the last commit. It is written after each
// commit and before Commit returns, so a kill at any time never leaves it ahead of the database. It is not synced: after a loss of
// power it may be behind the database, which is harmless.
const commitMarkName = "last-commit"

// position is the state of a database after a commit.
type position struct {
	id      string       // of the database
	seq     int64        // of the last commit
	nextJob muster.JobID // the number of the next job
}

const commitMarkFormat = "muster 1 %s %020d %020d"

// openCommitMark opens the mark in a directory, and creates it if needed.
func openCommitMark(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, commitMarkName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot open the commit mark: %w", err)
	}
	return f, nil
}

// markText returns the content of the mark, which always has the same length.
func (p *position) markText() []byte {
	line := fmt.Sprintf(commitMarkFormat, p.id, p.seq, p.nextJob)
	return fmt.Appendf(nil, "%s %08x\n", line, crc32.ChecksumIEEE([]byte(line)))
}

// readCommitMark reads the mark in a directory. ok is false if it is missing or damaged.
func readCommitMark(folder string) (p position, ok bool, err error) {
	f, err := os.Open(filepath.Join(folder, commitMarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, false, nil
	}
	if err != nil {
		return position{}, false, muster.Errorf(muster.Unavailable, "cannot read the commit mark: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return position{}, false, muster.Errorf(muster.Unavailable, "cannot read the commit mark: %w", err)
	}
	if _, err := fmt.Sscanf(string(b), commitMarkFormat, &p.id, &p.seq, &p.nextJob); err != nil {
		return position{}, false, nil // damaged: Open replaces it
	}
	if !bytes.Equal(b, p.markText()) {
		return position{}, false, nil
	}
	return p, true, nil
}
