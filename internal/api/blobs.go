package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/rest"
	"github.com/muster-dev/muster/internal/api/streaming"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

// maxBlob is the maximum size of a blob, in bytes.
const maxBlob = 1 << 40

func (s *server) blobRoutes() {
	at := rest.Path("/blobs/{sha256}")
	rest.Handle(s.router, rest.Route{ID: "missing-blobs", Method: http.MethodPost, Path: rest.Path("/blobs/missing"), Tag: "blobs",
		Summary: "List which of these blobs the server does not have", Verb: auth.WriteBlobs, Audit: rest.AuditDenials}, s.missingBlobs)
	rest.Stream(s.router, rest.Route{ID: "get-blob", Method: http.MethodGet, Path: at, Tag: "blobs",
		Summary: "Download a blob, or ranges of it", Verb: auth.ReadBlobs, ContentType: "application/octet-stream"}, s.getBlob)
	rest.Stream(s.router, rest.Route{ID: "head-blob", Method: http.MethodHead, Path: at, Tag: "blobs",
		Summary: "Check whether the server has a blob: 404 with Upload-Offset if it has only a part", Verb: auth.ReadBlobs}, s.headBlob)
	rest.Handle(s.router, rest.Route{ID: "check-blob", Method: http.MethodPost, Path: at + "/check", Tag: "blobs",
		Summary: "Check a blob whose download was damaged: the server verifies its file and moves it aside if it is damaged", Verb: auth.ReadBlobs, Audit: rest.AuditDenials}, s.checkBlob)
	rest.Stream(s.router, rest.Route{ID: "put-blob", Method: http.MethodPut, Path: at, Tag: "blobs", Verb: auth.WriteBlobs, Audit: rest.AuditCounted,
		Summary: "Upload a blob, or resume its upload",
		Body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}}}, s.putBlob)
}

// BlobPath is a blob in a path.
type BlobPath struct {
	SHA256 string `path:"sha256" pattern:"^[0-9a-f]{64}$" patternDescription:"64 lower-case hex digits"`
}

type putBlobInput struct {
	BlobPath
	Offset int64 `header:"Upload-Offset" minimum:"0" maximum:"1099511627776" doc:"offset of the body in the blob: the number of bytes that the server has"`
}

type missingInput struct{ Body wire.Hashes }

func (s *server) missingBlobs(ctx context.Context, in *missingInput) (*rest.Response[wire.Missing], error) {
	missing := []string{}
	for _, sum := range in.Body.SHA256 {
		_, err := s.uploadedSize(ctx, sum)
		switch {
		case muster.CodeOf(err) == muster.NotFound:
			missing = append(missing, sum)
		case err != nil:
			return nil, err
		}
	}
	return rest.Respond(wire.Missing{Missing: missing}), nil
}

func (s *server) getBlob(w http.ResponseWriter, r *http.Request, in *BlobPath) error {
	size, err := s.authorizeBlob(r.Context(), in.SHA256)
	if err == nil {
		err = s.storeResult(r.Context(), in.SHA256)
	}
	if err != nil {
		return err
	}
	return s.serveBlob(w, r, &blobResponse{Blob: store.Blob{SHA256: in.SHA256, Size: size}, name: in.SHA256, mediaType: "application/octet-stream"})
}

// storeResult stores the result of a task that is an input of an attempt of the worker that asks for it, unless it is stored. Nothing
// refers to it there: it is removed like other such blobs, and stored again when another attempt needs it.
func (s *server) storeResult(ctx context.Context, sha256 string) error {
	p := principalOf(ctx)
	if p.Role != auth.Worker {
		return nil
	}
	if _, err := s.Blobs.Stat(ctx, sha256); muster.CodeOf(err) != muster.NotFound {
		return err
	}
	result, err := s.BlobNeeds.ResultInput(ctx, p.Worker, sha256)
	if err != nil || result == nil {
		return err
	}
	return s.Blobs.Put(ctx, sha256, 0, bytes.NewReader(result))
}

// uploads returns the caller's uploader.
func (s *server) uploads(ctx context.Context) blob.Uploader {
	return s.Blobs.ForOwner(string(holderOf(principalOf(ctx))))
}

