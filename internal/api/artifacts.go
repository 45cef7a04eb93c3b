package api

import (
	"cmp"
	"context"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) artifactRoutes() {
	handle(s, route{id: "list-artifacts", method: http.MethodGet, path: prefixed("/tasks/{task}/artifacts"), tag: "artifacts",
		summary: "List the files of an attempt", verb: auth.ReadJobs}, s.listArtifacts)
	stream(s, route{id: "get-artifact", method: http.MethodGet, path: prefixed("/tasks/{task}/artifacts/{name}"), tag: "artifacts", rest: true,
		summary: "Download a file of an attempt, or ranges of it", verb: auth.ReadJobs, answers: "application/octet-stream"}, s.getArtifact)
}

// ArtifactsInput names an attempt.
type ArtifactsInput struct {
	TaskPath
	Attempt int `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one"`
}

type artifactInput struct {
	ArtifactsInput
	Name string `path:"name" example:"plots/loss.png"`
}

func (s *server) listArtifacts(ctx context.Context, in *ArtifactsInput) (*body[wire.Artifacts], error) {
	task, artifacts, err := s.artifacts(ctx, in)
	if err != nil {
		return nil, err
	}
	linkArtifacts(task, in.Attempt, artifacts)
	return answer(wire.Artifacts{Artifacts: full(artifacts)}), nil
}

func (s *server) artifacts(ctx context.Context, in *ArtifactsInput) (muster.TaskID, []muster.Artifact, error) {
	task, err := s.readTask(ctx, in.Task)
	n := cmp.Or(in.Attempt, task.Attempt)
	if current := task.State.Held() || task.State.Final(); err != nil || n == 0 || current && n == task.Attempt {
		return task.ID, task.Artifacts, err
	}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return task.ID, nil, err
	}
	i := slices.IndexFunc(attempts, func(a muster.Attempt) bool { return a.ID.N == n })
	if i < 0 && in.Attempt == 0 {
		return task.ID, nil, nil
	}
	if i < 0 {
		return task.ID, nil, noAttempt(task, n)
	}
	return task.ID, attempts[i].Artifacts, nil
}

func noAttempt(t muster.Task, n int) error {
	return muster.Errorf(muster.NotFound, "task %s has no attempt %d: its last one is %d", t.ID, n, t.Attempt)
}

// shownAs are the content types that a browser may be told. Others might run
// scripts in our name.
var shownAs = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
	".json": "application/json", ".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".md": "text/plain; charset=utf-8", ".pdf": "application/pdf",
	".yaml": "application/yaml", ".yml": "application/yaml", ".mp4": "video/mp4", ".wav": "audio/wav",
}

func (s *server) getArtifact(w http.ResponseWriter, r *http.Request, in *artifactInput) error {
	id, artifacts, err := s.artifacts(r.Context(), &in.ArtifactsInput)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(artifacts, func(a muster.Artifact) bool { return a.Name == in.Name })
	if i < 0 {
		return muster.Errorf(muster.NotFound, "task %s has no artifact %q: %s lists those it has", id, in.Name, prefixed("/tasks/"+id.String()+"/artifacts"))
	}
	kind, ok := shownAs[strings.ToLower(path.Ext(in.Name))]
	if !ok {
		kind = "application/octet-stream"
	}
	return s.serveBlob(w, r, store.Blob{SHA256: artifacts[i].SHA256, Size: artifacts[i].Size}, kind, path.Base(in.Name))
}

// serveBlob answers with a blob, or with the ranges of it that were asked for. A negative size is not known.
func (s *server) serveBlob(w http.ResponseWriter, r *http.Request, b store.Blob, kind, name string) error {
	if _, err := s.here(r.Context(), b.SHA256, b.Size); err != nil {
		return err
	}
	sha256 := b.SHA256
	content, err := s.Blobs.Open(r.Context(), sha256)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	h.Set("ETag", `"`+sha256+`"`)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	http.ServeContent(patient(w, r), r, "", time.Time{}, &notedReader{content, func(err error) { s.checker.Failed(sha256, err) }})
	return nil
}
