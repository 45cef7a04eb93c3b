//go:build unix

package attack

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-dev/muster"
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

// greetAs opens a session of an instance of a worker.
func (e *env) greetAs(w testworker.Worker, instance string) (link.WorkerConn, *link.ToWorker) {
	e.t.Helper()
	return e.greet(w, "w", func(h *link.Hello) { h.Instance = instance })
}

// TestACopiedIdentityEndsBothSessions: two processes with one identity are both cut, and stay so until the owner makes a new identity with one
// request. The worker keeps its id.
func TestACopiedIdentityEndsBothSessions(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	w := e.mustJoin(e.token(client.NewKey{Tags: []string{"trusted"}}).Secret, "w")
	conn, f := e.greetAs(w, "original")
	if f.Welcome == nil {
		t.Fatalf("the worker was answered %+v", f)
	}
	copied := make(chan *link.ToWorker, 1)
	go func() {
		_, f := e.greetAs(w, "copy")
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
	if _, f := e.greetAs(back, "new"); f.Welcome == nil {
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
	silent, _ := e.greetAs(w, "before")
	if _, f := e.greetAs(w, "after"); f.Welcome == nil {
		t.Errorf("a worker whose earlier process is silent was answered %+v", f)
	}
	_ = silent.Close()
	conn, _ := e.greetAs(w, "third")
	_ = conn.Close()
	if _, f := e.greetAs(w, "fourth"); f.Welcome == nil || e.worker(w.Worker).Quarantined != "" {
		t.Errorf("a worker whose earlier process ended was answered %+v", f)
	}
}
