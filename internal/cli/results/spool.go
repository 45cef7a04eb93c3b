package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/muster-dev/muster"
)

// spool keeps rows in a compressed temporary file. It is for one goroutine.
type spool struct {
	file    *os.File
	zip     *zstd.Encoder
	encoder *json.Encoder
	job     *muster.Job // of the last row
	rows    int
}

// entry is a job, or a task of the job before it.
type entry struct {
	Job  *muster.Job  `json:"job,omitempty"`
	Task *muster.Task `json:"task,omitempty"`
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "muster-results-*")
	if err != nil {
		return nil, muster.Errorf(muster.Internal, "create a temporary file for the results: %w", err)
	}
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	s := &spool{file: f, zip: z, encoder: json.NewEncoder(z)}
	s.encoder.SetEscapeHTML(false) // results stay as they are
	return s, nil
}

// close removes the file.
func (s *spool) close() {
	_ = s.file.Close() // nothing of it is needed any more
	_ = os.Remove(s.file.Name())
}

// add appends a row. The rows of a job follow each other.
func (s *spool) add(r row) error {
	var err error
	if s.job != r.job {
		s.job = r.job
		err = s.encoder.Encode(entry{Job: r.job})
	}
	if err == nil {
		err = s.encoder.Encode(entry{Task: r.task})
	}
	if err != nil {
		return s.failure(err)
	}
	s.rows++
	return nil
}

// finish ends the writing.
func (s *spool) finish() error {
	if err := s.zip.Close(); err != nil {
		return s.failure(err)
	}
	return nil
}

func (s *spool) failure(err error) error {
	return muster.Errorf(muster.Internal, "the temporary file for the results, below %s, failed: %w", os.TempDir(), err)
}

// all yields the rows from the first one on. An error ends the sequence.
func (s *spool) all() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			yield(row{}, s.failure(err))
			return
		}
		z, err := zstd.NewReader(bufio.NewReaderSize(s.file, 64<<10), zstd.WithDecoderConcurrency(1))
		if err != nil {
			yield(row{}, s.failure(err))
			return
		}
		defer z.Close()
		decoder := json.NewDecoder(z)
		var job *muster.Job
		for {
			var e entry
			switch err := decoder.Decode(&e); {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(row{}, s.failure(err))
				return
			case e.Job != nil:
				job = e.Job
			case !yield(row{job, e.Task}, nil):
				return
			}
		}
	}
}
