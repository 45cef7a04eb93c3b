package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
	"github.com/muster-dev/muster/internal/link"
)

// server is the blob part of the API, with faults.
type server struct {
	*httptest.Server

	mu     sync.Mutex
	blobs  map[string][]byte
	parts  map[string][]byte
	faults []fault // one for each request, until they are used up
	log    []string

	checked []string // blobs whose bytes were reported as wrong
}

// fault is an error of one request.
type fault struct {
	status int  // answered instead
	cut    int  // bytes after which the connection breaks
	wrong  bool // the first byte is changed
	short  bool // the response ends early
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{blobs: map[string][]byte{}, parts: map[string][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func hashOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func (s *server) put(b []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[hashOf(b)] = b
	return hashOf(b)
}

func (s *server) nextFault(line string) fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, line)
	if len(s.faults) == 0 {
		return fault{}
	}
	f := s.faults[0]
	s.faults = s.faults[1:]
	return f
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if blob, ok := strings.CutSuffix(r.URL.Path, "/check"); ok && r.Method == http.MethodPost && r.Header.Get("Authorization") == "Bearer key" {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.checked = append(s.checked, blob[strings.LastIndex(blob, "/")+1:])
		return
	}
	sha := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	f := s.nextFault(r.Method + " " + r.Header.Get("Range") + r.Header.Get(headerOffset))
	if r.Header.Get("Authorization") != "Bearer key" {
		f.status = http.StatusUnauthorized
	}
	if f.status != 0 {
		http.Error(w, "injected fault", f.status)
		return
	}
	s.mu.Lock()
	blob, ok := s.blobs[sha]
	part := s.parts[sha]
	s.mu.Unlock()
	if r.Method == http.MethodPut {
		s.receive(w, r, sha, part, f)
		return
	}
	if !ok {
		if len(part) > 0 {
			w.Header().Set(headerOffset, strconv.Itoa(len(part)))
		}
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if f.wrong {
		blob = append([]byte{blob[0] + 1}, blob[1:]...)
	}
	if f.cut > 0 {
		w = &cutter{w, f.cut}
	}
	if f.short {
		blob = blob[:len(blob)/2]
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blob))
}

// cutter breaks the connection after some bytes.
type cutter struct {
	http.ResponseWriter

	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	if len(b) > c.left {
		_, _ = c.ResponseWriter.Write(b[:c.left])
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

func (s *server) receive(w http.ResponseWriter, r *http.Request, sha string, part []byte, f fault) {
	if r.Header.Get(headerOffset) != strconv.Itoa(len(part)) {
		w.Header().Set(headerOffset, strconv.Itoa(len(part)))
		w.WriteHeader(http.StatusConflict)
		return
	}
	body := io.Reader(r.Body)
	if f.cut > 0 {
		body = io.LimitReader(body, int64(f.cut))
	}
	b, err := io.ReadAll(body)
	part = append(part, b...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts[sha] = part
	if f.cut > 0 || err != nil {
		panic(http.ErrAbortHandler)
	}
	delete(s.parts, sha)
	if hashOf(part) != sha {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.blobs[sha] = part
	w.WriteHeader(http.StatusCreated)
}

func newClient(t *testing.T, s *server, budget muster.Size) *Client {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Server: u, Credentials: link.StaticToken("key"), HTTP: s.Client(), Dir: filepath.Join(t.TempDir(), "cache"), Budget: budget, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b)
	return b
}

func reasonOf(err error) muster.Reason {
	if e, ok := errors.AsType[*run.TaskError](err); ok {
		return e.Reason
	}
	return muster.NoReason
}

func TestFetchSurvivesFaults(t *testing.T) {
	blob := random(1 << 20)
	for _, tc := range []struct {
		name   string
		faults []fault
		last   string // the last request
	}{
		{"nothing wrong", nil, "GET "},
		{"the server is unavailable for a moment", []fault{{status: 503}, {status: 502}}, "GET "},
		{"a broken connection resumes where it stopped", []fault{{cut: 300_000}}, "GET bytes=300000-"},
		{"two broken connections", []fault{{cut: 300_000}, {cut: 300_000}}, "GET bytes=600000-"},
		{"an answer that ends early", []fault{{short: true}}, "GET bytes=524288-"},
		{"wrong bytes are fetched again", []fault{{wrong: true}, {wrong: true}}, "GET "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			c := newClient(t, s, 0)
			sha := s.put(blob)
			s.faults = tc.faults
			path := filepath.Join(t.TempDir(), "out")
			if err := c.Fetch(t.Context(), sha, int64(len(blob)), path); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, blob) {
				t.Fatalf("got %d bytes that differ, %v", len(got), err)
			}
			if last := s.log[len(s.log)-1]; last != tc.last {
				t.Errorf("the last request was %q, want %q", last, tc.last)
			}
			wrong := 0
			for _, f := range tc.faults {
				if f.wrong {
					wrong++
				}
			}
			if len(s.checked) != wrong || wrong > 0 && s.checked[0] != sha {
				t.Errorf("wrong bytes reported for %v, want %d times", s.checked, wrong)
			}
		})
	}
}

func TestFetchFails(t *testing.T) {
	blob := random(1000)
	for _, tc := range []struct {
		name   string
		sha    string
		faults []fault
		want   string
	}{
		{"a blob that is not there", hashOf([]byte("none")), nil, "does not have it"},
		{"no hash", "../../etc/passwd", nil, "is not a SHA-256"},
		{"bytes that stay wrong", hashOf(blob), []fault{{wrong: true}, {wrong: true}, {wrong: true}}, "sent wrong bytes"},
		{"a key that is refused", hashOf(blob), []fault{{status: 401}}, "401"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			c := newClient(t, s, 0)
			s.put(blob)
			s.faults = tc.faults
			path := filepath.Join(t.TempDir(), "out")
			err := c.Fetch(t.Context(), tc.sha, int64(len(blob)), path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || reasonOf(err) != muster.FetchFailed {
				t.Fatalf("got %v (%s), want one about %q", err, reasonOf(err), tc.want)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file exists after a failed fetch: %v", err)
			}
		})
	}
}

func TestFetchIsCancelled(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s, 0)
	sha := s.put(random(10))
	s.faults = make([]fault, 100)
	for i := range s.faults {
		s.faults[i].status = 503
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := c.Fetch(ctx, sha, 10, filepath.Join(t.TempDir(), "out")); !errors.Is(err, cause) {
		t.Fatalf("got %v, want the cause of the cancel", err)
	}
}

// deadServer is a way to a server that is away.
type deadServer struct{ hangs bool }

func (d deadServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.hangs {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return nil, errors.New("connection refused")
}

func TestRetryTimeout(t *testing.T) {
	for name, transport := range map[string]deadServer{"refused": {}, "silent": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(Config{
					Server: &url.URL{Scheme: "http", Host: "away"}, Credentials: link.StaticToken("key"), HTTP: &http.Client{Transport: transport}, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(t.TempDir(), "f")
				begun := time.Now()
				if err := c.Fetch(t.Context(), hashOf(nil), 10, path); reasonOf(err) != muster.FetchFailed {
					t.Errorf("fetching: %v", err)
				}
				if took := time.Since(begun); took < retryTimeout-backoff.DefaultMax-stallTimeout || took > retryTimeout+stallTimeout {
					t.Errorf("it timed out after %s, want about %s", took, retryTimeout)
				}
				if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, _, err := uploadPath(t, c, path); reasonOf(err) != muster.UploadFailed {
					t.Errorf("uploading: %v", err)
				}
			})
		})
	}
}

func TestCache(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s, 1000)
	dir := t.TempDir()
	n := 0
	fetch := func(sha string, size int64) {
		t.Helper()
		n++
		path := filepath.Join(dir, strconv.Itoa(n))
		if err := c.Fetch(t.Context(), sha, size, path); err != nil {
			t.Fatal(err)
		}
		// A task writes to its input: the next one must not see that.
		if err := os.WriteFile(path, []byte("changed"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	asked := func(want int) {
		t.Helper()
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.log) != want {
			t.Fatalf("%d requests, want %d: %q", len(s.log), want, s.log)
		}
	}
	a, b, big := s.put(random(400)), s.put(random(401)), s.put(random(600))
	fetch(a, 400)
	fetch(a, 400)
	asked(1) // the second one came from the cache, unchanged, or its hash would differ
	fetch(big, 600)
	fetch(big, 600)
	asked(3) // too big for this cache
	fetch(b, 401)
	fetch(a, 400)
	fetch(s.put(random(402)), 402) // evicts b, the least recently used
	asked(5)
	fetch(a, 400)
	asked(5)
	again, err := openCache(c.cfg.Dir, 1000)
	if err != nil {
		t.Fatal(err)
	}
	c.cache = again
	fetch(a, 400)
	asked(5) // it outlasts a restart
	fetch(b, 401)
	asked(6)
	if again.total > 1000 {
		t.Errorf("the cache has %d bytes, want at most 1000", again.total)
	}
}

func TestFetchResumesAfterRestart(t *testing.T) {
	s := newServer(t)
	blob := random(1 << 20)
	sha := s.put(blob)
	c := newClient(t, s, 0)
	if err := os.WriteFile(filepath.Join(c.cache.partials(), sha), blob[:1000], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Fetch(t.Context(), sha, int64(len(blob)), filepath.Join(t.TempDir(), "out")); err != nil {
		t.Fatal(err)
	}
	if s.log[0] != "GET bytes=1000-" {
		t.Errorf("requested %q, want only the missing ones", s.log[0])
	}
}

func TestUploadSurvivesFaults(t *testing.T) {
	blob := random(1 << 20)
	for _, tc := range []struct {
		name   string
		faults []fault
		blob   []byte
		part   int // bytes that the server has; negative for other bytes than these
		log    string
	}{
		{"nothing wrong", nil, blob, 0, "HEAD ,PUT 0"},
		{"an empty file", nil, nil, 0, "HEAD ,PUT 0"},
		{"a part is there", nil, blob, 1000, "HEAD ,PUT 1000"},
		{"the connection breaks", []fault{{}, {cut: 300_000}}, blob, 0, "HEAD ,PUT 0,HEAD ,PUT 300000"},
		{"the server is unavailable for a moment", []fault{{status: 503}, {}, {status: 507}}, blob, 0, "HEAD ,HEAD ,PUT 0,HEAD ,PUT 0"},
		{"a part of other bytes is there", nil, blob, -1000, "HEAD ,PUT 1000,HEAD ,PUT 0"},
		{"more than all of it is there", nil, blob, -2 << 20, "HEAD ,PUT 2097152,HEAD ,PUT 0"},
		{"another upload made progress", []fault{{}, {status: 409}}, blob, 0, "HEAD ,PUT 0,HEAD ,PUT 0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newServer(t)
			c := newClient(t, s, 0)
			s.faults = tc.faults
			if tc.part > 0 {
				s.parts[hashOf(tc.blob)] = tc.blob[:tc.part]
			}
			if tc.part < 0 {
				s.parts[hashOf(tc.blob)] = make([]byte, -tc.part)
			}
			path := filepath.Join(t.TempDir(), "in")
			if err := os.WriteFile(path, tc.blob, 0o600); err != nil {
				t.Fatal(err)
			}
			sha, size, err := uploadPath(t, c, path)
			if err != nil || sha != hashOf(tc.blob) || size != int64(len(tc.blob)) {
				t.Fatalf("got %s, %d, %v", sha, size, err)
			}
			if !bytes.Equal(s.blobs[sha], tc.blob) {
				t.Error("the server has other bytes")
			}
			if got := strings.Join(s.log, ","); got != tc.log {
				t.Errorf("requested %q, want %q", got, tc.log)
			}
			s.log = nil
			if _, _, err := uploadPath(t, c, path); err != nil || len(s.log) != 1 {
				t.Errorf("existing files were sent again: %q, %v", s.log, err)
			}
		})
	}
}

// uploadPath uploads the file at path.
func uploadPath(t *testing.T, c *Client, path string) (sha string, size int64, err error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return c.UploadFile(t.Context(), f)
}

// Cancelling an upload does not wait for the end of an endless file.
func TestUploadIsCancelledWhileReading(t *testing.T) {
	c := newClient(t, newServer(t), 0)
	f, err := os.Create(filepath.Join(t.TempDir(), "endless"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8 << 40); err != nil {
		t.Skip("no file can be so large here: ", err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for at := int64(0); at == 0; at, _ = f.Seek(0, io.SeekCurrent) {
			runtime.Gosched()
		}
		cancel(cause)
	}()
	if _, _, err := c.UploadFile(ctx, f); !errors.Is(err, cause) {
		t.Fatalf("got %v, want the cause of the cancel", err)
	}
}

func TestUploadFails(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s, 0)
	if _, _, err := uploadPath(t, c, t.TempDir()); reasonOf(err) != muster.UploadFailed {
		t.Errorf("a folder: got %v", err)
	}
	path := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.faults = []fault{{}, {status: http.StatusRequestEntityTooLarge}}
	if _, _, err := uploadPath(t, c, path); reasonOf(err) != muster.UploadFailed || !strings.Contains(err.Error(), "413") {
		t.Errorf("too large: got %v", err)
	}
}

func (s *server) putTree(t *testing.T, files ...muster.File) string {
	t.Helper()
	b, err := json.Marshal(muster.Tree{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return s.put(b)
}

func TestFetchTree(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s, 0)
	main, tool := []byte("print('hi')\n"), []byte("#!/bin/sh\n")
	sha := s.putTree(t,
		muster.File{Path: "bin/tool", Size: int64(len(tool)), SHA256: s.put(tool), Exec: true},
		muster.File{Path: "link", Link: "bin/tool"},
		muster.File{Path: "deep/er/up", Link: "../../main.py"},
		muster.File{Path: "main.py", Size: int64(len(main)), SHA256: s.put(main)},
	)
	dir := t.TempDir()
	if err := c.FetchTree(t.Context(), sha, dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"bin/tool": tool, "link": tool, "deep/er/up": main, "main.py": main} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	for name, exec := range map[string]bool{"bin/tool": true, "main.py": false} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode()&0o111 != 0 != exec {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestTreeStaysInside(t *testing.T) {
	s := newServer(t)
	x := s.put([]byte("x"))
	file := func(path string) muster.File { return muster.File{Path: path, Size: 1, SHA256: x} }
	for _, tc := range []struct {
		name  string
		files []muster.File
	}{
		{"upwards", []muster.File{file("../x")}},
		{"upwards in the middle", []muster.File{file("a/../../x")}},
		{"absolute", []muster.File{file("/tmp/x")}},
		{"empty", []muster.File{file("")}},
		{"the folder itself", []muster.File{file(".")}},
		{"backslashes", []muster.File{file(`..\x`)}},
		{"twice", []muster.File{file("x"), file("x")}},
		{"a file and a folder", []muster.File{file("x"), file("x/y")}},
		{"a folder and a file", []muster.File{file("x/y"), file("x")}},
		{"a link upwards", []muster.File{{Path: "l", Link: "../x"}}},
		{"an absolute link", []muster.File{{Path: "l", Link: "/etc"}}},
		{"a link upwards behind a link", []muster.File{{Path: "a/b/c/up", Link: "../../.."}, {Path: "a/b/c/l", Link: "up/../x"}}},
		{"a chain of links", []muster.File{{Path: "a/b/one", Link: "../.."}, {Path: "a/b/two", Link: "one/a/b/one"}, {Path: "a/b/l", Link: "two/.."}}},
		{"no hash", []muster.File{{Path: "x", Size: 1}}},
		{"through a link", []muster.File{{Path: "l", Link: "d"}, file("l/x")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newClient(t, s, 0)
			outer := t.TempDir()
			dir := filepath.Join(outer, "task")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			err := c.FetchTree(t.Context(), s.putTree(t, tc.files...), dir)
			if reasonOf(err) != muster.TaskInvalid {
				t.Errorf("got %v, want a refusal", err)
			}
			if names, _ := os.ReadDir(outer); len(names) != 1 {
				t.Errorf("something was written outside: %v", names)
			}
		})
	}
}

// FuzzTree extracts everything that can be decoded, and checks that no file is outside of the folder, and that an accepted tree is valid.
func FuzzTree(f *testing.F) {
	f.Add([]byte(`{"files":[{"path":"a/b","size":0,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},{"path":"l","link":"a"}]}`))
	f.Add([]byte(`{"files":[{"path":"../a","size":0}]}`))
	f.Add([]byte(`{"files":[{"path":"a","link":"../../b"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := decodeTree(b)
		if err != nil || checkTree(tree) != nil {
			return
		}
		for _, e := range tree.Files {
			if !filepath.IsLocal(filepath.FromSlash(e.Path)) {
				t.Errorf("accepted the path %q", e.Path)
			}
			if e.Link != "" && !filepath.IsLocal(filepath.Join(filepath.Dir(e.Path), e.Link)) {
				t.Errorf("accepted the link %q to %q", e.Path, e.Link)
			}
		}
	})
}

// A server cannot redirect a transfer, with the worker's key, to another address, such as another port of its host.
func TestTransfersDoNotFollowRedirects(t *testing.T) {
	var redirected atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { redirected.Add(1) }))
	defer other.Close()
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))}
	defer s.Close()
	c := newClient(t, s, 0)
	sha := hashOf([]byte("x"))
	if err := c.Fetch(t.Context(), sha, 1, filepath.Join(t.TempDir(), "x")); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("fetch: %v", err)
	}
	path := filepath.Join(t.TempDir(), "y")
	if err := os.WriteFile(path, []byte("y"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := uploadPath(t, c, path); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Errorf("upload: %v", err)
	}
	if n := redirected.Load(); n != 0 {
		t.Errorf("%d requests came to another server", n)
	}
}

// A list of files is read only up to its limit, with or without a content length.
func TestTreeSizeIsLimited(t *testing.T) {
	for _, known := range []bool{true, false} {
		var sent atomic.Int64
		s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			const all = 3 * maxTree
			if known {
				w.Header().Set("Content-Length", strconv.Itoa(all))
			}
			for sent.Load() < all {
				n, err := w.Write(make([]byte, 1<<20))
				sent.Add(int64(n))
				if err != nil {
					return
				}
			}
		}))}
		c := newClient(t, s, 1<<30)
		if err := c.FetchTree(t.Context(), hashOf([]byte("x")), t.TempDir()); reasonOf(err) != muster.TaskInvalid || !strings.Contains(err.Error(), "larger than 64MiB") {
			t.Errorf("length known %v: %v", known, err)
		}
		s.Close()
		if maxSize := int64(2 * maxTree); sent.Load() > maxSize {
			t.Errorf("length known %v: %d bytes were sent", known, sent.Load())
		}
	}
}

// A blob of unknown size, as standard input is, has a limit.
func TestBlobsOfUnknownSizeAreLimited(t *testing.T) {
	var requests atomic.Int64
	s := &server{Server: httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(muster.MaxStdin+1))
		_, _ = w.Write([]byte("x"))
	}))}
	defer s.Close()
	c := newClient(t, s, 4<<30)
	if err := c.Fetch(t.Context(), hashOf([]byte("x")), -1, filepath.Join(t.TempDir(), "stdin")); reasonOf(err) != muster.FetchFailed || !strings.Contains(err.Error(), "larger than 1GiB") {
		t.Error(err)
	}
}
