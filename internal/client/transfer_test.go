package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/apitest"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/link"
)

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// artifact creates a task that has one artifact with random content.
func artifact(t *testing.T, s *apitest.Server, c *client.Client, name string, size int) (muster.TaskID, muster.Artifact, []byte) {
	t.Helper()
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	a := muster.Artifact{Name: name, Size: int64(size), SHA256: sha256Hex(content)}
	if err := s.PutBlob(t.Context(), a.SHA256, string(content)); err != nil {
		t.Fatal(err)
	}
	submit(t, c, noop(1))
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	w.Finish(id, muster.AttemptSucceeded, 0, a)
	if _, err := c.Wait(t.Context(), id.Task.Job); err != nil {
		t.Fatal(err)
	}
	return id.Task, a, content
}

// target is the file name in a new directory.
func target(t *testing.T, name string) client.Target {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return client.Target{Root: root, Name: name}
}

func TestDownloadAcrossCutConnections(t *testing.T) {
	s, c, f := start(t)
	task, a, content := artifact(t, s, c, "sub folder/ü #1?.bin", 300_000)
	list, err := c.Artifacts(t.Context(), task)
	if err != nil || len(list) != 1 || list[0].SHA256 != a.SHA256 {
		t.Fatalf("artifacts %+v, %v", list, err)
	}
	f.cutAfter.Store(70_000)
	to := target(t, "new/sub folder/file")
	last := int64(0)
	if err := c.DownloadArtifact(t.Context(), task, a, to, func(done int64) {
		if done < last {
			t.Errorf("progress decreases from %d to %d", last, done)
		}
		last = done
	}); err != nil {
		t.Fatal(err)
	}
	got, err := to.Root.ReadFile(to.Name)
	if err != nil || !bytes.Equal(got, content) || last != a.Size {
		t.Errorf("got %d bytes, progress %d, %v", len(got), last, err)
	}
	f.cutAfter.Store(0)
	var buf bytes.Buffer
	if err := c.ReadArtifact(t.Context(), task, a, &buf); err != nil || !bytes.Equal(buf.Bytes(), content) {
		t.Errorf("Read: %d bytes, %v", buf.Len(), err)
	}
}

