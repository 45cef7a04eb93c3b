package agent

import (
	"crypto/ed25519"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

// Without TLS only the server that a worker joined refuses it: what others answer on the way neither ends the worker nor has it join again.
func TestOnlySignedRefusalsCount(t *testing.T) {
	_, server, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	id := Identity{Worker: "w1", PrivateKey: newSeed(), ServerID: handshake.ServerID(publicOf(server))}
	sign := func(key ed25519.PrivateKey, code muster.Code) func(*handshake.SessionRequest) string {
		return func(r *handshake.SessionRequest) string { return handshake.Refuse(key, r, code) }
	}
	for name, tc := range map[string]struct {
		status    int
		code      muster.Code
		signature func(*handshake.SessionRequest) string // nil for none
		tls       bool
		want      muster.Code
	}{
		"signed, unknown":    {http.StatusUnauthorized, muster.Unauthenticated, sign(server, muster.Unauthenticated), false, muster.Unauthenticated},
		"signed, revoked":    {http.StatusForbidden, muster.Forbidden, sign(server, muster.Forbidden), false, muster.Forbidden},
		"unsigned, unknown":  {http.StatusUnauthorized, muster.Unauthenticated, nil, false, muster.Unavailable},
		"unsigned, revoked":  {http.StatusForbidden, muster.Forbidden, nil, false, muster.Unavailable},
		"signed by others":   {http.StatusForbidden, muster.Forbidden, sign(other, muster.Forbidden), false, muster.Unavailable},
		"with another code":  {http.StatusForbidden, muster.Forbidden, sign(server, muster.Unauthenticated), false, muster.Unavailable},
		"unsigned, over TLS": {http.StatusForbidden, muster.Forbidden, nil, true, muster.Forbidden},
		"of another request": {http.StatusForbidden, muster.Forbidden, func(*handshake.SessionRequest) string {
			return handshake.Refuse(server, &handshake.SessionRequest{}, muster.Forbidden)
		}, false, muster.Unavailable},
		"not an answer of it": {http.StatusUnauthorized, muster.Internal, nil, true, muster.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				var r handshake.SessionRequest
				if err := json.NewDecoder(req.Body).Decode(&r); err != nil || req.URL.Path != link.PathSession {
					t.Errorf("%s: %v", req.URL, err)
				}
				if tc.signature != nil {
					w.Header().Set(handshake.RefusalHeader, tc.signature(&r))
				}
				w.WriteHeader(tc.status)
				if err := json.NewEncoder(w).Encode(map[string]any{"code": tc.code, "detail": "no"}); err != nil {
					t.Error(err)
				}
			})
			s := httptest.NewUnstartedServer(h)
			if tc.tls {
				s.StartTLS()
			} else {
				s.Start()
			}
			defer s.Close()
			at, err := url.Parse(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewCredentials(id, at, s.Client(), t.TempDir(), slog.New(slog.DiscardHandler)).Current(t.Context())
			if muster.CodeOf(err) != tc.want {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// Without TLS a worker that joins again does so at the server that it knows only.
func TestRejoinKeepsTheServer(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if err := json.NewEncoder(w).Encode(link.Joined{Worker: "w2", Server: testServerID}); err != nil {
			t.Error(err)
		}
	})
	plain, secure := httptest.NewServer(h), httptest.NewTLSServer(h)
	defer plain.Close()
	defer secure.Close()
	known := Identity{Worker: "w1", PrivateKey: newSeed(), ServerID: testServerID}
	other := known
	other.ServerID = handshake.ServerID(publicOf(known.privateKey()))
	for name, tc := range map[string]struct {
		server *httptest.Server
		old    Identity
		joins  bool
	}{
		"the same server":          {plain, known, true},
		"another server":           {plain, other, false},
		"another server, over TLS": {secure, other, true},
	} {
		dir := t.TempDir()
		if err := tc.old.Save(dir); err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(tc.server.URL)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Rejoin(t.Context(), tc.server.Client(), at, "token", Registration{Name: "box"}, dir, tc.old, func() error {
			if !tc.joins {
				t.Errorf("%s: the state of the worker is removed", name)
			}
			return nil
		}, quiet)
		now, _, loadErr := LoadIdentity(dir)
		if loadErr != nil || (err == nil) != tc.joins || (now != tc.old) != tc.joins || err != nil && muster.CodeOf(err) != muster.Forbidden {
			t.Errorf("%s: the identity is %+v, %v, %v", name, now, err, loadErr)
		}
	}
}
