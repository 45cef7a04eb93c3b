package api

import (
	"cmp"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

func (s *server) artifactRoutes() {
	rest.Handle(s.router, rest.Route{ID: "list-artifacts", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/artifacts"), Tag: "artifacts", Shared: true,
		Summary: "List the artifacts of an attempt", Verb: auth.ReadJobs}, s.listArtifacts)
	rest.Stream(s.router, rest.Route{ID: "get-artifact", Method: http.MethodGet, Path: rest.Path("/tasks/{task}/artifacts/{name}"), Tag: "artifacts", Shared: true, Wildcard: true,
		Summary: "Download an artifact of an attempt, or ranges of it", Verb: auth.ReadJobs, ContentType: rest.AnyType}, s.getArtifact)
	rest.Stream(s.router, rest.Route{ID: "get-content", Method: http.MethodGet, Path: pathIPFS + "{cid}", Tag: "artifacts", Shared: true,
		Summary: "Download a file that a result refers to as ipfs://{cid}, or ranges of it", Verb: auth.ReadJobs, ContentType: rest.AnyType}, s.getContent)
}

// ArtifactsInput selects an attempt.
type ArtifactsInput struct {
	rest.TaskPath
	Attempt int `query:"attempt" minimum:"1" maximum:"2147483647" doc:"default: the last one"`
}

type artifactInput struct {
	ArtifactsInput
	Name     string `path:"name" example:"plots/loss.png"`
	Download bool   `query:"download" doc:"let browsers save the file and not show it"`

	// Of a signed URL, which needs no key. Package artifacturl verifies them.
	Expires   int64  `query:"expires" minimum:"1" doc:"of a signed URL: when it ends, in seconds since 1970"`
	SHA256    string `query:"sha256" maxLength:"64" doc:"of a signed URL: hash of the file"`
	Signature string `query:"signature" maxLength:"64" doc:"of a signed URL: its signature"`
}

func (s *server) listArtifacts(ctx context.Context, in *ArtifactsInput) (*rest.Response[wire.Artifacts], error) {
	task, artifacts, err := s.artifacts(ctx, in)
	linkArtifacts(task, in.Attempt, artifacts)
	return rest.Respond(wire.Artifacts{Artifacts: nonNil(artifacts)}), err
}

func (s *server) artifacts(ctx context.Context, in *ArtifactsInput) (muster.TaskID, []muster.Artifact, error) {
	task, err := s.Store.Task(ctx, in.ID())
	n := cmp.Or(in.Attempt, task.Attempt)
	if current := task.State.HoldsResources() || task.State.Final(); err != nil || n == 0 || current && n == task.Attempt {
		return task.ID, task.Artifacts, err
	}
	attempts, err := s.Store.Attempts(ctx, task.ID)
	if err != nil {
		return task.ID, nil, err
	}
	attempt, ok := findAttempt(attempts, n)
	if !ok && in.Attempt > 0 {
		return task.ID, nil, attemptNotFound(task, n)
	}
	return task.ID, attempt.Artifacts, nil
}

// findAttempt returns the attempt with number n.
func findAttempt(attempts []muster.Attempt, n int) (attempt muster.Attempt, ok bool) {
	if i := slices.IndexFunc(attempts, func(a muster.Attempt) bool { return a.ID.N == n }); i >= 0 {
		return attempts[i], true
	}
	return muster.Attempt{}, false
}

// attemptEnded reports whether an attempt has ended and whether the rest of its log is lost.
func attemptEnded(a *muster.Attempt) (ended, lost bool) {
	return a.Outcome != muster.AttemptOpen, a.Outcome == muster.AttemptLost || a.Outcome == muster.AttemptRejected
}

func attemptNotFound(t muster.Task, n int) error {
	return muster.Errorf(muster.NotFound, "task %s has no attempt %d: its last attempt is %d", t.ID, n, t.Attempt)
}

// contentTypes are the content types of files by extension; others are sniffed. No file of a task is served as a script, because the dashboard's
// policy allows scripts of this server.
var contentTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".svg": "image/svg+xml", ".bmp": "image/bmp",
	".json": "application/json", ".jsonl": "application/jsonl", ".txt": "text/plain; charset=utf-8", ".log": "text/plain; charset=utf-8",
	".csv": "text/csv; charset=utf-8", ".tsv": "text/tab-separated-values; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".pdf": "application/pdf",
	".yaml": "application/yaml", ".yml": "application/yaml", ".toml": "application/toml", ".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8",
	".js": "text/plain; charset=utf-8", ".css": "text/css; charset=utf-8", ".py": "text/x-python; charset=utf-8", ".ipynb": "application/x-ipynb+json",
	".mp4": "video/mp4", ".webm": "video/webm", ".wav": "audio/wav", ".mp3": "audio/mpeg", ".flac": "audio/flac",
	".parquet": "application/vnd.apache.parquet", ".zip": "application/zip", ".gz": "application/gzip", ".tar": "application/x-tar",
	".pt": "application/octet-stream", ".bin": "application/octet-stream", ".onnx": "application/octet-stream", ".safetensors": "application/octet-stream", ".npy": "application/octet-stream",
}

