package workerd_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/testkit"
	"github.com/muster-dev/muster/internal/workerd"
)

// joined lets a worker join a server and returns its data dir and identity.
func joined(t *testing.T, s *serverd.Server, c *client.Client) (data string, id agent.Identity) {
	t.Helper()
	data = t.TempDir()
	stop := background(t, newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run)
	connected(t, c, 1)
	stop()
	connected(t, c, 0)
	id, ok, err := agent.LoadIdentity(data)
	if err != nil || !ok {
		t.Fatalf("no identity: %v", err)
	}
	return data, id
}

// connected waits until a server has n active workers.
func connected(t *testing.T, c *client.Client, n int) {
	t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		ws, err := c.Workers(t.Context())
		active := 0
		for i := range ws {
			if ws[i].State == muster.WorkerActive {
				active++
			}
		}
		if err == nil && active == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d workers are active (%v)", active, n, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// syncBuffer is a buffer that several goroutines may write to.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// withIdentityOf returns a data directory of a server that has the identity key of another one, and nothing else.
func withIdentityOf(t *testing.T, data string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "server.key"))
	if err != nil {
		t.Fatal(err)
	}
	lost := t.TempDir()
	if err := os.WriteFile(filepath.Join(lost, "server.key"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return lost
}

// TestUnknownWorkerJoinsAgain starts a worker that joined a server with the URL and the
// token of one that lost all data but its identity key.
func TestUnknownWorkerJoinsAgain(t *testing.T) {
	firstData := t.TempDir()
	first, c1 := beginIn(t, firstData, slog.New(slog.DiscardHandler))
	data, old := joined(t, first, c1)
	var log syncBuffer
	second, c2 := beginIn(t, withIdentityOf(t, firstData), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	again := func(token string) *workerd.Worker {
		return newWorker(t, second, func(cfg *workerd.Config) { cfg.Data, cfg.Token = data, token })
	}
	for name, tc := range map[string]struct{ token, want string }{
		"without a token":  {"", "restart the worker with --token"},
		"with a wrong one": {"mst_join_wrong", "rejects the join token"},
	} {
		err := again(tc.token).Run(t.Context())
		if muster.CodeOf(err) != muster.Unauthenticated || !errors.Is(err, agent.ErrUnknownWorker) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if id, ok, err := agent.LoadIdentity(data); id != old || !ok || err != nil {
			t.Errorf("%s: the identity became %v (%v)", name, id, err)
		}
	}
	keep, err := agent.OpenReportStore(data)
	if err != nil {
		t.Fatal(err)
	}
	attempt := muster.AttemptID{Task: muster.TaskID{Job: 1}, N: 1}
	err = errors.Join(keep.Update([]*muster.Report{{Attempt: attempt, Outcome: muster.AttemptSucceeded, FinishedAt: 1}}, nil), keep.Close())
	if err != nil {
		t.Fatal(err)
	}
	stop := background(t, again(second.JoinToken()).Run)
	connected(t, c2, 1)
	if j := submit(t, c2, `{"tasks":[{"kind":"process","run":"true"}]}`); j.State != muster.JobSucceeded {
		t.Errorf("the job is %s", j.State)
	}
	stop()
	if text := log.String(); !strings.Contains(text, "worker connected") || strings.Contains(text, "report refused") || strings.Contains(text, "worker knows jobs") {
		t.Errorf("the second server received a task of the first one:\n%s", text)
	}
	id, ok, err := agent.LoadIdentity(data)
	if err != nil || !ok || id.Worker == old.Worker || id.Server != second.URL() {
		t.Errorf("the identity is %v (%v)", id, err)
	}
	b, err := os.ReadFile(filepath.Join(data, "identity.json."+string(old.Worker)+".old"))
	if err != nil || !strings.Contains(string(b), old.PrivateKey) {
		t.Errorf("the old identity is not kept: %v", err)
	}
	if keep, err = agent.OpenReportStore(data); err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	if reports, err := keep.Reports(); err != nil || len(reports) > 0 {
		t.Errorf("reports of the earlier server are kept: %v (%v)", reports, err)
	}
}

// TestWithoutTLSAWorkerKeepsToItsServer starts a worker with the URL and the token of another server, which could be anything on the way: it neither
// ends, which would kill its tasks, nor joins there.
func TestWithoutTLSAWorkerKeepsToItsServer(t *testing.T) {
	first, c1 := begin(t)
	data, old := joined(t, first, c1)
	second, c2 := begin(t)
	var log syncBuffer
	w, err := workerd.New(workerd.Config{Server: second.URL(), Token: second.JoinToken(), Data: data, Version: "test", ShutdownGrace: time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	stop := background(t, w.Run)
	testkit.Await(t, "the worker logs that it is refused", func() bool { return strings.Contains(log.String(), "not signed with the identity key") })
	stop() // it reports an error if the worker has ended
	if ws, err := c2.Workers(t.Context()); err != nil || len(ws) != 0 {
		t.Errorf("the other server has %v (%v)", ws, err)
	}
	if id, ok, err := agent.LoadIdentity(data); id.Worker != old.Worker || id.ServerID != old.ServerID || !ok || err != nil {
		t.Errorf("the identity became %v (%v)", id, err)
	}
}

// TestRemovedWorkerDoesNotRejoin starts a worker that an administrator removed: its join
// token does not bring it back.
func TestRemovedWorkerDoesNotRejoin(t *testing.T) {
	s, c := begin(t)
	data, id := joined(t, s, c)
	if err := c.RemoveWorker(t.Context(), string(id.Worker)); err != nil {
		t.Fatal(err)
	}
	err := newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run(t.Context())
	if muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("got %v", err)
	}
	if ws, err := c.Workers(t.Context()); err != nil || len(ws) != 0 {
		t.Errorf("the server has %v (%v)", ws, err)
	}
}

// TestNameIsKept checks that a worker that is started without --name keeps the name of its last start with one, also with a new identity, and
// that missing tags are reported once.
func TestNameIsKept(t *testing.T) {
	s, c := begin(t)
	data := t.TempDir()
	start := func(name string, tags ...string) (warnings string) {
		t.Helper()
		var log syncBuffer
		w, err := workerd.New(workerd.Config{Server: s.URL(), Token: s.JoinToken(), Name: name, Tags: tags, Data: data, Version: "test", ShutdownGrace: time.Second},
			slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
		if err != nil {
			t.Fatal(err)
		}
		stop := background(t, w.Run)
		connected(t, c, 1)
		ws, err := c.Workers(t.Context())
		if err != nil || len(ws) != 1 || ws[0].Name != "rig" {
			t.Errorf("started with name %q: workers %+v, %v", name, ws, err)
		}
		stop()
		connected(t, c, 0)
		return log.String()
	}
	start("rig", "fast", "big")
	if log := start(""); !strings.Contains(log, "started without the tags fast big of its previous start: --tags fast,big gives them again") {
		t.Errorf("the log is %q", log)
	}
	if log := start(""); strings.Contains(log, "previous start") {
		t.Errorf("a second start warns again: %q", log)
	}
}

// TestWorkerMakesItsOwnToken checks that a worker that can make join tokens needs none, neither to join nor to join again, and makes
// none while it has an identity.
func TestWorkerMakesItsOwnToken(t *testing.T) {
	firstData, log := t.TempDir(), slog.New(slog.DiscardHandler)
	first, c1 := beginIn(t, firstData, log)
	second, c2 := beginIn(t, withIdentityOf(t, firstData), log)
	data, made := t.TempDir(), 0
	run := func(s *serverd.Server) func() {
		return background(t, newWorker(t, s, func(cfg *workerd.Config) {
			cfg.Data, cfg.Token = data, ""
			cfg.NewToken = func(ctx context.Context, worker muster.WorkerID) (string, error) {
				made++
				return s.NewJoinToken(ctx, worker)
			}
		}).Run)
	}
	for range 2 {
		stop := run(first)
		connected(t, c1, 1)
		stop()
		connected(t, c1, 0)
	}
	if made != 1 {
		t.Errorf("%d tokens for one identity", made)
	}
	stop := run(second)
	connected(t, c2, 1)
	stop()
	if made != 2 {
		t.Errorf("%d tokens for two identities", made)
	}
}

// TestAResetWorkerComesBack checks that a worker that is reset joins again as the worker that it was: with the token of the reset, also if its identity is
// of an earlier version, of whose token nothing is known, and by itself in the process of the server.
func TestAResetWorkerComesBack(t *testing.T) {
	for _, local := range []bool{false, true} {
		s, c := begin(t)
		data, id := joined(t, s, c)
		id.Token = ""
		if err := id.Save(data); err != nil {
			t.Fatal(err)
		}
		made, err := c.ResetWorker(t.Context(), string(id.Worker))
		if err != nil {
			t.Fatal(err)
		}
		if !local {
			err := newWorker(t, s, func(cfg *workerd.Config) { cfg.Data = data }).Run(t.Context())
			if muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "is not for it") {
				t.Errorf("with its first token: %v", err)
			}
		}
		stop := background(t, newWorker(t, s, func(cfg *workerd.Config) {
			if cfg.Data, cfg.Token = data, made.Secret; local {
				cfg.Token, cfg.NewToken = "", s.NewJoinToken
			}
		}).Run)
		connected(t, c, 1)
		stop()
		if again, ok, err := agent.LoadIdentity(data); again.Worker != id.Worker || again.PrivateKey == id.PrivateKey || !ok || err != nil {
			t.Errorf("local %t: it is worker %s, %v, want %s with a new key", local, again.Worker, err, id.Worker)
		}
		connected(t, c, 0)
		if err := c.RemoveWorker(t.Context(), string(id.Worker)); err != nil {
			t.Fatal(err)
		}
		if local {
			err := newWorker(t, s, func(cfg *workerd.Config) { cfg.Data, cfg.Token, cfg.NewToken = data, "", s.NewJoinToken }).Run(t.Context())
			if muster.CodeOf(err) != muster.Forbidden {
				t.Errorf("after it was removed: %v", err)
			}
		}
	}
}
