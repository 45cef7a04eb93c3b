package handshake_test

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/handshake"
)

const now = muster.Time(1_800_000_000_000)

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func idOf(key ed25519.PrivateKey) string {
	return handshake.ServerID(key.Public().(ed25519.PublicKey))
}

func TestBothSidesDeriveTheSameSecretOnce(t *testing.T) {
	worker, server := newKey(t), newKey(t)
	var secrets [][]byte
	for range 2 {
		r, ephemeral, err := handshake.NewRequest(worker, "w-1", idOf(server), now)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Check(idOf(server), now); err != nil {
			t.Fatal(err)
		}
		g, ofServer, err := handshake.Grant(server, r, "token", now+1, now)
		if err != nil {
			t.Fatal(err)
		}
		ofWorker, err := r.Confirm(ephemeral, g)
		if err != nil || !bytes.Equal(ofWorker, ofServer) || len(ofWorker) != handshake.SecretSize {
			t.Fatalf("the worker's secret has %d bytes, the server's %d, equal: %t, %v", len(ofWorker), len(ofServer), bytes.Equal(ofWorker, ofServer), err)
		}
		secrets = append(secrets, ofWorker)
	}
	if bytes.Equal(secrets[0], secrets[1]) {
		t.Error("two sessions have one secret")
	}
}

