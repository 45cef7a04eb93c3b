package load

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
)

// quantiles runs f n times and returns the median and the 99th percentile of what it returns.
func quantiles(n int, f func() time.Duration) (p50, p99 time.Duration) {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = f()
	}
	slices.Sort(all)
	return all[n/2], all[n*99/100]
}

// commandTime returns how long a program takes, from its start to its end.
func commandTime(b *testing.B, env []string, name string, args ...string) time.Duration {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), name, args...)
	cmd.Env = env
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", cmd, err, out)
	}
	return time.Since(began)
}

// installed copies the program under test, as an installation does. The page cache has much of what the linker has written in single pages,
// which cost a fifth more time to start and to end: see docs/performance.md.
func installed(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "muster")
	if out, err := exec.CommandContext(b.Context(), "cp", mustertest.Program(b), path).CombinedOutput(); err != nil {
		b.Fatalf("cp: %v: %s", err, out)
	}
	return path
}

// BenchmarkVersion is the duration of muster version, beside /bin/true and an empty program in Go, which are the bare limits of starting one.
func BenchmarkVersion(b *testing.B) {
	const runs = 200
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "empty.go"), []byte("package main\n\nimport \"os\"\n\nfunc main() { os.Stdout.WriteString(\"empty\\n\") }\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", empty, filepath.Join(dir, "empty.go")).CombinedOutput(); err != nil {
		b.Fatalf("build: %v: %s", err, out)
	}
	program := installed(b)
	for b.Loop() {
		bare, _ := quantiles(runs, func() time.Duration { return commandTime(b, nil, "/bin/true") })
		goProgram, _ := quantiles(runs, func() time.Duration { return commandTime(b, nil, empty) })
		p50, p99 := quantiles(runs, func() time.Duration { return commandTime(b, nil, program, "version") })
		b.ReportMetric(milliseconds(bare), "true-p50-ms")
		b.ReportMetric(milliseconds(goProgram), "empty-go-p50-ms")
		b.ReportMetric(milliseconds(p50), "p50-ms")
		b.ReportMetric(milliseconds(p99), "p99-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRun is muster run of /bin/date on an idle system: from the start of the command until the task's process runs, and until the command
// ends. BenchmarkStart is the part of it after the submission.
func BenchmarkRun(b *testing.B) {
	const runs = 200
	c := mustertest.New(b, b.TempDir())
	c.StartWorker("w1", b.TempDir())
	env := append(os.Environ(), "MUSTER_SERVER=http://"+c.Addr, "MUSTER_TOKEN="+mustertest.AdminToken)
	program := installed(b)
	for b.Loop() {
		var ends []time.Duration
		p50, p99 := quantiles(runs, func() time.Duration {
			cmd := exec.CommandContext(b.Context(), program, "run", "--", "/bin/date", "+%s%N")
			cmd.Env = env
			began := time.Now()
			out, err := cmd.Output()
			if err != nil {
				b.Fatal(err)
			}
			ends = append(ends, time.Since(began))
			nanos, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return time.Unix(0, nanos).Sub(began)
		})
		slices.Sort(ends)
		b.ReportMetric(milliseconds(p50), "process-p50-ms")
		b.ReportMetric(milliseconds(p99), "process-p99-ms")
		b.ReportMetric(milliseconds(ends[len(ends)/2]), "end-p50-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLogsOfCancelled is muster logs of an array of 20,000 tasks that was cancelled while 4 of them were running.
func BenchmarkLogsOfCancelled(b *testing.B) {
	const tasks, slots = 20_000, 4
	c := mustertest.New(b, b.TempDir())
	c.StartWorker("w1", b.TempDir(), "--slots", strconv.Itoa(slots))
	job := c.Submit(arraySpec(muster.KindProcess, tasks, "/bin/sleep", "600"))
	c.AwaitRunning(job.ID, slots)
	cancelAll(b, c, job.ID)
	env := append(os.Environ(), "MUSTER_SERVER=http://"+c.Addr, "MUSTER_TOKEN="+mustertest.AdminToken)
	for b.Loop() {
		p50, _ := quantiles(5, func() time.Duration { return commandTime(b, env, mustertest.Program(b), "logs", job.ID.String()) })
		b.ReportMetric(milliseconds(p50), "p50-ms")
	}
	b.ReportMetric(0, "ns/op")
}