// sandboxPolicy is the content security policy of files of tasks, which are not trusted: a page has an origin of its
// own, runs no scripts and loads nothing.
const sandboxPolicy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'"

// blobResponse describes the answer with a file.
type blobResponse struct {
	store.Blob

	name      string
	mediaType string // content type; "" to sniff it
	inline    bool   // browsers show it and do not save it
}

func (s *server) getArtifact(w http.ResponseWriter, r *http.Request, in *artifactInput) error {
	id, artifacts, err := s.artifacts(r.Context(), &in.ArtifactsInput)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(artifacts, func(a muster.Artifact) bool { return a.Name == in.Name })
	if i < 0 {
		return muster.Errorf(muster.NotFound, "task %s has no artifact %q: %s lists its artifacts", id, in.Name, rest.Path("/tasks/"+id.String()+"/artifacts"))
	}
	if file := principalOf(r.Context()).File; file != "" && file != artifacts[i].SHA256 {
		return muster.Errorf(muster.NotFound, "task %s has another artifact %q than when this URL was made: get a new URL", id, in.Name)
	}
	err = s.serveBlob(w, r, &blobResponse{
		Blob: store.Blob{SHA256: artifacts[i].SHA256, Size: artifacts[i].Size}, name: path.Base(in.Name), mediaType: contentType(in.Name), inline: !in.Download,
	})
	return s.artifactsDeleted(r.Context(), id.Job, err)
}

// contentType returns the content type of a file by its extension, or "".
func contentType(name string) string { return contentTypes[strings.ToLower(path.Ext(name))] }

// serveBlob answers with a blob, or with the requested ranges of it. A negative size is unknown.
func (s *server) serveBlob(w http.ResponseWriter, r *http.Request, b *blobResponse) error {
	if _, err := s.statBlob(r.Context(), b.SHA256, b.Size); err != nil {
		return err
	}
	sha256 := b.SHA256
	content, err := s.Blobs.Open(r.Context(), sha256)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	reader := &errorReportingReader{content, func(err error) { s.blobChecker.ReadFailed(sha256, err) }}
	mediaType, disposition := b.mediaType, "attachment"
	if mediaType == "" {
		if mediaType, err = sniffContentType(reader); err != nil {
			return err
		}
	}
	if b.inline {
		disposition = "inline"
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": b.name}))
	h.Set("ETag", `"`+sha256+`"`)
	h.Set("Cache-Control", "private, no-cache")
	h.Set("Content-Security-Policy", sandboxPolicy)
	http.ServeContent(streaming.NewWriter(w, r), r, "", time.Time{}, reader)
	return nil
}

// sniffContentType detects the content type of a file from its first bytes.
func sniffContentType(f io.ReadSeeker) (string, error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	_, err = f.Seek(0, io.SeekStart)
	return http.DetectContentType(head[:n]), err
}

// pathIPFS is the path of IPFS gateways. It serves files of jobs.
const pathIPFS = "/ipfs/"

type contentInput struct {
	CID string `path:"cid" maxLength:"200" example:"QmT78zSuBmuS4z925WZfrqQ1qHaJ56DQaTfyMUF7F8ff5o" doc:"CIDv0, or the CIDv1 of the same file"`
}

// contentCandidates is the number of files with one identifier that are read at once from the store.
const contentCandidates = 20

// getContent serves a file of the newest job that has it and that the caller may read. It verifies the identifier that a worker reported.
func (s *server) getContent(w http.ResponseWriter, r *http.Request, in *contentInput) error {
	id, err := cid.Canonical(in.CID)
	if err != nil {
		return err
	}
	q := store.ContentQuery{CID: id, Project: principalOf(r.Context()).Project, Limit: contentCandidates}
	mismatchedJob, missingErr := muster.JobID(0), error(nil)
	for {
		candidates, err := s.Store.Contents(r.Context(), q)
		switch {
		case err != nil:
			return err
		case len(candidates) > 0:
		case missingErr != nil:
			return missingErr
		case mismatchedJob != 0:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s: the file that job %d reported under this identifier does not match it", id, mismatchedJob)
		default:
			return muster.Errorf(muster.NotFound, "no job has a file ipfs://%s", id)
		}
		q.After = candidates[len(candidates)-1]
		slices.SortStableFunc(candidates, func(a, b store.Content) int { return cmp.Compare(b.Verification, a.Verification) }) // verified ones first
		for i := range candidates {
			switch err := s.router.AuthorizeJob(r.Context(), candidates[i].Job, auth.ReadJobs); {
			case muster.CodeOf(err) == muster.NotFound:
				continue
			case err != nil:
				return err
			}
			ok, err := s.VerifyCID(r.Context(), candidates[i])
			switch {
			case muster.CodeOf(err) == muster.NotFound:
				missingErr = err
			case err != nil:
				return err
			case ok:
				name := candidates[i].Name
				return s.serveBlob(w, r, &blobResponse{Blob: store.Blob{SHA256: candidates[i].SHA256, Size: candidates[i].Size}, name: path.Base(name), mediaType: contentType(name)})
			default:
				mismatchedJob = candidates[i].Job
			}
		}
	}
}
