//go:build unix

package attack

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/testkit"
)

// refusedBy checks that the server refused a request with a status and a text.
func refusedBy(t *testing.T, what string, err error, status int, text string) {
	t.Helper()
	refusal, ok := errors.AsType[*testworker.StatusError](err)
	if !ok || refusal.Status != status || !strings.Contains(refusal.Body, text) {
		t.Errorf("%s: %v, want %d and %q", what, err, status, text)
	}
}

func newKeyPair(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	testkit.NoError(t, err)
	return private
}

// sessionRequest returns a signed request of a worker, of now plus skew.
func sessionRequest(t *testing.T, w testworker.Worker, skew time.Duration) *handshake.SessionRequest {
	t.Helper()
	r, _, err := handshake.NewRequest(w.Private, w.Worker, w.Server, muster.NewTime(time.Now().Add(skew)))
	testkit.NoError(t, err)
	return r
}

// session sends a request for a session token.
func (e *env) session(r *handshake.SessionRequest) error {
	var g handshake.SessionGrant
	return testworker.Post(e.t.Context(), e.http, e.url(link.PathSession), "", r, &g)
}

// TestForgedSessionTokensAreRefused: the claims of a valid token do nothing with another signature, algorithm or none.
func TestForgedSessionTokensAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("w")
	second, err := w.Request(t.Context(), e.http, e.url("")) // which the server has not seen, so that it is not in a cache
	testkit.NoError(t, err)
	var claims jwt.RegisteredClaims
	token, _, err := jwt.NewParser().ParseUnverified(second.Token, &claims)
	testkit.NoError(t, err)
	forge := func(method jwt.SigningMethod, key any) string {
		forged := jwt.NewWithClaims(method, claims)
		forged.Header["kid"] = token.Header["kid"]
		text, err := forged.SignedString(key)
		testkit.NoError(t, err)
		return text
	}
	for name, forged := range map[string]string{
		"signed with another key":          forge(jwt.SigningMethodEdDSA, newKeyPair(t)),
		"signed with the worker's own key": forge(jwt.SigningMethodEdDSA, w.Private),
		"without a signature":              forge(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType),
		"signed with a public text":        forge(jwt.SigningMethodHS256, []byte(w.Server)),
	} {
		if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", forged, nil)); rec.Code != http.StatusUnauthorized {
			t.Errorf("a token %s: %d %s", name, rec.Code, rec.Body)
		}
	}
	if rec := e.do(e.request(http.MethodGet, "/api/v1/whoami", second.Token, nil)); rec.Code != http.StatusOK {
		t.Errorf("the token itself: %d", rec.Code)
	}
}

// TestSessionTokensEndInMinutes: a token that was copied from memory or the network ends soon.
func TestSessionTokensEndInMinutes(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(e.join("w").Key, &claims)
	if err != nil || claims.ExpiresAt == nil || time.Until(claims.ExpiresAt.Time) > 16*time.Minute {
		t.Errorf("a token ends at %v, %v", claims.ExpiresAt, err)
	}
}

// TestReplayedSessionRequestsAreRefused: one signature makes one session.
func TestReplayedSessionRequestsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := sessionRequest(t, e.join("w"), 0)
	testkit.NoError(t, e.session(r))
	refusedBy(t, "the same request again", e.session(r), http.StatusForbidden, "was used before")
}

// TestLateSessionRequestsAreRefused: a request that was held back, or signed ahead, is refused, and the answer shows both clocks.
func TestLateSessionRequestsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("w")
	for name, skew := range map[string]time.Duration{"behind": -3 * time.Minute, "ahead": 3 * time.Minute} {
		refusedBy(t, name, e.session(sessionRequest(t, w, skew)), http.StatusBadRequest, name+": it says 20")
	}
	testkit.NoError(t, e.session(sessionRequest(t, w, -time.Minute)))
}

// TestUnsignedSessionRequestsAreRefused: who knows the public key of a worker gets no session.
func TestUnsignedSessionRequestsAreRefused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := sessionRequest(t, e.join("w"), 0)
	r.Exchange[0]++ // an own ephemeral key
	refusedBy(t, "an altered request", e.session(r), http.StatusBadRequest, "signature does not fit")
}