func TestAnAlteredRequestIsRefused(t *testing.T) {
	worker, server, other := newKey(t), newKey(t), newKey(t)
	for name, alter := range map[string]func(*handshake.SessionRequest){
		"worker":         func(r *handshake.SessionRequest) { r.Worker = "w-2" },
		"public key":     func(r *handshake.SessionRequest) { r.PublicKey = other.Public().(ed25519.PublicKey) },
		"no public key":  func(r *handshake.SessionRequest) { r.PublicKey = nil },
		"server":         func(r *handshake.SessionRequest) { r.Server = idOf(other) },
		"time":           func(r *handshake.SessionRequest) { r.At++ },
		"nonce":          func(r *handshake.SessionRequest) { r.Nonce[0]++ },
		"shorter nonce":  func(r *handshake.SessionRequest) { r.Nonce = r.Nonce[1:] },
		"exchange":       func(r *handshake.SessionRequest) { r.Exchange[0]++ },
		"no exchange":    func(r *handshake.SessionRequest) { r.Exchange = nil },
		"signature":      func(r *handshake.SessionRequest) { r.Signature[0]++ },
		"no signature":   func(r *handshake.SessionRequest) { r.Signature = nil },
		"moved boundary": func(r *handshake.SessionRequest) { r.Worker, r.PublicKey = "w-", append([]byte("1"), r.PublicKey...) },
	} {
		r, _, err := handshake.NewRequest(worker, "w-1", idOf(server), now)
		if err != nil {
			t.Fatal(err)
		}
		alter(r)
		if err := r.Check(idOf(server), now); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	r, _, err := handshake.NewRequest(worker, "w-1", idOf(other), now)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(idOf(server), now); err == nil || !strings.Contains(err.Error(), "identity "+idOf(other)) {
		t.Errorf("a request for another server: %v", err)
	}
}

func TestAnAlteredGrantIsRefused(t *testing.T) {
	worker, server, other := newKey(t), newKey(t), newKey(t)
	for name, alter := range map[string]func(*handshake.SessionGrant, *handshake.SessionRequest){
		"token":     func(g *handshake.SessionGrant, _ *handshake.SessionRequest) { g.Token += "x" },
		"expiry":    func(g *handshake.SessionGrant, _ *handshake.SessionRequest) { g.ExpiresAt++ },
		"time":      func(g *handshake.SessionGrant, _ *handshake.SessionRequest) { g.At++ },
		"exchange":  func(g *handshake.SessionGrant, _ *handshake.SessionRequest) { g.Exchange[0]++ },
		"signature": func(g *handshake.SessionGrant, _ *handshake.SessionRequest) { g.Signature[0]++ },
		"of another server": func(g *handshake.SessionGrant, r *handshake.SessionRequest) {
			forged, _, err := handshake.Grant(other, r, g.Token, g.ExpiresAt, g.At)
			if err != nil {
				t.Fatal(err)
			}
			*g = *forged
		},
		"of another request": func(g *handshake.SessionGrant, _ *handshake.SessionRequest) {
			r, _, err := handshake.NewRequest(worker, "w-1", idOf(server), now)
			if err != nil {
				t.Fatal(err)
			}
			older, _, err := handshake.Grant(server, r, g.Token, g.ExpiresAt, g.At)
			if err != nil {
				t.Fatal(err)
			}
			*g = *older
		},
	} {
		r, ephemeral, err := handshake.NewRequest(worker, "w-1", idOf(server), now)
		if err != nil {
			t.Fatal(err)
		}
		g, _, err := handshake.Grant(server, r, "token", now+1, now)
		if err != nil {
			t.Fatal(err)
		}
		alter(g, r)
		if _, err := r.Confirm(ephemeral, g); muster.CodeOf(err) != muster.Unavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARefusalIsOfOneServerRequestAndCode(t *testing.T) {
	worker, server := newKey(t), newKey(t)
	request := func() *handshake.SessionRequest {
		r, _, err := handshake.NewRequest(worker, "w-1", idOf(server), now)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := request()
	signature := handshake.Refuse(server, r, muster.Forbidden)
	if !r.Refused(muster.Forbidden, signature) {
		t.Error("a signed refusal is not accepted")
	}
	altered := *r
	altered.PublicKey = newKey(t).Public().(ed25519.PublicKey)
	for name, accepted := range map[string]bool{
		"with another code":     r.Refused(muster.Unauthenticated, signature),
		"without a signature":   r.Refused(muster.Forbidden, ""),
		"of another server":     r.Refused(muster.Forbidden, handshake.Refuse(newKey(t), r, muster.Forbidden)),
		"of another request":    request().Refused(muster.Forbidden, signature),
		"of an altered request": r.Refused(muster.Forbidden, handshake.Refuse(server, &altered, muster.Forbidden)),
	} {
		if accepted {
			t.Errorf("a refusal %s is accepted", name)
		}
	}
}

func TestClocksMayDifferByTwoMinutes(t *testing.T) {
	worker, server := newKey(t), newKey(t)
	for skew, want := range map[muster.Duration]string{
		0: "", handshake.MaxSkew: "", -handshake.MaxSkew: "",
		handshake.MaxSkew + 1e6:  "2m0.001s ahead: it says 2027-01-15T08:02:00.001Z and the server's 2027-01-15T08:00:00.000Z",
		-handshake.MaxSkew - 1e6: "2m0.001s behind",
	} {
		r, _, err := handshake.NewRequest(worker, "w-1", idOf(server), now.Add(skew))
		if err != nil {
			t.Fatal(err)
		}
		err = r.Check(idOf(server), now)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a skew of %s: %v", skew, err)
		}
	}
}

func TestAProofHasOnePurpose(t *testing.T) {
	key, other := newKey(t), newKey(t)
	public := key.Public().(ed25519.PublicKey)
	join, move := handshake.ProveJoin(key, "hash", "name", now), handshake.ProveMove(key, "hash", now)
	if err := handshake.CheckJoin(public, "hash", "name", now, join); err != nil {
		t.Error(err)
	}
	if err := handshake.CheckMove(public, "hash", now, move); err != nil {
		t.Error(err)
	}
	for name, err := range map[string]error{
		"another token":         handshake.CheckJoin(public, "other", "name", now, join),
		"another name":          handshake.CheckJoin(public, "hash", "other", now, join),
		"another time":          handshake.CheckJoin(public, "hash", "name", now+1, join),
		"another key":           handshake.CheckJoin(other.Public().(ed25519.PublicKey), "hash", "name", now, join),
		"a join in a move":      handshake.CheckMove(public, "hash", now, handshake.ProveJoin(key, "hash", "", now)),
		"a move in a join":      handshake.CheckJoin(public, "hash", "", now, move),
		"a key of another size": handshake.CheckJoin(public[1:], "hash", "name", now, join),
	} {
		if muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzSessionRequest(f *testing.F) {
	f.Add([]byte("public"), "w-1", "server", []byte("nonce"), []byte("exchange"), []byte("signature"))
	f.Fuzz(func(t *testing.T, public []byte, worker, server string, nonce, exchange, signature []byte) {
		r := handshake.SessionRequest{Worker: muster.WorkerID(worker), PublicKey: public, Server: server, At: now, Nonce: nonce, Exchange: exchange, Signature: signature}
		if r.Check(server, now) == nil {
			t.Error("a request without a key is valid")
		}
	})
}
