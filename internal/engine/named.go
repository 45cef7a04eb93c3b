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

// maxUploaded is how many blobs of which it is known that the worker uploaded them are remembered in a session.
const maxUploaded = 10_000

// foreign returns those of the blobs that a worker may not name in what it says of a job's attempts: it has neither
// uploaded them itself, which shows that it has them, nor does an attempt of the job that it holds need them. Else the
// hash of a blob were enough to have it delivered to another project.
func (s *session) foreign(ctx context.Context, job muster.JobID, sha256 []string) ([]string, error) {
	unsure := make([]string, 0, len(sha256))
	for _, sum := range sha256 {
		if _, ok := s.uploaded[sum]; !ok {
			unsure = append(unsure, sum)
		}
	}
	if len(unsure) == 0 {
		return nil, nil
	}
	ungranted, err := s.engine.cfg.Store.Ungranted(ctx, store.WorkerGrantee(s.worker), unsure)
	if err != nil {
		return nil, err
	}
	without := map[string]struct{}{}
	for _, sum := range ungranted {
		without[sum] = struct{}{}
	}
	for _, sum := range unsure {
		if _, not := without[sum]; not {
			continue
		}
		if len(s.uploaded) >= maxUploaded {
			clear(s.uploaded)
		}
		s.uploaded[sum] = struct{}{}
	}
	return s.engine.unneeded(ctx, s.worker, job, ungranted)
}

// checkNamed holds what a frame says of files to what the worker may say. What it shows of a running attempt and may not
// show is left out. An attempt that ended so failed by the worker's fault, and is tried again elsewhere.
func (s *session) checkNamed(ctx context.Context, f *link.ToServer) error {
	for i := range f.Progress {
		p := &f.Progress[i]
		good, bad, err := s.named(ctx, p.Attempt, p.Artifacts)
		if err != nil {
			return err
		}
		if bad != "" {
			s.warnNamed(ctx, p.Attempt, bad)
			p.Artifacts = good
		}
	}
	for i := range f.Finished {
		r := &f.Finished[i]
		good, bad, err := s.named(ctx, r.Attempt, r.Artifacts)
		if err != nil {
			return err
		}
		if bad != "" {
			s.warnNamed(ctx, r.Attempt, bad)
			r.Artifacts = good
			if r.Outcome == muster.AttemptSucceeded {
				r.Outcome, r.Reason, r.Result = muster.AttemptFailed, muster.WorkerInternal, nil
				r.Message = "the worker's report names files that it did not upload: " + bad
			}
		}
	}
	return nil
}

func (s *session) warnNamed(ctx context.Context, a muster.AttemptID, bad string) {
	s.warn(ctx, a, "a worker names files that it did not upload; they are left out", slog.String("files", bad))
}

// warn logs something about what the worker says of an attempt, with the trace of its job if there is one. It reads the store on the session's own
// goroutine.
func (s *session) warn(ctx context.Context, a muster.AttemptID, text string, what ...slog.Attr) {
	what = append(what, slog.String("worker", string(s.worker)), slog.String("attempt", a.String()))
	if job, err := s.engine.cfg.Store.Job(ctx, a.Task.Job); err == nil && job.UID != "" {
		what = append(what, slog.String("trace_id", traceparent.TraceText(job.UID)))
	}
	s.engine.cfg.Log.LogAttrs(ctx, slog.LevelWarn, text, what...)
}

// named returns the artifacts of an attempt that its worker may name and that are here as it says, and tells of the others.
func (s *session) named(ctx context.Context, a muster.AttemptID, artifacts []muster.Artifact) (good []muster.Artifact, bad string, err error) {
	if len(artifacts) == 0 {
		return nil, "", nil
	}
	names := make([]string, len(artifacts))
	for i := range artifacts {
		names[i] = artifacts[i].SHA256
	}
	foreign, err := s.foreign(ctx, a.Task.Job, names)
	if err != nil {
		return nil, "", err
	}
	not := map[string]struct{}{}
	for _, sum := range foreign {
		not[sum] = struct{}{}
	}
	wrong := 0
	for i := range artifacts {
		art := &artifacts[i]
		_, isForeign := not[art.SHA256]
		ok := !isForeign
		if ok {
			size, err := s.engine.cfg.Blobs.Stat(ctx, art.SHA256)
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
			good = append(good, *art)
			continue
		}
		if wrong++; wrong == 1 {
			bad = fmt.Sprintf("%.100q", art.Name)
		}
	}
	if wrong > 1 {
		bad += fmt.Sprintf(" and %d others", wrong-1)
	}
	return good, bad, nil
}
