package api_test

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/muster-dev/muster"
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
