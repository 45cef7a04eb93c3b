package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/auth"
)

// TestStandardInputOfAJob checks which standard inputs are refused: those that the server does not have, those of another project, paths, and
// files that are too large. An accepted one is young for the sweep.
func TestStandardInputOfAJob(t *testing.T) {
	s := apitest.Start(t, nil)
	alpha, beta := s.CreateKey(t, auth.Submitter, "alpha", ""), s.CreateKey(t, auth.Submitter, "beta", "")
	const text = "some input\n"
	hash := sha256.Sum256([]byte(text))
	sum := hex.EncodeToString(hash[:])
	expectStatus(t, s, request{method: "PUT", path: "/api/v1/blobs/" + sum, token: alpha, body: text}, http.StatusCreated)
	large := strings.Repeat("ab", 32)
	createSparse(t, s, large, muster.MaxStdin+1)

	missing := strings.Repeat("0", 64)
	for _, tt := range []struct{ name, token, stdin, reason string }{
		{"one that is there", alpha, "sha256:" + sum, ""},
		{"one of another project", beta, "sha256:" + sum, "the standard input sha256:" + sum + " was not uploaded"},
		{"one that is not there", alpha, "sha256:" + missing, "the standard input sha256:" + missing + " was not uploaded"},
		{"a path", alpha, "/etc/passwd", `the server cannot read the file "/etc/passwd"`},
		{"one that is too large", "", "sha256:" + large, "the standard input is larger than 1GiB"},
		{"the largest", "", "sha256:" + largest(t, s), ""},
	} {
		spec, err := json.Marshal(map[string]any{"run": []string{"cat"}, "stdin": tt.stdin})
		if err != nil {
			t.Fatal(err)
		}
		q := request{method: "POST", path: "/api/v1/jobs", token: tt.token, body: string(spec)}
		if tt.reason == "" {
			expectStatus(t, s, q, http.StatusCreated)
			continue
		}
		var problem wire.Problem
		if err := json.Unmarshal(expectStatus(t, s, q, http.StatusUnprocessableEntity), &problem); err != nil {
			t.Fatal(err)
		}
		if len(problem.Errors) != 1 || !strings.HasSuffix(problem.Errors[0].Path, "stdin") || problem.Errors[0].Message != tt.reason {
			t.Errorf("%s: %+v, want %s", tt.name, problem.Errors, tt.reason)
		}
	}

	old := time.Now().Add(-48 * time.Hour)
	path := filepath.Join(s.BlobsDir(), sum[:2], sum[2:4], sum)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	expectStatus(t, s, request{method: "POST", path: "/api/v1/jobs", token: alpha, body: `{"run":["cat"],"stdin":"sha256:` + sum + `"}`}, http.StatusCreated)
	if info, err := os.Stat(path); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("a standard input that a job was submitted with is as old as before: %v", err)
	}
}

// largest creates a standard input of the largest size.
func largest(t *testing.T, s *apitest.Server) string {
	t.Helper()
	sum := strings.Repeat("cd", 32)
	createSparse(t, s, sum, muster.MaxStdin)
	return sum
}

// createSparse creates the file of a blob that takes no space.
func createSparse(t *testing.T, s *apitest.Server, sum string, size int64) {
	t.Helper()
	path := filepath.Join(s.BlobsDir(), sum[:2], sum[2:4], sum)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}
