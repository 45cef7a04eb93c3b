package serverd

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/dialect"
	"github.com/muster-dev/muster/internal/store"
)

// TestFailedStartCreatesNoTokens checks that a start on a busy port of the server creates no file, and one on a busy port of a gateway no tokens.
func TestFailedStartCreatesNoTokens(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder, log := filepath.Join(t.TempDir(), "data"), slog.New(slog.DiscardHandler)
	if _, err := New(t.Context(), Config{Listen: taken.Addr().String(), Data: folder}, log); muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("the port of the server is taken: %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the data directory was created (%v)", err)
	}
	gateway := Config{Listen: "127.0.0.1:0", Data: folder, Dialects: []dialect.Config{{Name: "qubix", Address: taken.Addr().String()}}}
	if _, err := New(t.Context(), gateway, log); muster.CodeOf(err) != muster.Conflict {
		t.Fatalf("the port of the gateway is taken: %v", err)
	}
	if _, err := os.Stat(filepath.Join(folder, firstTokensFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("tokens were created (%v)", err)
	}
	s := open(t, folder, Config{})
	if s.AdminToken() == "" || s.JoinToken() == "" {
		t.Errorf("the tokens are %q and %q", s.AdminToken(), s.JoinToken())
	}
}

// open returns a server that is closed at the end of the test, or by the next call for its folder.
func open(t *testing.T, folder string, cfg Config) *Server {
	t.Helper()
	cfg.Listen, cfg.Data = "127.0.0.1:0", folder
	s, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t *testing.T, s *Server) {
	t.Helper()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTokensAreShownAgainAfterACrash checks that generated tokens are not lost if the program ends before it has shown them, at
// any point, and are not returned after that.
func TestTokensAreShownAgainAfterACrash(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder, Config{})
	first := s.tokens
	closeServer(t, s)
	if info, err := os.Stat(filepath.Join(folder, firstTokensFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v (%v), want mode 0600", info, err)
	}

	s = open(t, folder, Config{})
	if s.tokens != first {
		t.Errorf("the next start has the tokens %v, want %v", s.tokens, first)
	}
	// The crash came before the commit of the second key.
	if err := s.store.DeleteKey(t.Context(), "k-"+auth.Hash(first.Join)[:12]); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s = open(t, folder, Config{})
	if s.tokens != first {
		t.Errorf("after a crash between two keys the tokens are %v, want %v", s.tokens, first)
	}
	for _, token := range []string{first.Admin, first.Join} {
		if _, err := s.store.KeyByHash(t.Context(), auth.Hash(token)); err != nil {
			t.Errorf("token %s: %v", token, err)
		}
	}
	if err := errors.Join(s.TokensShown(), s.TokensShown()); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)

	s = open(t, folder, Config{})
	if s.tokens != (tokens{}) {
		t.Errorf("tokens that were shown are %v at the next start", s.tokens)
	}
	closeServer(t, s)
	s = open(t, folder, Config{AdminToken: "preset-token-0123456789"})
	if s.AdminToken() != "preset-token-0123456789" || s.JoinToken() != "" {
		t.Errorf("with a preset token the tokens are %v", s.tokens)
	}
}

// TestRevokedFirstTokensStayRevoked checks that tokens of a start that could not note that it had shown them do not become valid again.
func TestRevokedFirstTokensStayRevoked(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "data")
	s := open(t, folder, Config{})
	first := s.tokens
	other := store.Key{ID: "k-other", Name: "other", Role: string(auth.Admin), Hash: auth.Hash("other"), CreatedAt: 1}
	if err := errors.Join(s.store.PutKeys(t.Context(), other), s.store.DeleteKey(t.Context(), "k-"+auth.Hash(first.Admin)[:12])); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	s = open(t, folder, Config{})
	if s.AdminToken() != "" || s.JoinToken() != first.Join {
		t.Errorf("the tokens are %v, want only the join token of %v", s.tokens, first)
	}
}

// TestNewJoinToken checks that the tokens of local workers expire, and that expired ones are removed.
func TestNewJoinToken(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "data"), Config{})
	token, err := s.NewJoinToken(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	key, err := s.store.KeyByHash(t.Context(), auth.Hash(token))
	if err != nil || key.Role != string(auth.Join) || key.ExpiresAt.Sub(key.CreatedAt) > localJoinTTL || key.ExpiresAt == 0 {
		t.Errorf("the key is %+v (%v)", key, err)
	}
	key.ExpiresAt = key.CreatedAt
	if err := s.store.PutKeys(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJoinToken(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.KeyByHash(t.Context(), key.Hash); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("the expired key is still there (%v)", err)
	}
}