// A download resumes an earlier one, and starts over if that was of a different file.
func TestDownloadIsResumed(t *testing.T) {
	s, c, _ := start(t)
	task, a, content := artifact(t, s, c, "x", 50_000)
	for name, remaining := range map[string][]byte{
		"begun": content[:20_000], "whole": content, "longer": append(slices.Clip(content), 'x'), "empty": nil,
	} {
		to := target(t, "file")
		if err := to.Root.WriteFile(client.PartName("file", a.SHA256), remaining, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.DownloadArtifact(t.Context(), task, a, to, nil); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := to.Root.ReadFile("file"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: other content, %v", name, err)
		}
	}
	to := target(t, "file")
	if err := to.Root.WriteFile(client.PartName("file", a.SHA256), []byte("of another file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.DownloadArtifact(t.Context(), task, a, to, nil); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("damaged content: %v", err)
	}
	if err := c.DownloadArtifact(t.Context(), task, a, to, nil); err != nil {
		t.Errorf("the damaged part was not deleted: %v", err)
	}
}

// A server that sends more than the artifact has does not fill the disk.
func TestDownloadThatDoesNotEnd(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	c, err := client.New(s.URL, "", client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	to, most := target(t, "file"), int64(0)
	a := muster.Artifact{Name: "file", Size: 100_000, SHA256: sha256Hex(make([]byte, 100_000))}
	err = c.DownloadArtifact(t.Context(), muster.TaskID{Job: 1}, a, to, func(done int64) { most = max(most, done) })
	if muster.CodeOf(err) != muster.Invalid || most != a.Size+1 {
		t.Errorf("%d bytes are written, %v", most, err)
	}
	if entries, err := os.ReadDir(to.Root.Name()); err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}

// The newest version of a file that a running task replaces repeatedly is downloaded, never a mix of two versions.
func TestDownloadOfReplacedFiles(t *testing.T) {
	s, c, _ := start(t)
	submit(t, c, noop(1))
	w := s.ConnectWorker(t, "w1")
	id := w.StartNext()
	serve := func(text string) muster.Artifact {
		a := muster.Artifact{Name: "live/a.png", Size: int64(len(text)), SHA256: sha256Hex([]byte(text))}
		if err := s.PutBlob(t.Context(), a.SHA256, text); err != nil {
			t.Fatal(err)
		}
		w.Send(&link.ToServer{Progress: []muster.Progress{{Attempt: id, Artifacts: []muster.Artifact{a}}}})
		for task, err := c.Task(t.Context(), id.Task); len(task.Artifacts) == 0 || task.Artifacts[0].SHA256 != a.SHA256; task, err = c.Task(t.Context(), id.Task) {
			if err != nil {
				t.Fatal(err)
			}
		}
		return a
	}
	old := serve("the first of them")
	serve("the last")
	to, buf := target(t, "a.png"), new(bytes.Buffer)
	if err := to.Root.WriteFile(client.PartName(to.Name, old.SHA256), []byte("the first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.DownloadArtifact(t.Context(), id.Task, old, to, nil), c.ReadArtifact(t.Context(), id.Task, old, buf)); err != nil {
		t.Fatal(err)
	}
	if got, err := to.Root.ReadFile(to.Name); err != nil || string(got) != "the last" || buf.String() != "the last" {
		t.Errorf("it is %q, and read %q, %v", got, buf, err)
	}
	w.Send(&link.ToServer{Finished: []muster.Report{{Attempt: id, Outcome: muster.AttemptSucceeded, FinishedAt: 1}}})
	if _, err := c.Wait(t.Context(), id.Task.Job); err != nil {
		t.Fatal(err)
	}
	if err := c.DownloadArtifact(t.Context(), id.Task, old, to, nil); muster.CodeOf(err) != muster.NotFound {
		t.Errorf("a deleted one: %v", err)
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// tree reads an uploaded folder back from the server's store.
func tree(t *testing.T, s *apitest.Server, ref string) muster.Tree {
	t.Helper()
	sum, ok := strings.CutPrefix(ref, "sha256:")
	if !ok {
		t.Fatalf("%q is not a reference", ref)
	}
	var tr muster.Tree
	if err := json.Unmarshal(stored(t, s, sum), &tr); err != nil {
		t.Fatal(err)
	}
	return tr
}

func stored(t *testing.T, s *apitest.Server, sum string) []byte {
	t.Helper()
	r, err := s.Blobs.Open(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	b, err := io.ReadAll(r)
	if err != nil || sha256Hex(b) != sum {
		t.Fatalf("blob %s: %v", sum, err)
	}
	return b
}

func TestUploadFolder(t *testing.T) {
	s, c, f := start(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"train.py": "print(1)\n", "data/a.csv": "1,2\n", "data/same.csv": "1,2\n", "data/big.bin": strings.Repeat("x", 3<<20),
		".git/config": "secret", "sub/.muster/x": "secret", "model.pt": "big", "keep.pt": "kept", ".musterignore": "*.pt\n!keep.pt\n", "empty": "",
	})
	for name, target := range map[string]string{"link": "data/a.csv", "data/up": "../train.py", "dangling": "not/there"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "train.py"), 0o700); err != nil {
		t.Fatal(err)
	}
	f.cutReads.Store(1 << 20)
	var last client.UploadProgress
	ref, err := c.UploadFolder(t.Context(), dir, func(p client.UploadProgress) { last = p })
	if err != nil {
		t.Fatal(err)
	}
	tr := tree(t, s, ref)
	var got []string
	for _, e := range tr.Files {
		line := e.Path
		if e.Exec {
			line += "*"
		}
		if e.Link != "" {
			line += " -> " + e.Link
		} else {
			b := stored(t, s, e.SHA256)
			if want, err := os.ReadFile(filepath.Join(dir, e.Path)); err != nil || !bytes.Equal(b, want) || e.Size != int64(len(want)) {
				t.Errorf("%s arrived with other content: %v", e.Path, err)
			}
		}
		got = append(got, line)
	}
	want := []string{".musterignore", "dangling -> not/there", "data/a.csv", "data/big.bin", "data/same.csv", "data/up -> ../train.py",
		"empty", "keep.pt", "link -> data/a.csv", "train.py*"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
	if last.Sent != last.ToSend || last.Files != len(tr.Files) || last.ToSend >= last.Bytes {
		t.Errorf("progress at the end: %+v; equal contents are sent once", last)
	}
	f.cutReads.Store(0)
	again, err := c.UploadFolder(t.Context(), dir, func(p client.UploadProgress) { last = p })
	if err != nil || again != ref || last.ToSend != 0 {
		t.Errorf("again: %s, %v, %d bytes to send; want the same and nothing", again, err, last.ToSend)
	}
	spec := shell("python train.py")
	spec.Tasks[0].Files = ref
	submit(t, c, spec)
}

func TestUploadFolderErrors(t *testing.T) {
	_, c, _ := start(t)
	links := map[string]string{"absolute": "/etc/passwd", "out": "../x", "deep": "a/../../x", "chain": "inner/../../x"}
	for name, target := range links {
		dir := t.TempDir()
		write(t, dir, map[string]string{"a/b/file": "x"})
		if err := os.Symlink("a/b", filepath.Join(dir, "inner")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UploadFolder(t.Context(), dir, nil); muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), name) {
			t.Errorf("link to %s: %v", target, err)
		}
		write(t, dir, map[string]string{".musterignore": name})
		if _, err := c.UploadFolder(t.Context(), dir, nil); err != nil {
			t.Errorf("an ignored link to %s: %v", target, err)
		}
	}
	if _, err := c.UploadFolder(t.Context(), filepath.Join(t.TempDir(), "missing"), nil); muster.CodeOf(err) != muster.Invalid {
		t.Errorf("no folder: %v", err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{".musterignore": "ok\n[\n"})
	if _, err := c.UploadFolder(t.Context(), dir, nil); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a bad pattern: %v", err)
	}
}

// A partial upload of another client with wrong bytes does not prevent an upload, whether
// it is shorter or longer than the file.
func TestUploadReplacesOtherBytes(t *testing.T) {
	for _, existing := range []int{3, 300} {
		s, c, _ := start(t)
		content := []byte("the file's own bytes")
		broken := io.MultiReader(bytes.NewReader(make([]byte, existing)), iotest.ErrReader(io.ErrUnexpectedEOF))
		if err := s.Blobs.ForOwner("p:").Put(t.Context(), sha256Hex(content), 0, broken); err == nil {
			t.Fatal("an interrupted upload succeeded")
		}
		err := c.PutBlob(t.Context(), sha256Hex(content), bytes.NewReader(content), int64(len(content)), nil)
		if err != nil || !bytes.Equal(stored(t, s, sha256Hex(content)), content) {
			t.Errorf("over %d other bytes: %v", existing, err)
		}
	}
}

// Neither client nor server reads a whole file into memory.
func TestLargeFilesAreStreamed(t *testing.T) {
	_, c, _ := start(t)
	const size = 64 << 20
	dir := t.TempDir()
	big, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		t.Fatal(err)
	}
	if err := big.Truncate(size); err != nil { // takes no room on disk
		t.Fatal(err)
	}
	if err := big.Close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.UploadFolder(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > size/8 {
		t.Errorf("%d bytes were allocated for a file of %d", used, size)
	}
}

func TestUploadStopsWithItsContext(t *testing.T) {
	_, c, f := start(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "x"})
	f.refuse.Store(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.UploadFolder(ctx, dir, nil); err == nil {
		t.Error("an upload without a context succeeded")
	}
}