// TestAWorkersKeyIsForItself: a worker gets no session of another one.
func TestAWorkersKeyIsForItself(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	thief := e.join("thief")
	thief.Worker = e.join("victim").Worker
	refusedBy(t, "a request for another worker", e.session(sessionRequest(t, thief, 0)), http.StatusForbidden, "may not connect as")
	stranger := thief
	stranger.Private = newKeyPair(t)
	refusedBy(t, "a request with an unknown key", e.session(sessionRequest(t, stranger, 0)), http.StatusUnauthorized, "unknown")
}

// TestSessionRequestsAreForOneServer: another server to which a worker connects cannot use the worker's request here.
func TestSessionRequestsAreForOneServer(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("w")
	w.Server = handshake.ServerID(ed25519.PublicKey(newKeyPair(t)[ed25519.SeedSize:]))
	refusedBy(t, "a request for another server", e.session(sessionRequest(t, w, 0)), http.StatusBadRequest, "this one is")
}

// TestRefusalsAreSigned: a worker knows by a signature that its server refuses it. What something on the way can bring about has none: a request that
// it sent before, or from elsewhere.
func TestRefusalsAreSigned(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	bound := e.mustJoin(e.token(client.NewKey{Addresses: []string{"127.0.0.1"}}).Secret, "bound")
	w, removed := e.join("w"), e.join("removed")
	stranger := w
	stranger.Private = newKeyPair(t)
	replayed := sessionRequest(t, w, 0)
	testkit.NoError(t, e.session(replayed))
	keys, err := e.Client.Keys(t.Context())
	testkit.NoError(t, err)
	for i := range keys {
		if keys[i].Worker == removed.Worker {
			e.revoke(keys[i].ID)
		}
	}
	for name, tc := range map[string]struct {
		from    *env
		request *handshake.SessionRequest
		code    muster.Code
		signed  bool
	}{
		"of an unknown key":        {e, sessionRequest(t, stranger, 0), muster.Unauthenticated, true},
		"of a revoked key":         {e, sessionRequest(t, removed, 0), muster.Forbidden, true},
		"of a request used before": {e, replayed, muster.Forbidden, false},
		"from another address":     {e.from("127.0.0.2"), sessionRequest(t, bound, 0), muster.Forbidden, false},
	} {
		refusal, ok := errors.AsType[*testworker.StatusError](tc.from.session(tc.request))
		if !ok || !strings.Contains(refusal.Body, string(tc.code)) || tc.request.Refused(tc.code, refusal.Header.Get(handshake.RefusalHeader)) != tc.signed {
			t.Errorf("the refusal %s: %v", name, refusal)
		}
	}
}

// TestAJoinIsOfTheOwnerOfTheKey: a public key that was seen elsewhere is not registered for another worker.
func TestAJoinIsOfTheOwnerOfTheKey(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{})
	request := testworker.JoinRequest(token.Secret, "w", newKeyPair(t))
	request.PublicKey = newKeyPair(t)[ed25519.SeedSize:]
	var joined link.Joined
	refusedBy(t, "a join with a key of others", testworker.Post(t.Context(), e.http, e.url(link.PathJoin), token.Secret, request, &joined), http.StatusBadRequest, "signature does not fit")
}

// TestARepeatedJoinIsTheSameWorker: a worker whose answer was lost joins again by the same use of the token, and others do not join by its key.
func TestARepeatedJoinIsTheSameWorker(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token, other := e.token(client.NewKey{Uses: 1}), e.token(client.NewKey{})
	private := newKeyPair(t)
	first, err := testworker.JoinWith(t.Context(), e.http, e.url(""), token.Secret, "w", private)
	testkit.NoError(t, err)
	again, err := testworker.JoinWith(t.Context(), e.http, e.url(""), token.Secret, "w", private)
	if err != nil || again.Worker != first.Worker {
		t.Errorf("a repeated join is worker %s, %v, want %s", again.Worker, err, first.Worker)
	}
	_, err = testworker.JoinWith(t.Context(), e.http, e.url(""), token.Secret, "w", newKeyPair(t))
	refusedBy(t, "a join with another key", err, http.StatusForbidden, "used up")
	_, err = testworker.JoinWith(t.Context(), e.http, e.url(""), other.Secret, "w", private)
	refusedBy(t, "a join of the same key by another token", err, http.StatusConflict, "by another token")
}

