package tasklog

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// An indexed directory has the logs of job 17042 in 17k/17042, so that no directory has an entry for each job: a server stores the
// logs of millions. Other directories, those of workers and shims, have them in 17042. The directory removed has logs that
// Remove moved there and Sweep deletes.

const (
	perBucket  = 1000 // jobs
	removedDir = "removed"
)

func bucketName(number int64) string { return strconv.FormatInt(number, 10) + "k" }

// parseNumber parses the name of a bucket, with the suffix "k", or of a job's directory.
func parseNumber(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && err == nil && n >= 0 && strconv.FormatInt(n, 10) == digits
}

func (d *Dir) jobDir(j muster.JobID) string {
	if d.withIndex {
		return filepath.Join(d.root, bucketName(int64(j)/perBucket), j.String())
	}
	return filepath.Join(d.root, j.String())
}

// moveToBuckets moves the directories of jobs that an older Muster wrote. It may be repeated after a kill at any time. A directory
// whose new place is taken stays.
func (d *Dir) moveToBuckets() error {
	return d.eachName(d.root, func(name string) error {
		n, ok := parseNumber(name, "")
		if !ok || n == 0 {
			return nil
		}
		to := d.jobDir(muster.JobID(n))
		err := os.Mkdir(filepath.Dir(to), 0o700)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Rename(filepath.Join(d.root, name), to)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return muster.Errorf(muster.Unavailable, "cannot move the logs of job %d to %s: %w", n, to, err)
		}
		return nil
	})
}

// eachName calls f for each name in a directory, in no order. A missing directory has none.
func (d *Dir) eachName(path string, f func(name string) error) error {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && path != d.root {
		return nil
	}
	if err != nil {
		return errList(err)
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(10_000)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errList(err)
		}
	}
}

// numbers returns the numbers of a directory's entries with a suffix, in order.
func (d *Dir) numbers(path, suffix string) (list []int64, err error) {
	err = d.eachName(path, func(name string) error {
		if n, ok := parseNumber(name, suffix); ok {
			list = append(list, n)
		}
		return nil
	})
	slices.Sort(list)
	return list, err
}

// LastJob returns the highest number of a job that has logs, or 0. In an indexed directory it does not list all jobs.
func (d *Dir) LastJob() (muster.JobID, error) {
	jobs, err := d.numbers(d.root, "")
	if err != nil {
		return 0, err
	}
	buckets, err := d.numbers(d.root, "k")
	for i := len(buckets) - 1; i >= 0 && err == nil; i-- {
		var list []int64
		if list, err = d.numbers(filepath.Join(d.root, bucketName(buckets[i])), ""); len(list) > 0 {
			jobs = append(jobs, list[len(list)-1])
			break
		}
	}
	return muster.JobID(max(0, slices.Max(append(jobs, 0)))), err
}

// Jobs lists jobs that have logs in an indexed directory, by number, from the one after the given one: at least limit of them, unless there are
// no more, and at most the rest of a bucket more.
func (d *Dir) Jobs(after muster.JobID, limit int) ([]muster.JobID, error) {
	buckets, err := d.numbers(d.root, "k")
	if err != nil {
		return nil, err
	}
	from, _ := slices.BinarySearch(buckets, (int64(after)+1)/perBucket)
	var jobs []muster.JobID
	for _, b := range buckets[from:] {
		list, err := d.numbers(filepath.Join(d.root, bucketName(b)), "")
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if id := muster.JobID(n); id > after {
				jobs = append(jobs, id)
			}
		}
		if len(jobs) >= limit {
			break
		}
	}
	return jobs, nil
}

// JobTime returns when the first log of a block of 1,000 tasks of the job was last created, or the zero time if the job has no logs.
func (d *Dir) JobTime(job muster.JobID) (time.Time, error) {
	info, err := os.Stat(d.jobDir(job))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, errList(err)
	}
	return info.ModTime(), nil
}

// Remove implements Store: it moves the logs away, which takes no longer for many logs than for one. Sweep deletes them. An Append at
// the same time may create a log again.
func (d *Dir) Remove(_ context.Context, job muster.JobID) error {
	ofJob := func(a muster.AttemptID) bool { return a.Task.Job == job }
	if err := d.closeFiles(ofJob); err != nil { // some systems do not rename open files
		return err
	}
	if err := d.moveAway(job); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove the logs of job %s: %w", job, err)
	}
	return d.closeFiles(ofJob) // those opened before the move, so that Sweep frees their space
}

func (d *Dir) moveAway(job muster.JobID) error {
	d.dirsMu.Lock()
	defer d.dirsMu.Unlock()
	dir := d.jobDir(job)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	removed := filepath.Join(d.root, removedDir)
	if err := os.Mkdir(removed, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	err := fs.ErrExist
	for n := time.Now().UnixNano(); errors.Is(err, fs.ErrExist); n++ {
		err = os.Rename(dir, filepath.Join(removed, job.String()+"-"+strconv.FormatInt(n, 10)))
	}
	if err == nil {
		d.removeEmptyBucket(job)
	}
	return err
}

// removeEmptyBucket removes the bucket of a job if it is empty. The caller holds dirsMu for writing.
func (d *Dir) removeEmptyBucket(job muster.JobID) {
	if d.withIndex {
		_ = os.Remove(filepath.Dir(d.jobDir(job))) // it fails for others
	}
}

// Sweep deletes at most limit files and directories of those that Remove moved away, also before a restart. freed is the size of the deleted
// files, more reports whether some are left that it can delete. One goroutine at a time may call it.
func (d *Dir) Sweep(limit int) (freed muster.Size, more bool, err error) {
	removed := filepath.Join(d.root, removedDir)
	s := sweep{limit: limit}
	empty, err := s.dir(removed)
	if empty {
		d.dirsMu.Lock()
		_ = os.Remove(removed) // it fails if Remove has moved another job there
		d.dirsMu.Unlock()
	}
	return s.freed, s.limit <= 0 && err == nil, err
}

// sweep is one call of Sweep.
type sweep struct {
	limit int         // files and directories that it may still delete
	freed muster.Size // of deleted files
}

// dir deletes the content of a directory until the limit is used up. empty reports whether all is deleted. An entry that cannot be
// deleted does not stop it; the first error is returned.
func (s *sweep) dir(path string) (empty bool, firstErr error) {
	dir, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, errList(err)
	}
	defer dir.Close()
	empty = true
	for s.limit > 0 {
		names, err := dir.Readdirnames(min(s.limit, 1000))
		for _, name := range names {
			deleted, err := s.entry(filepath.Join(path, name))
			empty = empty && deleted
			if firstErr == nil {
				firstErr = err
			}
		}
		if errors.Is(err, io.EOF) {
			return empty, firstErr
		}
		if err != nil {
			return false, errList(err)
		}
	}
	return false, firstErr
}

func (s *sweep) entry(path string) (deleted bool, err error) {
	if s.limit <= 0 {
		return false, nil
	}
	s.limit--
	info, statErr := os.Lstat(path)
	err = os.Remove(path)
	if errors.Is(err, fs.ErrExist) { // a directory that is not empty
		if empty, sweepErr := s.dir(path); !empty || sweepErr != nil {
			return false, sweepErr
		}
		err = os.Remove(path)
	}
	if err == nil && statErr == nil && info.Mode().IsRegular() {
		s.freed += muster.Size(info.Size())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, muster.Errorf(muster.Internal, "cannot delete the removed log %s: %w", path, err)
	}
	return true, nil
}