func (s *server) headBlob(w http.ResponseWriter, r *http.Request, in *BlobPath) error {
	size, err := s.uploadedSize(r.Context(), in.SHA256)
	if muster.CodeOf(err) == muster.NotFound {
		if offset, partialErr := s.uploads(r.Context()).Partial(r.Context(), in.SHA256); partialErr == nil {
			w.Header().Set(wire.HeaderOffset, strconv.FormatInt(offset, 10))
		}
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("ETag", `"`+in.SHA256+`"`)
	w.WriteHeader(http.StatusOK)
	return nil
}

// putBlob accepts an upload. A caller without access to the blob must send all of it even if the server has it: knowing its
// hash does not prove possession.
func (s *server) putBlob(w http.ResponseWriter, r *http.Request, in *putBlobInput) error {
	if r.ContentLength > maxBlob-in.Offset {
		return tooLarge()
	}
	size, err := s.uploadedSize(r.Context(), in.SHA256)
	if err == nil {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if muster.CodeOf(err) != muster.NotFound {
		return err
	}
	uploads := s.uploads(r.Context())
	limited := http.MaxBytesReader(w, r.Body, maxBlob-in.Offset)
	err = uploads.Put(r.Context(), in.SHA256, in.Offset, streaming.NewReader(limited, w, r))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	if muster.CodeOf(err) == muster.Conflict {
		if offset, partialErr := uploads.Partial(r.Context(), in.SHA256); partialErr == nil {
			w.Header().Set(wire.HeaderOffset, strconv.FormatInt(offset, 10))
		}
	}
	if err == nil {
		s.blobChecker.Replaced(in.SHA256)
		size, err = s.Blobs.Stat(r.Context(), in.SHA256)
	}
	if err == nil {
		err = s.blobGranter.Grant(r.Context(), holderOf(principalOf(r.Context())), store.Blob{SHA256: in.SHA256, Size: size})
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

// checkBlob verifies the file of a blob for a caller that received wrong bytes.
func (s *server) checkBlob(ctx context.Context, in *BlobPath) (*rest.Response[wire.BlobCheck], error) {
	if _, err := s.authorizeBlob(ctx, in.SHA256); err != nil {
		return nil, err
	}
	verdict, err := s.blobChecker.Check(ctx, in.SHA256, principalOf(ctx).KeyID)
	return rest.Respond(wire.BlobCheck{Verdict: string(verdict)}), err
}

func tooLarge() error {
	return muster.Errorf(muster.TooLarge, "the blob is too large: the maximum is %s", muster.Size(maxBlob))
}

// errorReportingReader reports read errors other than io.EOF.
type errorReportingReader struct {
	io.ReadSeeker
	onError func(error)
}

func (r *errorReportingReader) Read(b []byte) (int, error) {
	n, err := r.ReadSeeker.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		r.onError(err)
	}
	return n, err
}

// BlobNeeds reports which blobs attempts need.
type BlobNeeds interface {
	// NeedsBlob reports whether a current attempt of the worker needs a blob, and the blob's size, -1 if unknown. If stale is
	// set, a negative answer may be two seconds old, and is fast.
	NeedsBlob(ctx context.Context, w muster.WorkerID, sha256 string, stale bool) (size int64, ok bool, err error)
	// Files returns the files of a tree. Errors are NotFound, and Invalid or TooLarge for blobs that are not trees.
	Files(ctx context.Context, tree string) ([]store.Blob, error)
	// ResultInput returns a result with this hash that a current attempt of the worker has as an input, or nil.
	ResultInput(ctx context.Context, w muster.WorkerID, sha256 string) ([]byte, error)
}

// holderOf returns the grantee of a key's uploads.
func holderOf(p auth.Principal) store.Grantee {
	if p.Role == auth.Worker {
		return store.WorkerGrantee(p.Worker)
	}
	return store.ProjectGrantee(p.Project)
}

// canReadBlob reports whether the caller may read a blob, and its size, -1 if unknown. Keys for all projects may read every
// blob, keys of a project those uploaded for it or created by its jobs, and workers those that they uploaded and those that
// their current attempts need.
func (s *server) canReadBlob(ctx context.Context, sha256 string) (size int64, ok bool, err error) {
	p := principalOf(ctx)
	size, ok, err = s.Grants.BlobGrant(ctx, holderOf(p), sha256)
	switch {
	case err != nil || ok:
	case p.Role == auth.Worker:
		var reported int64
		if reported, ok, err = s.BlobNeeds.NeedsBlob(ctx, p.Worker, sha256, false); size < 0 {
			size = reported
		}
	default:
		ok = p.Project == ""
	}
	return size, ok, err
}

// authorizeBlob returns the size of a blob that the caller may read, -1 if unknown. For other blobs it returns NotFound.
func (s *server) authorizeBlob(ctx context.Context, sha256 string) (size int64, err error) {
	size, ok, err := s.canReadBlob(ctx, sha256)
	if err == nil && !ok {
		err = blobNotFound(sha256)
	}
	return size, err
}

// uploadedSize returns the size of a blob that the caller need not upload, because the server has it and the caller may read it.
// It grants a needed blob to a worker, so that the worker may refer to it in its reports, also for another job.
func (s *server) uploadedSize(ctx context.Context, sha256 string) (int64, error) {
	p := principalOf(ctx)
	if p.Role != auth.Worker {
		size, err := s.authorizeBlob(ctx, sha256)
		if err != nil {
			return 0, err
		}
		return s.statOrMissing(ctx, sha256, size)
	}
	size, granted, err := s.Grants.BlobGrant(ctx, holderOf(p), sha256)
	if err != nil {
		return 0, err
	}
	if !granted {
		reported, needed, err := s.BlobNeeds.NeedsBlob(ctx, p.Worker, sha256, true)
		if err != nil {
			return 0, err
		}
		if !needed {
			return 0, blobNotFound(sha256)
		}
		size = reported
	}
	if size, err = s.statOrMissing(ctx, sha256, size); err == nil { // also again: retention keeps what was granted lately
		err = s.blobGranter.Grant(ctx, holderOf(p), store.Blob{SHA256: sha256, Size: size})
	}
	return size, err
}

func blobNotFound(sha256 string) error {
	return muster.Errorf(muster.NotFound, "there is no blob %s", sha256)
}

// statBlob returns the size of a blob's file, or NotFound. It verifies a file of the wrong size and one whose last read
// failed, and moves it aside if it is damaged.
func (s *server) statBlob(ctx context.Context, sha256 string, size int64) (int64, error) {
	actual, err := s.Blobs.Stat(ctx, sha256)
	if err != nil || (size < 0 || actual == size) && !s.blobChecker.Suspect(sha256) {
		return actual, err
	}
	return actual, s.verifyBlob(ctx, sha256)
}

// statOrMissing does the same for an uploader, and keeps the blob for its job or report. An unreadable file is NotFound, so that the upload replaces it.
func (s *server) statOrMissing(ctx context.Context, sha256 string, size int64) (int64, error) {
	if _, err := s.Blobs.Touch(ctx, sha256); err != nil {
		return 0, err
	}
	actual, err := s.statBlob(ctx, sha256, size)
	if errors.Is(err, errUnreadable) {
		err = blobNotFound(sha256)
	}
	return actual, err
}

var errUnreadable = errors.New("the file cannot be read")

// verifyBlob verifies the file of a suspect blob, and returns an error unless it is intact.
func (s *server) verifyBlob(ctx context.Context, sha256 string) error {
	verdict, err := s.blobChecker.Check(ctx, sha256, "")
	switch {
	case err != nil:
		return err
	case verdict == blob.Damaged:
		return muster.Errorf(muster.NotFound, "the file of blob %s was damaged and has been moved aside: upload it again", sha256)
	case verdict == blob.Unreadable:
		return muster.Errorf(muster.Unavailable, "the server cannot read the file of blob %s now: try again in a minute, or upload the blob again: %w", sha256, errUnreadable)
	case verdict == blob.Unchecked:
		return muster.Errorf(muster.Unavailable, "blob %s may be damaged, and too many other blobs are being verified: try again later", sha256)
	}
	return nil
}
