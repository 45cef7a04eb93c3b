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

// commitMarkName is the file in the database's folder that repeats which commit was the last one.
const commitMarkName = "last-commit"

// position says how far a database has come.
type position struct {
	id      string       // of the database
	seq     int64        // of the last commit
	nextJob muster.JobID // the number that the next job gets
}

// commitMark is the file that repeats the position of the last commit. It is written after each commit and before anybody
// is told of that, so that it is never ahead of a sound database, whenever the process is killed. It is not synced:
// after a loss of power it may be behind the database, which is of no harm.
type commitMark struct{ file *os.File }

const commitMarkFormat = "muster 1 %s %020d %020d"

// openCommitMark opens the mark in a folder, and makes it if it is not there.
func openCommitMark(folder string) (*commitMark, error) {
	f, err := os.OpenFile(filepath.Join(folder, commitMarkName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, muster.Errorf(muster.Unavailable, "cannot open the file that repeats the last commit: %w", err)
	}
	return &commitMark{f}, nil
}

// write replaces what the mark says. The line always has the same length.
func (m *commitMark) write(p position) error {
	line := fmt.Sprintf(commitMarkFormat, p.id, p.seq, p.nextJob)
	_, err := m.file.WriteAt(fmt.Appendf(nil, "%s %08x\n", line, crc32.ChecksumIEEE([]byte(line))), 0)
	return err
}

// readCommitMark reads the mark in a folder. ok is false if there is none, or one that is damaged.
func readCommitMark(folder string) (p position, ok bool, err error) {
	f, err := os.Open(filepath.Join(folder, commitMarkName))
	if errors.Is(err, fs.ErrNotExist) {
		return position{}, false, nil
	}
	if err != nil {
		return position{}, false, muster.Errorf(muster.Unavailable, "cannot read the file that repeats the last commit: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return position{}, false, muster.Errorf(muster.Unavailable, "cannot read the file that repeats the last commit: %w", err)
	}
	if _, err := fmt.Sscanf(string(b), commitMarkFormat, &p.id, &p.seq, &p.nextJob); err != nil {
		return position{}, false, nil // damaged: it is written again
	}
	line := fmt.Sprintf(commitMarkFormat, p.id, p.seq, p.nextJob)
	if string(b) != fmt.Sprintf("%s %08x\n", line, crc32.ChecksumIEEE([]byte(line))) {
		return position{}, false, nil
	}
	return p, true, nil
}