// TestACopiedIdentityEndsBothSessions: two processes with one identity are both cut, and stay so until the owner makes a new identity with one
// request. The worker keeps its id.
func TestACopiedIdentityEndsBothSessions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.mustJoin(e.token(client.NewKey{Tags: []string{"trusted"}}).Secret, "w")
	conn, f := e.greet(w, "w", nil)
	if f.Welcome == nil {
		t.Fatalf("the worker was answered %+v", f)
	}
	copied := make(chan *link.ToWorker, 1)
	go func() {
		conn, f := e.greet(w, "w", nil)
		if f.Ping {
			e.send(conn, &link.ToServer{Pong: true})
			f = e.receive(conn, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil })
		}
		copied <- f
	}()
	e.receive(conn, "a challenge", func(f *link.ToWorker) bool { return f.Ping })
	e.send(conn, &link.ToServer{Pong: true})
	end := e.receive(conn, "a goodbye", func(f *link.ToWorker) bool { return f.Goodbye != nil })
	for name, f := range map[string]*link.ToWorker{"original": end, "copy": <-copied} {
		if f.Goodbye == nil || f.Goodbye.Code != muster.Forbidden || !strings.Contains(f.Goodbye.Message, "used by two processes at once") || !strings.Contains(f.Goodbye.Message, "muster workers reset") {
			t.Errorf("the %s was answered %+v", name, f.Goodbye)
		}
	}
	shown := func() { // also after a restart
		t.Helper()
		refusedBy(t, "another session", e.session(sessionRequest(t, w, 0)), http.StatusForbidden, "is quarantined")
		if got := e.worker(w.Worker); !strings.Contains(got.Quarantined, "from 127.0.0.1 and 127.0.0.1") {
			t.Errorf("the worker shows %q", got.Quarantined)
		}
	}
	shown()
	e.awaitRecord(client.AuditQuery{Operation: "quarantine-worker", Object: "worker/" + string(w.Worker)})
	e.Server.Kill()
	e.StartServer()
	shown()

	made, err := e.Client.ResetWorker(t.Context(), string(w.Worker))
	testkit.NoError(t, err)
	refusedBy(t, "the copy after the reset", e.session(sessionRequest(t, w, 0)), http.StatusForbidden, "was revoked")
	back := e.mustJoin(made.Secret, "w")
	if back.Worker != w.Worker {
		t.Errorf("after the reset it is worker %s, want %s", back.Worker, w.Worker)
	}
	if _, status, _ := e.joinBy(made.Secret, "thief"); status != http.StatusForbidden {
		t.Errorf("a second join by the token of the reset: %d", status)
	}
	if _, f := e.greet(back, "w", nil); f.Welcome == nil {
		t.Errorf("the worker was answered %+v", f)
	}
	if got := e.worker(w.Worker); got.Quarantined != "" {
		t.Errorf("the worker still shows %q", got.Quarantined)
	}
}

// TestARestartedWorkerIsNoCopy: a new process replaces one that does not answer.
func TestARestartedWorkerIsNoCopy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("w")
	silent, _ := e.greet(w, "w", nil)
	if _, f := e.greet(w, "w", nil); f.Welcome == nil {
		t.Errorf("a worker whose earlier process is silent was answered %+v", f)
	}
	_ = silent.Close()
	conn, _ := e.greet(w, "w", nil)
	_ = conn.Close()
	if _, f := e.greet(w, "w", nil); f.Welcome == nil || e.worker(w.Worker).Quarantined != "" {
		t.Errorf("a worker whose earlier process ended was answered %+v", f)
	}
}

