package agent

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/handshake"
	"github.com/muster-dev/muster/internal/link"
)

var testServerID = handshake.ServerID(make([]byte, ed25519.PublicKeySize))

// joinServer responds to join requests with the given statuses in turn, and with 200 after them.
func joinServer(t *testing.T, statuses ...int) *url.URL {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req link.JoinRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.URL.Path != link.PathJoin || req.Name != "gpu1" || handshake.CheckJoin(req.PublicKey, auth.Hash("join-token"), "gpu1", req.At, req.Proof) != nil {
			t.Errorf("%s %s %+v %v", r.Method, r.URL, req, err)
		}
		if r.Header.Get("Authorization") != "Bearer join-token" {
			t.Error("the join token is not in the header")
		}
		if len(statuses) > 0 {
			text := "no"
			if statuses[0] == http.StatusForbidden {
				text = `{"title": "Forbidden", "detail": "all uses are used up"}`
			}
			if statuses[0] == http.StatusUnprocessableEntity {
				text = `{"title": "Unprocessable Content", "detail": "no such luck"}`
			}
			http.Error(w, text, statuses[0])
			statuses = statuses[1:]
			return
		}
		json.NewEncoder(w).Encode(link.Joined{Worker: "w7", Server: testServerID})
	}))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestJoin(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	for name, tc := range map[string]struct {
		statuses []int
		code     muster.Code // "" for success
		want     string
	}{
		"at once":                 {nil, "", ""},
		"after a restart of it":   {[]int{503, 502}, "", ""},
		"with a wrong token":      {[]int{401}, muster.Unauthenticated, "rejects the join token"},
		"with another role":       {[]int{403}, muster.Unauthenticated, "rejects the join token: all uses are used up; muster keys create"},
		"under a name it refuses": {[]int{422}, muster.Invalid, "rejects this worker: no such luck"},
		"to something different":  {[]int{404}, muster.Invalid, "check that --server is a muster server"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			u := joinServer(t, tc.statuses...)
			id, err := Join(t.Context(), http.DefaultClient, u, "join-token", Registration{Name: "gpu1"}, dir, quiet)
			if tc.code != "" {
				if muster.CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %s about %q", err, tc.code, tc.want)
				}
				return
			}
			if err != nil || id.Worker != "w7" || id.ServerID != testServerID || !id.hasKeyPair() || id.Key != "" {
				t.Fatalf("joined as %+v, %v", id, err)
			}
			again, ok, err := LoadIdentity(dir)
			if err != nil || !ok || again != id {
				t.Errorf("a restart finds %+v, %v, %v", again, ok, err)
			}
			info, err := os.Stat(filepath.Join(dir, identityFile))
			if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != fs.FileMode(0o600) {
				t.Errorf("the key's file has mode %v, %v", info.Mode(), err)
			}
		})
	}
}

func TestJoinByTheTokenOfAnotherWorker(t *testing.T) {
	dir := t.TempDir()
	_, err := Join(t.Context(), http.DefaultClient, joinServer(t), "join-token", Registration{Name: "gpu1", Worker: "w8"}, dir, slog.New(slog.DiscardHandler))
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "the join token is for worker w7, and not for w8") {
		t.Errorf("got %v", err)
	}
	if _, ok, err := LoadIdentity(dir); ok || err != nil {
		t.Errorf("there is an identity, %v", err)
	}
}

func TestJoinStopsWithItsContext(t *testing.T) {
	u := joinServer(t)
	u.Host = "127.0.0.1:1"
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Join(ctx, http.DefaultClient, u, "join-token", Registration{Name: "gpu1"}, t.TempDir(), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("joined a server that does not exist")
	}
}

func TestLoadIdentity(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := LoadIdentity(dir); ok || err != nil {
		t.Errorf("in an empty folder: %v, %v", ok, err)
	}
	for _, bad := range []string{"", "{", `{"worker":"w"}`, `{"key":"k"}`, `{"worker":"w","private_key":"AAAA","server_id":"s"}`} {
		if err := os.WriteFile(filepath.Join(dir, identityFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := LoadIdentity(dir); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
}

// A worker whose join is refused with Retry-After waits that long.
func TestJoinWaitsAsTheServerSays(t *testing.T) {
	var tries []time.Time
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tries = append(tries, time.Now()); len(tries) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		json.NewEncoder(w).Encode(link.Joined{Worker: "w7", Server: testServerID})
	}))
	t.Cleanup(srv.Close)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), srv.Client(), u, "join-token", Registration{Name: "gpu1"}, t.TempDir(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if len(tries) != 2 || tries[1].Sub(tries[0]) < time.Second {
		t.Errorf("joined at %v", tries)
	}
}

// A worker that was killed before it saved the answer, or whose answer was lost, joins with the same key pair, by the same token only.
func TestAJoinIsRepeatedWithTheSameKeyPair(t *testing.T) {
	dir := t.TempDir()
	first, err := joining(dir, "token")
	if err != nil || !first.hasKeyPair() {
		t.Fatal(first, err)
	}
	again, err := joining(dir, "token")
	if err != nil || again != first {
		t.Errorf("again: %v, %v, want %v", again, err, first)
	}
	other, err := joining(dir, "another token")
	if err != nil || other.PrivateKey == first.PrivateKey {
		t.Errorf("by another token: %v, %v", other, err)
	}
	if err := other.saveJoined(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, joiningFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a worker that has joined keeps the file: %v", err)
	}
	next, err := joining(dir, "another token")
	if err != nil || next.PrivateKey == other.PrivateKey {
		t.Errorf("after it has joined: %v, %v", next, err)
	}
}
