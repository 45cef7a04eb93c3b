package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// maxBlob is the most bytes of one blob.
const maxBlob = 1 << 40

func (s *server) blobRoutes() {
	at := prefixed("/blobs/{sha256}")
	handle(s, route{id: "missing-blobs", method: http.MethodPost, path: prefixed("/blobs/missing"), tag: "blobs",
		summary: "Say which of these blobs are not here", verb: auth.WriteBlobs}, s.missingBlobs)
	stream(s, route{id: "get-blob", method: http.MethodGet, path: at, tag: "blobs",
		summary: "Download a blob, or ranges of it", verb: auth.ReadBlobs, answers: "application/octet-stream"}, s.getBlob)
	stream(s, route{id: "head-blob", method: http.MethodHead, path: at, tag: "blobs",
		summary: "Say how much of a blob is here: 404 with Upload-Offset, if not all", verb: auth.ReadBlobs}, s.headBlob)
	stream(s, route{id: "put-blob", method: http.MethodPut, path: at, tag: "blobs", verb: auth.WriteBlobs,
		summary: "Upload a blob, or go on after the bytes that are here",
		body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}},
		}}}, s.putBlob)
}

// BlobPath names a blob.
type BlobPath struct {
	SHA256 string `path:"sha256" pattern:"^[0-9a-f]{64}$" patternDescription:"64 lower-case hex digits"`
}

type putBlobInput struct {
	BlobPath
	Offset int64 `header:"Upload-Offset" minimum:"0" doc:"where in the blob the body begins: as many bytes as are here"`
}

type missingInput struct{ Body wire.Hashes }

func (s *server) missingBlobs(ctx context.Context, in *missingInput) (*body[wire.Missing], error) {
	missing := []string{}
	for _, h := range in.Body.SHA256 {
		_, err := s.Blobs.Stat(ctx, h)
		switch {
		case muster.CodeOf(err) == muster.NotFound:
			missing = append(missing, h)
		case err != nil:
			return nil, err
		}
	}
	return answer(wire.Missing{Missing: missing}), nil
}

func (s *server) getBlob(w http.ResponseWriter, r *http.Request, in *BlobPath) error {
	return s.serveBlob(w, r, in.SHA256, "application/octet-stream", in.SHA256)
}

func (s *server) headBlob(w http.ResponseWriter, r *http.Request, in *BlobPath) error {
	size, err := s.Blobs.Stat(r.Context(), in.SHA256)
	if muster.CodeOf(err) == muster.NotFound {
		if kept, partErr := s.Blobs.Partial(r.Context(), in.SHA256); partErr == nil {
			w.Header().Set(wire.HeaderOffset, strconv.FormatInt(kept, 10))
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

func (s *server) putBlob(w http.ResponseWriter, r *http.Request, in *putBlobInput) error {
	if r.ContentLength > maxBlob-in.Offset {
		return tooLarge()
	}
	_, err := s.Blobs.Stat(r.Context(), in.SHA256)
	if err == nil {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	if muster.CodeOf(err) != muster.NotFound {
		return err
	}
	limited := http.MaxBytesReader(w, r.Body, maxBlob-in.Offset)
	err = s.Blobs.Put(r.Context(), in.SHA256, in.Offset, &patientReader{Reader: limited, ctx: r.Context(), rc: http.NewResponseController(w)})
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge()
	}
	if muster.CodeOf(err) == muster.Conflict {
		if kept, partErr := s.Blobs.Partial(r.Context(), in.SHA256); partErr == nil {
			w.Header().Set(wire.HeaderOffset, strconv.FormatInt(kept, 10))
		}
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusCreated)
	return nil
}

func tooLarge() error {
	return muster.Errorf(muster.TooLarge, "a blob has at most %s", muster.Size(maxBlob))
}