// TestALateHelloIsNoCopy: a hello that the server reads after its worker has connected again, as when the server was suspended, ends nothing.
func TestALateHelloIsNoCopy(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.join("w")
	late := e.dial(w)
	conn, f := e.greet(w, "w", nil)
	if f.Welcome == nil {
		t.Fatalf("the worker was answered %+v", f)
	}
	e.send(late, &link.ToServer{Hello: hello(w, "w")})
	e.receive(conn, "a challenge", func(f *link.ToWorker) bool { return f.Ping })
	e.send(conn, &link.ToServer{Pong: true})
	e.receive(late, "a ping", func(f *link.ToWorker) bool { return f.Ping })
	ended := make(chan *link.ToWorker, 1)
	go func() {
		f, _ := late.Recv(t.Context())
		ended <- f
	}()
	testkit.Await(t, "the server to end the late session", func() bool { // while the other one stays
		e.send(conn, &link.ToServer{Ping: true})
		e.receive(conn, "a pong", func(f *link.ToWorker) bool { return f.Pong })
		return len(ended) > 0
	})
	if f := <-ended; f != nil || e.worker(w.Worker).Quarantined != "" {
		t.Errorf("the late hello was answered %+v, and the worker is %+v", f, e.worker(w.Worker))
	}
}

// TestRequestsWithoutAKeyDoNotDelayRevocations: who sends invalid keys gets answers later and later, and others who change keys do not wait for that.
func TestRequestsWithoutAKeyDoNotDelayRevocations(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	victim := e.key("viewer", "", 0)
	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer flood.Wait()
	defer stop()
	answers := make(chan error, 1000)
	for range 50 {
		flood.Go(func() {
			var joined link.Joined
			for ctx.Err() == nil {
				private := newKeyPair(t)
				now := muster.NewTime(time.Now())
				err := testworker.Post(ctx, e.http, e.url(link.PathKey), "unknown", link.KeyRequest{PublicKey: private[ed25519.SeedSize:], At: now, Proof: handshake.ProveMove(private, auth.Hash("unknown"), now)}, &joined)
				select {
				case answers <- err:
				case <-ctx.Done():
				}
			}
		})
	}
	for range 8 { // further answers are delayed
		if err := <-answers; err == nil {
			t.Error("an unknown key is accepted")
		}
	}
	start := time.Now()
	e.revoke(victim.Key.ID)
	if took := time.Since(start); took > promptLimit {
		t.Errorf("the revocation of a key took %s", took)
	}
}

// TestRevokedWorkersDoNotUndoThat: a worker that is not to connect any more does not join again by a token that it still has, in its configuration or from
// before, until a token is made for it.
func TestRevokedWorkersDoNotUndoThat(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{})
	w := e.mustJoin(token.Secret, "w")
	conn, _ := e.greet(w, "w", nil)
	_ = conn.Close()
	join := func(secret string) error {
		request := testworker.JoinRequest(secret, "w", newKeyPair(t))
		request.Replaces = w.Worker
		var joined link.Joined
		err := testworker.Post(t.Context(), e.http, e.url(link.PathJoin), secret, request, &joined)
		if err == nil && joined.Worker != w.Worker {
			t.Errorf("it joined as %s", joined.Worker)
		}
		return err
	}
	made, err := e.Client.ResetWorker(t.Context(), string(w.Worker))
	testkit.NoError(t, err)
	refusedBy(t, "a join by its first token", join(token.Secret), http.StatusForbidden, "is not for it")
	testkit.NoError(t, join(made.Secret))
	refusedBy(t, "a join by its first token after that", join(token.Secret), http.StatusForbidden, "muster workers reset")
}

// TestResetWorkersAreRevokedWithTheirToken: who ends a join token and its workers ends also those that were reset since, and the tokens of resets.
func TestResetWorkersAreRevokedWithTheirToken(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	token := e.token(client.NewKey{})
	reset := func(name string) (testworker.Worker, string) {
		w := e.mustJoin(token.Secret, name)
		conn, _ := e.greet(w, name, nil)
		_ = conn.Close()
		made, err := e.Client.ResetWorker(t.Context(), string(w.Worker))
		testkit.NoError(t, err)
		return w, made.Secret
	}
	_, secret := reset("back")
	back := e.mustJoin(secret, "back")
	_, unused := reset("away")
	testkit.NoError(t, e.Client.RevokeJoinToken(t.Context(), token.Key.ID))
	refusedBy(t, "a worker that was reset", e.session(sessionRequest(t, back, 0)), http.StatusForbidden, "was revoked")
	if _, status, answer := e.joinBy(unused, "away"); status != http.StatusUnauthorized {
		t.Errorf("a join by the token of a reset: %d %s", status, answer)
	}
}
