package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"

	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/auth"
)

func (s *server) backupRoutes() {
	rest.Stream(s.router, rest.Route{ID: "backup", Method: http.MethodGet, Path: rest.Path("/backup"), Tag: "backup", Verb: auth.BackUp, Audit: rest.AuditRead, ContentType: rest.OctetStreamType,
		Summary: "Back up the server, as a tar archive that muster restore reads. It is complete only if it ends with end.json"}, s.backup)
}

type backupInput struct{}

func (s *server) backup(w http.ResponseWriter, r *http.Request, _ *backupInput) error {
	h := w.Header()
	h.Set("Content-Type", rest.OctetStreamType)
	h.Set("Content-Disposition", `attachment; filename="muster.tar"`)
	h.Set("Cache-Control", "no-store")
	out := &startedWriter{w: streaming.NewWriter(w, r)}
	err := s.Backup(r.Context(), out)
	if err == nil || !out.started {
		return err
	}
	if r.Context().Err() == nil {
		s.Log.Error("backup failed", slog.Any("error", err))
	}
	panic(http.ErrAbortHandler) // the client sees that it is not complete
}

// BackupFunc writes a backup of the server.
type BackupFunc func(ctx context.Context, w io.Writer) error

// startedWriter knows whether something was written.
type startedWriter struct {
	w       io.Writer
	started bool
}

func (s *startedWriter) Write(p []byte) (int, error) {
	s.started = true
	return s.w.Write(p)
}
