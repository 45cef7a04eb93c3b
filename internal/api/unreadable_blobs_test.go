package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/caller"
	"github.com/muster-dev/muster/internal/auth"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/store"
)

// unreadableBlobs is a store whose files cannot be read until they are replaced.
type unreadableBlobs struct {
	blob.Store

	unreadable atomic.Bool
}

type unreadableFile struct{ io.ReadSeekCloser }

func (unreadableFile) Read([]byte) (int, error) { return 0, syscall.EIO }

func (d *unreadableBlobs) Open(ctx context.Context, sum string) (io.ReadSeekCloser, error) {
	f, err := d.Store.Open(ctx, sum)
	if err == nil && d.unreadable.Load() {
		f = unreadableFile{f}
	}
	return f, err
}

// grantAll grants every blob to everyone.
type grantAll struct{ store.GrantStore }

func (grantAll) BlobGrant(context.Context, store.Grantee, string) (int64, bool, error) {
	return 5, true, nil
}

func (grantAll) GrantBlobs(context.Context, []store.Grantee, []store.Blob) error { return nil }

// A blob with an unreadable file is served again after an upload: after a failed download the server verifies the file, and reports
// the blob as missing to uploaders.
func TestUnreadableBlobIsReplaced(t *testing.T) {
	dir, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.Sum256([]byte("bytes"))
	sum := hex.EncodeToString(h[:])
	if err := dir.Put(t.Context(), sum, 0, strings.NewReader("bytes")); err != nil {
		t.Fatal(err)
	}
	disk := &unreadableBlobs{Store: dir}
	s := newServer(Config{Blobs: disk, Grants: grantAll{}, Log: slog.New(slog.DiscardHandler), LinkSocket: http.NotFoundHandler(), LinkPoll: http.NotFoundHandler()})
	submitter := auth.Principal{Role: auth.Submitter, Project: "alpha"}
	ctx := caller.NewContext(t.Context(), submitter)
	failed := make(chan error, 1) // of the last request
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(caller.NewContext(r.Context(), submitter))
		if r.Method == http.MethodPut {
			failed <- s.putBlob(w, r, &putBlobInput{BlobPath: BlobPath{SHA256: sum}})
		} else {
			failed <- s.serveBlob(w, r, &blobResponse{Blob: store.Blob{SHA256: sum, Size: 5}, mediaType: "text/plain", name: "x"})
		}
	}))
	t.Cleanup(front.Close)
	request := func(method, body string) (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, front.URL, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := front.Client().Do(r)
		if err != nil {
			return "", <-failed
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body) // it may break off
		return string(b), <-failed
	}
	download := func() (string, error) { return request(http.MethodGet, "") }
	if got, err := download(); got != "bytes" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	disk.unreadable.Store(true)
	if got, err := download(); got != "" || err != nil {
		t.Fatalf("from a bad disk: %q, %v", got, err)
	}
	if _, err := download(); muster.CodeOf(err) != muster.Unavailable {
		t.Errorf("after the check: %v", err)
	}
	if _, err := s.uploadedSize(ctx, sum); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("an uploader gets %v", err)
	}
	if _, err := request(http.MethodPut, "bytes"); err != nil {
		t.Errorf("an upload: %v", err)
	}
	disk.unreadable.Store(false)
	if got, err := download(); got != "bytes" || err != nil {
		t.Errorf("after the upload: %q, %v", got, err)
	}
	// A single failure does not cause an upload.
	disk.unreadable.Store(true)
	_, _ = download()
	disk.unreadable.Store(false)
	if size, err := s.uploadedSize(ctx, sum); size != 5 || err != nil {
		t.Errorf("after a temporary failure an uploader gets %d, %v", size, err)
	}
	if got, err := download(); got != "bytes" || err != nil {
		t.Errorf("after a temporary failure: %q, %v", got, err)
	}
}
