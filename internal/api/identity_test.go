package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
)

// goldenIdentity are the operations of a worker's identity. Their bodies are signed when they are sent.
var goldenIdentity = []goldenCase{
	{"joined", request{method: "POST", path: link.PathJoin}, "join-worker"},
	{"joined-unsigned", request{method: "POST", path: link.PathJoin}, "error"},
	{"worker-key-registered", request{method: "POST", path: link.PathKey}, "register-worker-key"},
	{"worker-session", request{method: "POST", path: link.PathSession}, "create-worker-session"},
	{"worker-session-of-unknown", request{method: "POST", path: link.PathSession}, "error"},
	{"worker-reset", request{method: "POST", path: "/api/v1/workers/w1/reset"}, "reset-worker"},
}

func TestGoldenIdentity(t *testing.T) {
	s := apitest.Start(t, nil)
	bearer := s.CreateKey(t, auth.Worker, "", "w1")
	s.ConnectWorker(t, "w1")
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	now := muster.NewTime(time.Now())
	join := testworker.JoinRequest(apitest.AdminToken, "box-7", private)
	other, err := testworker.JoinWith(t.Context(), http.DefaultClient, s.URL, apitest.AdminToken, "box-8", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	unsigned := join
	unsigned.Proof = make([]byte, ed25519.SignatureSize)
	moved := ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 1))
	session, _, err := handshake.NewRequest(moved, "w1", other.Server, now)
	if err != nil {
		t.Fatal(err)
	}
	unknown, _, err := handshake.NewRequest(ed25519.NewKeyFromSeed(append(make([]byte, ed25519.SeedSize-1), 2)), "w1", other.Server, now)
	if err != nil {
		t.Fatal(err)
	}
	bodies := []any{
		join, unsigned, link.KeyRequest{PublicKey: moved[ed25519.SeedSize:], At: now, Proof: handshake.ProveMove(moved, auth.Hash(bearer), now)}, session, unknown, nil,
	}
	cases := append([]goldenCase(nil), goldenIdentity...)
	for i, body := range bodies {
		if body == nil {
			continue
		}
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		cases[i].body = string(b)
	}
	cases[2].token = bearer
	checkGolden(t, s, cases)
}

// A worker of an earlier version gives the server a public key in place of its bearer key, which then does not work. If it loses the answer, or is
// killed before it has saved it, it repeats that.
func TestAWorkerOfAnEarlierVersionChangesOver(t *testing.T) {
	s := apitest.Start(t, nil)
	bearer := s.CreateKey(t, auth.Worker, "", "w1")
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	old := agent.Identity{Worker: "w1", Key: bearer, Server: s.URL, Name: "box"}
	current := func(id agent.Identity) string {
		t.Helper()
		c, err := agent.NewCredentials(id, at, http.DefaultClient, dir, log).Current(t.Context())
		if err != nil || len(c.Secret) != handshake.SecretSize {
			t.Fatalf("a secret of %d bytes, %v", len(c.Secret), err)
		}
		return c.Token
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: current(old)}, http.StatusOK)
	moved, ok, err := agent.LoadIdentity(dir)
	if err != nil || !ok || moved.Key != "" || moved.PrivateKey == "" || moved.Worker != "w1" || moved.Name != "box" {
		t.Fatalf("it saved %+v, %v", moved, err)
	}
	expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: bearer}, http.StatusUnauthorized)
	killed := moved
	killed.Key, killed.ServerID = bearer, ""
	expectStatus(t, s, request{method: "GET", path: "/api/v1/whoami", token: current(killed)}, http.StatusOK)
	if _, err := agent.NewCredentials(old, at, http.DefaultClient, t.TempDir(), log).Current(t.Context()); muster.CodeOf(err) != muster.Unauthenticated {
		t.Errorf("a copy of the old identity: %v", err)
	}
}

// A worker asks for another token when the server refuses one, as after a restart of the server, but not without end.
func TestAWorkerReplacesARefusedToken(t *testing.T) {
	s := apitest.Start(t, nil)
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	id, err := agent.Join(t.Context(), http.DefaultClient, at, apitest.AdminToken, agent.Registration{Name: "box"}, dir, log)
	if err != nil {
		t.Fatal(err)
	}
	c := agent.NewCredentials(id, at, http.DefaultClient, dir, log)
	token := func() string {
		t.Helper()
		cred, err := c.Current(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return cred.Token
	}
	first, refused := token(), muster.Errorf(muster.Unauthenticated, "refused")
	if token() != first {
		t.Error("a token that is valid is replaced")
	}
	for range 3 {
		last := token()
		if err := c.Refused(last, refused); err != nil || token() == last {
			t.Errorf("after a refusal: %v, the same token: %t", err, token() == last)
		}
		if err := c.Refused(last, refused); err != nil { // a request of before
			t.Errorf("after a refusal of an older token: %v", err)
		}
	}
	if err := c.Refused(token(), refused); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("after 4 refusals at once: %v", err)
	}
}
