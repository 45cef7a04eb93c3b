package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/auth"
)

// A file that a result refers to as ipfs://… is served only to callers that may read its job.
func TestDownloadByCID(t *testing.T) {
	const id = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN" // of "hello\n"
	s := apitest.Start(t, nil)
	if err := s.PutBlob(t.Context(), helloSum, "hello\n"); err != nil {
		t.Fatal(err)
	}
	w := s.ConnectWorker(t, "w1")
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"project":"speech","kind":"noop"}`}, http.StatusCreated)
	w.Finish(w.StartNext(), muster.AttemptSucceeded, 0, muster.Artifact{Name: "model.pt", Size: 6, SHA256: helloSum, CID: id})
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"project":"speech","kind":"noop"}`}, http.StatusCreated)
	w.StartNext() // it comes after the report was taken
	for path, want := range map[string]string{
		"/ipfs/" + id: "hello\n",
		"/ipfs/bafybeifft6vckigvatahypyeyswvnsc5hms6ntzsrkf6mxpa6q4ohqfbpa": "", // of another file
		"/ipfs/Qmnonsense": "",
	} {
		resp, body := send(t, s, request{method: "GET", path: path})
		if want != "" && (resp.StatusCode != http.StatusOK || string(body) != want) || want == "" && resp.StatusCode == http.StatusOK {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	part := expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id, header: map[string]string{"Range": "bytes=1-2"}}, http.StatusPartialContent)
	if string(part) != "el" {
		t.Errorf("bytes 1-2 are %q", part)
	}
	expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id, token: s.CreateKey(t, auth.Viewer, "speech", "")}, http.StatusOK)
	expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id, token: s.CreateKey(t, auth.Viewer, "vision", "")}, http.StatusNotFound)
	expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id, token: "mst_viewer_nobody"}, http.StatusUnauthorized)
	expectStatus(t, s, request{method: "GET", path: "/ipfs/Qmnonsense"}, http.StatusBadRequest)
}

// A file that a worker reports under a wrong identifier is not served, and does not affect the file with this identifier.
func TestDownloadByCIDVerifiesTheContent(t *testing.T) {
	const id = "Qmf412jQZiuVUtdgnB36FXFX7xg5V6KEbSJ4dpQuhkLyfD" // of "hello world"
	s := apitest.Start(t, nil)
	if err := s.PutBlob(t.Context(), helloSum, "hello\n"); err != nil {
		t.Fatal(err)
	}
	w := s.ConnectWorker(t, "w1")
	declared := func(list ...muster.Artifact) {
		t.Helper()
		expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop"}`}, http.StatusCreated)
		w.Finish(w.StartNext(), muster.AttemptSucceeded, 0, list...)
		expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", body: `{"kind":"noop"}`}, http.StatusCreated)
		w.Finish(w.StartNext(), muster.AttemptSucceeded, 0) // it comes after the report was taken
	}
	wrongSum := muster.Artifact{Name: "lie", Size: 6, SHA256: helloSum, CID: id}
	declared(wrongSum)
	for range 2 { // the second time it is known
		if body := expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id}, http.StatusNotFound); !strings.Contains(string(body), "no job has a file ipfs://"+id) {
			t.Errorf("the answer is %s", body)
		}
	}
	const sum = "b94d27b9934d3e08a52e52d7da7dabfac484efe37a5380ee9088f7ace2efcde9"
	if err := s.PutBlob(t.Context(), sum, "hello world"); err != nil {
		t.Fatal(err)
	}
	declared(wrongSum, muster.Artifact{Name: "true", Size: 11, SHA256: sum, CID: id})
	declared(wrongSum)
	if body := expectStatus(t, s, request{method: "GET", path: "/ipfs/" + id}, http.StatusOK); string(body) != "hello world" {
		t.Errorf("it is %q", body)
	}
}
