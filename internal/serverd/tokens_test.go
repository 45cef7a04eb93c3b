package serverd

import (
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/dialect"
)

// TestFailedStartCreatesNoTokens checks that tokens, which are shown only once, are created by the first successful start and not by a failed one.
func TestFailedStartCreatesNoTokens(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	folder, log := filepath.Join(t.TempDir(), "data"), slog.New(slog.DiscardHandler)
	for name, cfg := range map[string]Config{
		"the port of the server is taken":  {Listen: taken.Addr().String()},
		"the port of the gateway is taken": {Listen: "127.0.0.1:0", Dialects: []dialect.Config{{Name: "qubix", Address: taken.Addr().String()}}},
	} {
		cfg.Data = folder
		if _, err := New(t.Context(), cfg, log); muster.CodeOf(err) != muster.Conflict {
			t.Fatalf("%s: %v", name, err)
		}
	}
	s, err := New(t.Context(), Config{Listen: "127.0.0.1:0", Data: folder}, log)
	if err != nil {
		t.Fatal(err)
	}
	if s.AdminToken() == "" || s.JoinToken() == "" {
		t.Errorf("the tokens are %q and %q", s.AdminToken(), s.JoinToken())
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
}
