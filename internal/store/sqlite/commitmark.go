package sqlite

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-dev/muster"
)

// commitMarkName is the file in the database's directory that repeats the position of the last commit.
const commitMarkName = "last-commit"

// position is the state of a database after a commit.
type position struct {
	id      string       // of the database
	seq     int64        // of the last commit
	nextJob muster.JobID // the number of the next job
}

// commitMark is the file that repeats the position of the last commit. It is written after each commit and before
// Commit returns, so a kill at any time never leaves it ahead of the database. It is not synced:
// after a loss of power it may be behind the database, which is harmless.
type commitMark struct{ file *os.File }

const commitMarkFormat = "muster 1 %s %020d %020d"

// openCommitMark opens the mark in a directory, and creates it if needed.
func openCommitMark(folder string) (*commitMark, error) {
	f, err := os.OpenFile(filepath.Join(folder, commitMarkName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot open the commit mark: %w", err)
	}
	return &commitMark{f}, nil
}

// write replaces the position in the mark. The line always has the same length.
func (m *commitMark) write(p position) error {
	line := fmt.Sprintf(commitMarkFormat, p.id, p.seq, p.nextJob)
	_, err := m.file.WriteAt(fmt.Appendf(nil, "%s %08x\n", line, crc32.ChecksumIEEE([]byte(line))), 0)
	return err
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
	line := fmt.Sprintf(commitMarkFormat, p.id, p.seq, p.nextJob)
	if string(b) != fmt.Sprintf("%s %08x\n", line, crc32.ChecksumIEEE([]byte(line))) {
		return position{}, false, nil
	}
	return p, true, nil
}
