package isolation

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// BenchmarkSpawn starts /bin/true, with what a task costs from Confine to Release.
// cpu-µs/op is that of this process, child-µs/op that of the started ones.
func BenchmarkSpawn(b *testing.B) {
	for _, c := range []struct {
		name  string
		mode  Mode
		user  string
		plain bool
		all   bool // system calls may be made
		grant muster.Grant
	}{
		{name: "plain", plain: true},
		{name: "groups", mode: Off},
		{name: "sandbox", mode: Auto},
		{name: "sandbox without seccomp", mode: Auto, all: true},
		{name: "sandbox of root", mode: Auto, user: RootUser},
		{name: "memory and cpus", mode: Auto, grant: muster.Grant{Memory: 64 * mib, CPUs: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			base := filepath.Join(dir, "tasks", "1-1")
			for _, part := range []string{"work", "out", "tmp"} {
				if err := os.MkdirAll(filepath.Join(base, part), 0o700); err != nil {
					b.Fatal(err)
				}
			}
			if os.Geteuid() != 0 {
				c.user = ""
			}
			l, err := New(Config{Data: dir, TaskUser: c.user, Sandbox: c.mode, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = null.Close() }()
			t := &run.Task{Attempt: muster.AttemptID{Task: muster.TaskID{Job: 1}}, Spec: &muster.TaskSpec{}, Grant: c.grant}
			self, children := rusage(b, unix.RUSAGE_SELF), rusage(b, unix.RUSAGE_CHILDREN)
			for b.Loop() {
				t.Attempt.N++
				var spec *run.IsolationSpec
				if !c.plain {
					if spec, err = l.Prepare(t, run.Folders{Base: base}); err != nil {
						b.Fatal(err)
					}
					spec.Seccomp = spec.Seccomp && !c.all
				}
				pid, fd, err := Spawn(spec, Program{Path: "/bin/true", Argv: []string{"true"}, Dir: "/", Stdin: null, Stdout: null, Stderr: null})
				if err != nil {
					b.Fatal(err)
				}
				_ = unix.Close(fd)
				if _, err := unix.Wait4(pid, nil, 0, nil); err != nil {
					b.Fatal(err)
				}
				if spec != nil {
					l.Release(spec)
				}
			}
			b.ReportMetric(float64((rusage(b, unix.RUSAGE_SELF)-self).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64((rusage(b, unix.RUSAGE_CHILDREN)-children).Microseconds())/float64(b.N), "child-µs/op")
		})
	}
}

func rusage(b *testing.B, who int) time.Duration {
	b.Helper()
	var ru unix.Rusage
	if err := unix.Getrusage(who, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
