package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/store"
	"github.com/muster-dev/muster/internal/traceparent"
)

// maxUploaded limits how many blobs a session remembers as uploaded by its worker.
const maxUploaded = 10_000

// unauthorizedBlobs returns the blobs that a worker may not name in reports about a job's attempts: it neither uploaded them
// nor holds an attempt of the job that needs them. Otherwise knowing the hash of a blob would be enough to have it delivered
// to another project.
func (s *session) unauthorizedBlobs(ctx context.Context, job muster.JobID, sha256 []string) ([]string, error) {
	unverified := make([]string, 0, len(sha256))
	for _, sum := range sha256 {
		if _, ok := s.uploaded[sum]; !ok {
			unverified = append(unverified, sum)
		}
	}
	if len(unverified) == 0 {
		return nil, nil
	}
	ungranted, err := s.engine.cfg.Store.Ungranted(ctx, store.WorkerGrantee(s.worker), unverified)
	if err != nil {
		return nil, err
	}
	unauthorized := map[string]struct{}{}
	for _, sum := range ungranted {
		unauthorized[sum] = struct{}{}
	}
	for _, sum := range unverified {
		if _, not := unauthorized[sum]; not {
			continue
		}
		if len(s.uploaded) >= maxUploaded {
			clear(s.uploaded)
		}
		s.uploaded[sum] = struct{}{}
	}
	return s.engine.unneeded(ctx, s.worker, job, ungranted)
}

// checkArtifacts removes artifacts from a frame that the worker may not name. A successful attempt with such artifacts becomes
// a failure by the worker's fault, and is retried elsewhere.
func (s *session) checkArtifacts(ctx context.Context, f *link.ToServer) error {
	for i := range f.Progress {
		p := &f.Progress[i]
		allowed, rejected, err := s.filterArtifacts(ctx, p.Attempt, p.Artifacts)
		if err != nil {
			return err
		}
		if rejected != "" {
			s.warnArtifacts(ctx, p.Attempt, rejected)
			p.Artifacts = allowed
		}
	}
	for i := range f.Finished {
		r := &f.Finished[i]
		allowed, rejected, err := s.filterArtifacts(ctx, r.Attempt, r.Artifacts)
		if err != nil {
			return err
		}
		if rejected != "" {
			s.warnArtifacts(ctx, r.Attempt, rejected)
			r.Artifacts = allowed
			if r.Outcome == muster.AttemptSucceeded {
				r.Outcome, r.Reason, r.Result = muster.AttemptFailed, muster.WorkerInternal, nil
				r.Message = "the worker reported files that it did not upload: " + rejected
			}
		}
		s.fillURLs(r)
	}
	return nil
}

func (s *session) warnArtifacts(ctx context.Context, a muster.AttemptID, rejected string) {
	s.warn(ctx, a, "worker reported files that it did not upload, ignoring them", slog.String("files", rejected))
}

// warn logs a warning about a report on an attempt, with the trace of its job if there is one. It reads the store on the session's
// own goroutine.
func (s *session) warn(ctx context.Context, a muster.AttemptID, text string, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("worker", string(s.worker)), slog.String("attempt", a.String()))
	if job, err := s.engine.cfg.Store.Job(ctx, a.Task.Job); err == nil && job.UID != "" {
		attrs = append(attrs, slog.String("trace_id", traceparent.TraceText(job.UID)))
	}
	s.engine.cfg.Log.LogAttrs(ctx, slog.LevelWarn, text, attrs...)
}

// filterArtifacts returns the artifacts of an attempt that its worker may name and that are stored with the reported size, and a
// text that names the others.
func (s *session) filterArtifacts(ctx context.Context, a muster.AttemptID, artifacts []muster.Artifact) (allowed []muster.Artifact, rejected string, err error) {
	if len(artifacts) == 0 {
		return nil, "", nil
	}
	names := make([]string, len(artifacts))
	for i := range artifacts {
		names[i] = artifacts[i].SHA256
	}
	unauthorized, err := s.unauthorizedBlobs(ctx, a.Task.Job, names)
	if err != nil {
		return nil, "", err
	}
	denied := map[string]struct{}{}
	for _, sum := range unauthorized {
		denied[sum] = struct{}{}
	}
	wrong := 0
	for i := range artifacts {
		art := &artifacts[i]
		_, isForeign := denied[art.SHA256]
		ok := !isForeign
		if ok {
			size, err := s.engine.cfg.Blobs.Touch(ctx, art.SHA256)
			switch muster.CodeOf(err) {
			case muster.NotFound, muster.Invalid:
				ok = false
			default:
				if err != nil {
					return nil, "", err
				}
				ok = size == art.Size
			}
		}
		if ok {
			allowed = append(allowed, *art)
			continue
		}
		if wrong++; wrong == 1 {
			rejected = fmt.Sprintf("%.100q", art.Name)
		}
	}
	if wrong > 1 {
		rejected += fmt.Sprintf(" and %d others", wrong-1)
	}
	return allowed, rejected, nil
}
