package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// TestDamagedFiles damages files of blobs on the server's disk. Every request detects a wrong size; other damage is detected when a
// reader reports it. Then the file is moved aside, and the next upload of the blob is accepted.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	s := apitest.Start(t, nil)
	token, otherToken := s.CreateKey(t, auth.Worker, "", "w1"), s.CreateKey(t, auth.Worker, "", "w2")
	content := strings.Repeat("0123456789", 5_000)
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	path := "/api/v1/blobs/" + name
	file := filepath.Join(s.BlobsDir(), name[:2], name[2:4], name)
	report := func(token string) (int, string) {
		t.Helper()
		resp, body := send(t, s, request{method: "POST", path: path + "/check", token: token})
		var check wire.BlobCheck
		if resp.StatusCode == http.StatusOK {
			if err := json.Unmarshal(body, &check); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode, check.Verdict
	}
	missing := func() bool {
		t.Helper()
		var m wire.Missing
		body := expectStatus(t, s, request{method: "POST", path: "/api/v1/blobs/missing", token: token, body: `{"sha256":["` + name + `"]}`}, http.StatusOK)
		if err := json.Unmarshal(body, &m); err != nil {
			t.Fatal(err)
		}
		return slices.Contains(m.Missing, name)
	}
	truncated := func(b []byte) []byte { return b[:len(b)-1] }
	longer := func(b []byte) []byte { return append(b, 'x') }
	flipped := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	notFound := func(method string) func() bool {
		return func() bool {
			resp, _ := send(t, s, request{method: method, path: path, token: token})
			return resp.StatusCode == http.StatusNotFound
		}
	}
	reported := func() bool {
		code, verdict := report(token)
		return code == http.StatusOK && verdict == "damaged"
	}
	for i, c := range []struct {
		name    string
		damage  func([]byte) []byte
		noticed func() bool
	}{
		{"a GET of a cut file", truncated, notFound("GET")},
		{"a HEAD of a cut file", truncated, notFound("HEAD")},
		{"a list of missing blobs with a cut file", truncated, missing},
		{"a GET of a longer file", longer, notFound("GET")},
		{"an upload over a cut file", truncated, nil},
		{"a report", flipped, reported},
		{"a report of a cut file", truncated, reported},
	} {
		expectStatus(t, s, request{method: "PUT", path: path, token: token, body: content}, http.StatusCreated)
		if code, _ := report(otherToken); code != http.StatusNotFound {
			t.Errorf("a report of a worker without access to the blob got %d", code)
		}
		if err := os.WriteFile(file, c.damage([]byte(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.noticed != nil {
			if !c.noticed() {
				t.Errorf("%s does not detect the damage", c.name)
			}
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("%s leaves the damaged file: %v", c.name, err)
			}
			if !missing() {
				t.Errorf("%s: the damaged blob is not missing", c.name)
			}
		}
		expectStatus(t, s, request{method: "PUT", path: path, token: token, body: content}, http.StatusCreated)
		if got := expectStatus(t, s, request{method: "GET", path: path, token: token}, http.StatusOK); !bytes.Equal(got, []byte(content)) {
			t.Errorf("%s: after a new upload the blob has %d bytes", c.name, len(got))
		}
		setAside, err := filepath.Glob(filepath.Join(s.BlobsDir(), "damaged", name+".*"))
		if err != nil || len(setAside) != i+1 {
			t.Errorf("%s: %d damaged files are kept, want %d: %v", c.name, len(setAside), i+1, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	expectStatus(t, s, request{method: "PUT", path: path, token: token, body: content}, http.StatusCreated)
	if code, verdict := report(token); code != http.StatusOK || verdict != "intact" {
		t.Errorf("a report of an intact file is answered %d, %q", code, verdict)
	}
	if err := os.WriteFile(file, flipped([]byte(content)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, verdict := report(token); verdict != "intact" {
		t.Errorf("a file that was intact just now is read again: %q", verdict)
	}
}
