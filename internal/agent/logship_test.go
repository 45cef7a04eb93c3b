package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/logview"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/tasklog"
)

// TestRefusedLogsAreRetriedLater has a server without space for logs: few bytes are retried, results are reported meanwhile, and the log is
// complete at the end.
func TestRefusedLogsAreRetriedLater(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		e.server.set(func(d *fakeServer) { d.rejectLogs = true })
		chatty, quiet := e.run(0), e.run(1)
		output := bytes.Repeat([]byte("0123456789abcdef"), 1<<20/16)
		e.print(chatty, 0, output)
		time.Sleep(time.Second)
		e.server.forgetFrames()
		time.Sleep(time.Minute)
		sent, tries := 0, 0
		for _, c := range e.server.received().Logs {
			sent += len(c.Data)
			tries++
		}
		if tries < 5 || tries > 15 || sent > tries*logProbeSize {
			t.Errorf("%d bytes were sent in %d tries in a minute to a server that asks for a pause of 5 s", sent, tries)
		}
		chatty.finish()
		quiet.finish()
		if n := len(e.server.received().Finished); n != 2 {
			t.Errorf("%d results were reported while logs are refused, want 2", n)
		}
		if n := e.server.sessions(); n != 1 {
			t.Errorf("%d sessions", n)
		}
		e.server.set(func(d *fakeServer) { d.rejectLogs = false })
		time.Sleep(time.Minute)
		if got := e.server.log(chatty.id); got != string(output) {
			t.Errorf("%d bytes of %d arrived, or others", len(got), len(output))
		}
		if _, held := e.agent.table.count(); held != 0 {
			t.Errorf("%d attempts, want others", held)
		}
	})
}

// TestShortSessionsBackOff has a server that ends every session soon after its start.
func TestShortSessionsBackOff(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		began := e.server.sessions()
		for range 120 {
			e.server.setDown(true)
			e.server.setDown(false)
			time.Sleep(time.Second)
		}
		if n := e.server.sessions() - began; n > 40 {
			t.Errorf("%d sessions in two minutes, each of which ended at once", n)
		}
		time.Sleep(2 * minHealthyHeartbeats * heartbeat)
		began = e.server.sessions()
		e.server.setDown(true)
		e.server.setDown(false)
		time.Sleep(time.Second)
		if n := e.server.sessions() - began; n == 0 {
			t.Error("after a session that lasted the next one does not begin at once")
		}
	})
}

// TestLogOfALostAttemptIsSent ends attempts for reasons after which the server wants no report: their logs are sent completely and then
// removed.
func TestLogOfALostAttemptIsSent(t *testing.T) {
	const rest = "and what it printed while the server was away\n"
	for _, tc := range []struct {
		name string
		lose func(e *env, id muster.AttemptID)
	}{
		{"its lease ended", func(e *env, _ muster.AttemptID) {
			time.Sleep(11 * time.Minute)
			e.server.setDown(false)
		}},
		{"the server stopped it", func(e *env, id muster.AttemptID) {
			time.Sleep(time.Minute)
			e.server.set(func(d *fakeServer) { d.stop = []muster.AttemptID{id} })
			e.server.setDown(false)
		}},
		{"the server drops it", func(e *env, id muster.AttemptID) {
			e.server.set(func(d *fakeServer) { d.rejectLogs = true })
			e.server.setDown(false)
			time.Sleep(20 * time.Second)
			e.server.send(&link.ToWorker{Cancel: []link.Cancel{{Attempt: id, Drop: true}}})
			synctest.Wait()
			e.server.set(func(d *fakeServer) { d.rejectLogs = false })
		}},
		{"its lease ended, and the worker starts again", func(e *env, id muster.AttemptID) {
			time.Sleep(11 * time.Minute)
			if e.savedReports() != 1 {
				e.t.Errorf("%d attempts are kept on disk for their logs", e.savedReports())
			}
			e.agent.Detach()
			<-e.ended
			e.server.set(func(d *fakeServer) { d.stop, d.down = []muster.AttemptID{id}, false })
			e.start()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inEnv(t, func(e *env) {
				t := e.t
				s := e.run(0)
				e.print(s, 0, []byte("first\n"))
				time.Sleep(time.Second)
				e.server.setDown(true)
				e.print(s, int64(len("first\n")), []byte(rest))
				tc.lose(e, s.id)
				time.Sleep(time.Minute)
				if got := e.server.log(s.id); got != "first\n"+rest {
					t.Errorf("the server has %q", got)
				}
				if n := len(e.server.received().Finished); n != 0 {
					t.Errorf("%d reports of a dropped attempt", n)
				}
				if n, held := e.agent.table.count(); n+held != 0 {
					t.Errorf("%d running, %d attempts", n, held)
				}
				if n := e.savedReports(); n != 0 {
					t.Errorf("%d reports are kept", n)
				}
				logsGone(t, e.dir)
			})
		})
	}
}

