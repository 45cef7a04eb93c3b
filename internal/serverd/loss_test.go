package serverd_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/serverd"
)

// TestLostJobsAreDetectedFromLogs starts a server without its database and without the copy of the last commit: the remaining logs show
// which jobs are lost.
func TestLostJobsAreDetectedFromLogs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "logs", "7", "0"), 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := serverd.Config{Listen: "127.0.0.1:0", Data: folder}
	log := slog.New(slog.DiscardHandler)
	if _, err := serverd.New(t.Context(), cfg, log); muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "jobs 1 to 7") {
		t.Errorf("the server starts although the database lacks jobs: %v", err)
	}
	var logged strings.Builder
	cfg.AcceptLoss = true
	s, err := serverd.New(t.Context(), cfg, slog.New(slog.NewTextHandler(&logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "loss accepted") || !strings.Contains(logged.String(), "jobs 1 to 7") {
		t.Errorf("the loss is not logged:\n%s", &logged)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.Run(ctx); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}
