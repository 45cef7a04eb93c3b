package serverd

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/atomicfile"
	"github.com/muster-dev/muster/internal/audit"
	"github.com/muster-dev/muster/internal/auditlog"
	"github.com/muster-dev/muster/internal/backup"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
)

// selfRecord is the record of what the server does by itself or by its options.
func selfRecord(operation, object, detail string) audit.Record {
	return audit.Record{At: muster.NewTime(time.Now()), Role: audit.Server, Operation: operation, Object: object, Detail: detail, Outcome: audit.Allowed}
}

// auditStart records the start.
func (s *Server) auditStart() {
	s.audit.Add(selfRecord(audit.OpStartServer, "", "version "+s.cfg.Version))
	if loss := s.store.Loss(); loss != nil {
		s.audit.Add(selfRecord(audit.OpAcceptLoss, "", loss.String()))
	}
}

// ownKeys are the API keys, as the server changes them by itself or by its options: for its first tokens, gateways and local workers.
type ownKeys struct {
	store.KeyStore

	audit *auditlog.Recorder
}

func (s *Server) ownKeys() store.KeyStore { return ownKeys{s.store, s.audit} }

// PutKeys implements store.KeyStore.
func (k ownKeys) PutKeys(ctx context.Context, keys ...store.Key) error {
	if err := k.KeyStore.PutKeys(ctx, keys...); err != nil {
		return err
	}
	for i := range keys {
		rec := selfRecord("create-key", "key/"+keys[i].ID, "role "+keys[i].Role+", name "+keys[i].Name)
		rec.Project = keys[i].Project
		k.audit.Add(rec)
	}
	return nil
}

// DeleteKey implements store.KeyStore.
func (k ownKeys) DeleteKey(ctx context.Context, id string) error {
	err := k.KeyStore.DeleteKey(ctx, id)
	if err == nil {
		k.audit.Add(selfRecord("revoke-key", "key/"+id, ""))
	}
	return err
}

// auditSession records the start of a worker's session, whose context has the values of its request.
func (s *Server) auditSession(ctx context.Context, conn link.ServerConn) {
	p := caller.FromContext(ctx)
	rec := audit.Record{
		At: muster.NewTime(time.Now()), Address: conn.RemoteIP(), Operation: audit.OpStartSession, Object: "worker/" + string(p.Worker), Outcome: audit.Allowed,
	}
	caller.Identify(&rec, p)
	s.audit.Add(rec)
}

// rejected returns what is called with the error of each Read of a connection that a worker opened: it counts, records and logs a rejected frame.
func (s *Server) rejected(ctx context.Context, address string) func(error) {
	return func(err error) {
		frame, ok := errors.AsType[*link.FrameError](err)
		if !ok {
			return
		}
		p := caller.FromContext(ctx)
		s.metrics.FrameRejected(frame.Reason)
		s.log.Warn("a frame was rejected, and its session ends: something between the worker and this server changes what they send",
			slog.String("worker", string(p.Worker)), slog.String("address", address), slog.String("reason", frame.Reason), slog.Any("error", err))
		rec := audit.Record{
			At: muster.NewTime(time.Now()), Address: address, Operation: audit.OpRejectFrame, Object: "worker/" + string(p.Worker), Outcome: audit.Denied, Detail: err.Error(),
		}
		caller.Identify(&rec, p)
		s.audit.Count(rec)
	}
}

// auditGateway records a request that a gateway denied.
func (s *Server) auditGateway(name, address string, status int) {
	s.audit.Count(audit.Record{
		At: muster.NewTime(time.Now()), Address: address, Via: name, Operation: "gateway-" + name, Outcome: audit.Denied, Status: status, Detail: http.StatusText(status),
	})
}

// withOrigin accepts the origin of a gateway's request.
func withOrigin(ctx context.Context, address, gateway string) context.Context {
	return caller.WithOrigin(ctx, caller.Origin{Address: address, Gateway: gateway})
}

// restoredFile is in a data directory that was restored and has not been served since.
const restoredFile = "restored"

// restored is its content.
type restored struct {
	At     muster.Time `json:"at"`
	Backup string      `json:"backup"`
}

// markRestored makes the next start record the restore.
func markRestored(data string, sum backup.Summary) error {
	b, err := json.Marshal(restored{muster.NewTime(time.Now()), "backup of muster " + sum.Version + " of " + sum.CreatedAt.String()})
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(data, restoredFile), append(b, '\n'), 0o600); err != nil {
		return muster.Errorf(muster.Unavailable, "cannot write the data directory: %w", err)
	}
	return nil
}

// auditRestore records that the data directory was restored from a backup.
func (s *Server) auditRestore(ctx context.Context) error {
	path := filepath.Join(s.cfg.Data, restoredFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var r restored
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		r.Backup = "from an unknown backup"
	}
	// At once: the file is removed next.
	if _, err := s.store.AppendAudit(ctx, []audit.Record{selfRecord(audit.OpRestoreBackup, "", r.Backup+", restored at "+r.At.String())}); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return muster.Errorf(muster.Internal, "cannot remove %s: %w", path, err)
	}
	return nil
}