// TestLogThatIsCutWhileTheServerIsAway has a worker drop the middle of a log that the server does not have yet: the server gets what is left, and all
// usage samples.
func TestLogThatIsCutWhileTheServerIsAway(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		stored, err := tasklog.OpenIndexedDir(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer stored.Close()
		e.server.set(func(d *fakeServer) { d.segments = stored })
		s := e.run(0)
		w := tasklog.NewWriter(e.logs, s.id, 0, int64(muster.MinLogCap))
		lines := 0
		write := func(n int) {
			t.Helper()
			for range n {
				lines++
				r := tasklog.Record{Stream: tasklog.Stdout, At: time.Now(), Data: fmt.Appendf(nil, "%05d %s\n", lines, strings.Repeat("x", 90))}
				err := w.WriteOutput(t.Context(), tasklog.AppendRecord(nil, r))
				if err == nil && lines%1000 == 0 {
					err = w.Write(t.Context(), tasklog.AppendRecord(nil, tasklog.Record{Stream: tasklog.Usage, At: time.Now(), Data: []byte("{}\n")}))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			size, err := e.logs.Size(t.Context(), s.id)
			if err != nil {
				t.Fatal(err)
			}
			s.reporter.LogGrew(size)
			time.Sleep(time.Second)
		}
		write(100)
		e.server.setDown(true)
		write(20_000)
		e.server.setDown(false)
		time.Sleep(time.Minute)
		write(100)
		read := func(logs *tasklog.Dir) (text []string, samples int) {
			t.Helper()
			err := logview.Walk(t.Context(), logs, s.id, 0, func(r logview.Record, _ int64) error {
				if r.Stream == tasklog.Usage {
					samples++
				} else {
					text = append(text, string(r.Data))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return text, samples
		}
		want, _ := read(e.logs)
		got, samples := read(stored)
		if !slices.Equal(got, want) || samples != 20 || len(got) > 5000 || !strings.HasPrefix(got[0], "00001 ") || !strings.HasPrefix(got[len(got)-1], "20200 ") {
			t.Errorf("the server has %d lines and %d samples, the worker %d lines", len(got), samples, len(want))
		}
	})
}

// TestTraffic checks that a worker counts its sessions, its ended leases, and its log bytes.
func TestTraffic(t *testing.T) {
	inEnv(t, func(e *env) {
		is := func(want Traffic) {
			e.t.Helper()
			if got := e.agent.Status().Traffic; got != want {
				e.t.Errorf("%+v, want %+v", got, want)
			}
		}
		s, whileSuspended := e.run(0), e.run(1)
		e.print(s, 0, []byte("first\n"))
		time.Sleep(time.Second)
		is(Traffic{Sessions: 1, LogSent: 6})
		e.server.setDown(true)
		e.print(s, 6, []byte("second\n"))
		time.Sleep(time.Minute)
		is(Traffic{Sessions: 1, LogSent: 6, LogPending: 7})
		e.suspended.Store(int64(11 * time.Minute))
		whileSuspended.finish() // before or after the worker checks the leases
		time.Sleep(time.Minute)
		is(Traffic{Sessions: 1, LogSent: 6, LogPending: 7, Expired: 2})
		e.server.setDown(false)
		time.Sleep(time.Minute)
		is(Traffic{Sessions: 2, LogSent: 13, Expired: 2})
	})
}

// logsGone checks that there are no local logs.
func logsGone(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(dir, "logs"))
	if err != nil || len(left) > 0 {
		t.Errorf("logs has %v (%v)", left, err)
	}
}

// TestEmptyLogsAreRemoved has an attempt whose log was created and remained empty.
func TestEmptyLogsAreRemoved(t *testing.T) {
	inEnv(t, func(e *env) {
		t := e.t
		s := e.run(0)
		folder := filepath.Join(e.dir, "logs", "1", "0")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "0.1.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.finish()
		time.Sleep(time.Second)
		logsGone(t, e.dir)
	})
}

// flakyLogs is a log folder whose reads fail while broken is set.
type flakyLogs struct {
	*tasklog.Dir

	mu     sync.Mutex
	broken error
	opened int
}

func (f *flakyLogs) Chunks(ctx context.Context, a muster.AttemptID, offset int64) (*tasklog.ChunkReader, error) {
	f.mu.Lock()
	f.opened++
	err := f.broken
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.Dir.Chunks(ctx, a, offset)
}

func (f *flakyLogs) set(broken error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

// TestTemporarilyUnreadableLogs checks that a temporary error loses no bytes, and that a permanent one delays an attempt for a limited time.
func TestTemporarilyUnreadableLogs(t *testing.T) {
	tooMany := errors.New("too many open files")
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		logs := &flakyLogs{Dir: e.logs}
		e.cfg.Logs = logs
		e.start()
		s, lost := e.run(0), e.run(1)
		logs.set(tooMany)
		e.print(s, 0, []byte("all of it\n"))
		s.finish()
		time.Sleep(30 * time.Second)
		if got := e.server.log(s.id); got != "" {
			t.Errorf("the server has %q", got)
		}
		logs.set(nil)
		time.Sleep(30 * time.Second)
		if got := e.server.log(s.id); got != "all of it\n" {
			t.Errorf("the server has %q", got)
		}
		logs.set(tooMany)
		e.print(lost, 0, []byte("lost\n"))
		lost.finish()
		time.Sleep(logGiveUp + time.Minute)
		if n, held := e.agent.table.count(); n+held != 0 {
			t.Errorf("%d running, %d attempts", n, held)
		}
		if err := e.end(); err != nil {
			t.Error(err)
		}
		e.server.serving.Wait()
	})
}

// TestLogsStayOpenBetweenFrames reads a growing log through one descriptor.
func TestLogsStayOpenBetweenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t)
		logs := &flakyLogs{Dir: e.logs}
		e.cfg.Logs = logs
		e.start()
		s := e.run(0)
		want := ""
		for i := range 100 {
			line := fmt.Sprintf("line %d\n", i)
			e.print(s, int64(len(want)), []byte(line))
			want += line
			time.Sleep(2 * logFrameInterval)
		}
		s.finish()
		time.Sleep(time.Second)
		if got := e.server.log(s.id); got != want {
			t.Errorf("the server has %d bytes of %d, or others", len(got), len(want))
		}
		if logs.opened > 2 {
			t.Errorf("the log was opened %d times", logs.opened)
		}
		e.agent.readers.mu.Lock()
		if n := len(e.agent.readers.open); n != 0 {
			t.Errorf("%d logs are open after they were removed", n)
		}
		e.agent.readers.mu.Unlock()
		if err := e.end(); err != nil {
			t.Error(err)
		}
		e.server.serving.Wait()
	})
}

// BenchmarkReadLog reads a log as the worker sends it: in chunks of 4 KiB.
func BenchmarkReadLog(b *testing.B) {
	logs, err := tasklog.OpenDir(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	at := &attempt{id: attemptID(0)}
	const size = 1 << 20
	if _, err := logs.Append(b.Context(), at.id, 0, make([]byte, size)); err != nil {
		b.Fatal(err)
	}
	readers := &logReaders{logs: logs}
	defer readers.closeAll()
	const chunk = 4 << 10
	b.SetBytes(chunk)
	for i := 0; b.Loop(); i++ {
		if _, err := readers.read(b.Context(), logRange{at: at, offset: int64(i) % (size / chunk) * chunk, n: chunk}); err != nil {
			b.Fatal(err)
		}
	}
}
