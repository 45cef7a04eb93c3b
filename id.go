package muster

import (
	"strconv"
	"strings"
)

// JobID is the number of a job, from 1 in order of acceptance.
type JobID int64

// String returns the decimal form, such as "17".
func (j JobID) String() string { return strconv.FormatInt(int64(j), 10) }

// WorkerID identifies a worker. It survives restarts and renames.
type WorkerID string

// TaskID identifies a task: the job and the task's number in it, from 0.
type TaskID struct {
	Job JobID
	Num int
}

// String returns the form "17.3".
func (t TaskID) String() string { return t.Job.String() + "." + strconv.Itoa(t.Num) }

// MarshalText writes the form "17.3".
func (t TaskID) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the form "17.3" and nothing else.
func (t *TaskID) UnmarshalText(b []byte) error {
	id, err := ParseTaskID(string(b))
	if err != nil {
		return err
	}
	*t = id
	return nil
}

// ParseTaskID reads "17.3".
func ParseTaskID(s string) (TaskID, error) {
	job, num, _ := strings.Cut(s, ".")
	j, err := ParseJobID(job)
	n, ok := parseNumber(num)
	if err != nil || !ok || n > MaxTasks {
		return TaskID{}, Errorf(Invalid, "%q is not a task id: write JOB.TASK, such as 17.3", s)
	}
	return TaskID{Job: j, Num: int(n)}, nil
}

// ParseJobID reads a job number, "1" or more.
func ParseJobID(s string) (JobID, error) {
	n, ok := parseNumber(s)
	if !ok || n < 1 {
		return 0, Errorf(Invalid, "%q is not a job number: write a whole number from 1", s)
	}
	return JobID(n), nil
}

// AttemptID identifies one execution of a task: "17.3#2". N counts from 1.
type AttemptID struct {
	Task TaskID
	N    int
}

// String returns the form "17.3#2".
func (a AttemptID) String() string {
	b, _ := a.AppendText(nil) // has no errors
	return string(b)
}

// AppendText appends the form "17.3#2".
func (a AttemptID) AppendText(b []byte) ([]byte, error) {
	b = strconv.AppendInt(b, int64(a.Task.Job), 10)
	b = strconv.AppendInt(append(b, '.'), int64(a.Task.Num), 10)
	return strconv.AppendInt(append(b, '#'), int64(a.N), 10), nil
}

// MarshalText writes the form "17.3#2".
func (a AttemptID) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// UnmarshalText reads the form "17.3#2" and nothing else.
func (a *AttemptID) UnmarshalText(b []byte) error {
	id, err := ParseAttemptID(string(b))
	if err != nil {
		return err
	}
	*a = id
	return nil
}

// ParseAttemptID reads "17.3#2".
func ParseAttemptID(s string) (AttemptID, error) {
	task, num, ok := strings.Cut(s, "#")
	if !ok {
		return AttemptID{}, Errorf(Invalid, "%q is not an attempt id: write JOB.TASK#N, such as 17.3#2", s)
	}
	t, err := ParseTaskID(task)
	if err != nil {
		return AttemptID{}, err
	}
	n, ok := parseNumber(num)
	if !ok || n < 1 || n > 1<<31-1 {
		return AttemptID{}, Errorf(Invalid, "%q is not an attempt id: attempts count from 1", s)
	}
	return AttemptID{Task: t, N: int(n)}, nil
}

// parseNumber reads a decimal without sign, spaces or leading zeros, so that
// every id has exactly one spelling.
func parseNumber(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || s[0] == '0' && s != "0" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
