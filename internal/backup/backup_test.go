package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/backup"
	"github.com/muster-dev/muster/internal/store"
)

var info = store.DatabaseInfo{ID: "0123456789abcdef", Schema: 33, NextJob: 17}

const database = "the bytes of a database"

func blobName(content string) string {
	sum := sha256.Sum256([]byte(content))
	name := hex.EncodeToString(sum[:])
	return "blobs/" + name[:2] + "/" + name[2:4] + "/" + name
}

// tree writes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// list returns the files below a directory with their contents.
func list(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path == dir {
			return fs.SkipAll
		}
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(name)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func source(dir string) backup.Source {
	return backup.Source{Data: dir, Version: "v1.2.3", Snapshot: func(_ context.Context, path string) (store.DatabaseInfo, error) {
		return info, os.WriteFile(path, []byte(database), 0o600)
	}}
}

func write(t *testing.T, s backup.Source) ([]byte, backup.Summary) {
	t.Helper()
	var b bytes.Buffer
	summary, err := backup.Write(t.Context(), &b, s)
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), summary
}

func verify(_ context.Context, path string) (store.DatabaseInfo, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return store.DatabaseInfo{}, err
	}
	if string(content) != database {
		return store.DatabaseInfo{}, muster.Errorf(muster.Internal, "the database is damaged")
	}
	return info, nil
}

func kept() map[string]string {
	return map[string]string{
		"webhook.key":                      "key",
		"secrets.key":                      "key",
		"history":                          "charts",
		"local/keys.json":                  "{}",
		"dialects/qubix/accounts.key":      "secret",
		"dialects/qubix/fleet/fleet.db":    "workers",
		"dialects/trainforge/tasks/1.json": "{}",
		"logs/0k/16/0/0.1.log":             "output",
		"logs/0k/16/0/1.1.tail/262144":     "end of the output",
		"logs/0k/16/0/1.1.tail/gap":        "gap",
		"logs/3/0/0.1.log":                 "output of an older muster",
		blobName("artifact"):               "artifact",
		blobName(""):                       "",
	}
}

func left() map[string]string {
	return map[string]string{
		"muster.db":                          "changes in place",
		"muster.db-wal":                      "wal",
		"muster.db.lock":                     "",
		"last-commit":                        "mark",
		"first-tokens":                       "tokens",
		"worker/identity.json":               "of a worker",
		"backup.tmp":                         "of a killed backup",
		"logs/0k/17/0/0.1.log":               "of a job after the snapshot",
		"logs/0k/16/0/0.1.log.idx":           "index",
		"logs/removed/16-1/0/0.1.log":        "removed",
		"blobs/partial/abcd":                 "upload",
		"blobs/damaged/abcd":                 "damaged",
		"blobs/removed/abcd":                 "removed",
		"dialects/qubix/fleet/cache/x":       "cache",
		"dialects/qubix/fleet/logs/1/0.log":  "running",
		"dialects/trainforge/uploads/1.zip":  "upload",
		"dialects/qubix/.tokens.json.12.tmp": "half written",
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	files := kept()
	all := maps.Clone(files)
	maps.Copy(all, left())
	dir := tree(t, all)
	stream, written := write(t, source(dir))
	if _, left := list(t, dir)["backup.tmp"]; left {
		t.Error("the copy of the database is left")
	}
	files["muster.db"] = database
	if written.Files != int64(len(files)) || written.NextJob != 17 || written.Version != "v1.2.3" || len(written.Damaged) > 0 {
		t.Errorf("wrote %+v, want %d files", written, len(files))
	}
	var copied bytes.Buffer
	checked, err := backup.Check(t.Context(), io.TeeReader(bytes.NewReader(stream), &copied))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(copied.Bytes(), stream) {
		t.Errorf("a copy while checking has %d bytes of %d", copied.Len(), len(stream))
	}
	to := filepath.Join(t.TempDir(), "new", "data")
	restored, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []backup.Summary{checked, restored} {
		if fmt.Sprint(s) != fmt.Sprint(written) {
			t.Errorf("read %+v, want %+v", s, written)
		}
	}
	if got := list(t, to); !maps.Equal(got, files) {
		t.Errorf("restored %v\nwant %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files)))
	}
	err = filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		stat, err := e.Info()
		if err == nil && stat.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, stat.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// An open database is written as of one moment, not as its file is.
func TestOpenDatabases(t *testing.T) {
	t.Parallel()
	s := source(tree(t, map[string]string{"dialects/qubix/fleet/fleet.db": "torn"}))
	s.Databases = map[string]backup.View{"dialects/qubix/fleet/fleet.db": func(f func(int64, io.WriterTo) error) error {
		return f(5, strings.NewReader("whole"))
	}}
	held, released := false, false
	s.Hold = func(context.Context) (func(), error) {
		held = true
		return func() { released = true }, nil
	}
	stream, _ := write(t, s)
	to := filepath.Join(t.TempDir(), "data")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err != nil {
		t.Fatal(err)
	}
	if got := list(t, to)["dialects/qubix/fleet/fleet.db"]; got != "whole" {
		t.Errorf("restored %q, want %q", got, "whole")
	}
	if !held || !released {
		t.Errorf("deletion was held: %v, and released: %v", held, released)
	}
}

func mustNotRestore(t *testing.T, stream []byte, what string) {
	t.Helper()
	parent := t.TempDir()
	to := filepath.Join(parent, "data")
	if s, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err == nil {
		t.Fatalf("%s: restored %+v", what, s)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Fatalf("%s: left %v, %v", what, list(t, parent), err)
	}
	if _, err := backup.Check(t.Context(), bytes.NewReader(stream)); err == nil {
		t.Fatalf("%s: the check found nothing", what)
	}
}

// size returns the length of a stream without the padding at its end.
func size(stream []byte) int { return bytes.LastIndexByte(stream, '}') + 1 }

func TestTruncatedAnywhere(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	for n := 0; n < size(stream); n += 128 {
		mustNotRestore(t, stream[:n], fmt.Sprintf("the first %d bytes", n))
	}
}

func TestFlippedBitAnywhere(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	original := list(t, restored(t, stream))
	refused, accepted := 0, 0
	for n := 0; n < size(stream); n += 7 {
		changed := bytes.Clone(stream)
		changed[n] ^= 1 << (n % 8)
		if _, err := backup.Check(t.Context(), bytes.NewReader(changed)); err != nil {
			refused++
			continue
		}
		if accepted++; accepted%50 != 0 { // restoring syncs a file system
			continue
		}
		to := filepath.Join(t.TempDir(), "data")
		if _, err := backup.Restore(t.Context(), bytes.NewReader(changed), to, verify); err != nil {
			t.Fatalf("with a flipped bit in byte %d, the check succeeds and restoring fails: %v", n, err)
		}
		// A bit of padding, or of a header's field that is not used.
		if got := list(t, to); !maps.Equal(got, original) {
			t.Fatalf("with a flipped bit in byte %d other files were restored", n)
		}
	}
	if refused == 0 || accepted < 50 {
		t.Errorf("%d changes were refused, %d accepted", refused, accepted)
	}
}

func restored(t *testing.T, stream []byte) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "data")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err != nil {
		t.Fatal(err)
	}
	return to
}

// insert puts an entry before the last one.
func insert(t *testing.T, stream []byte, h *tar.Header, content string) []byte {
	t.Helper()
	var b bytes.Buffer
	out, in := tar.NewWriter(&b), tar.NewReader(bytes.NewReader(stream))
	for {
		next, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if next.Name == "end.json" {
			if err := out.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(out, content); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.WriteHeader(next); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil && h.Size == int64(len(content)) {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestHostileEntries(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	for _, h := range []tar.Header{
		{Name: "../outside"},
		{Name: "logs/../../outside"},
		{Name: "/etc/passwd"},
		{Name: "logs"},
		{Name: `logs\..\outside`},
		{Name: "unknown/file"},
		{Name: "muster.db.lock"},
		{Name: "restore-incomplete"},
		{Name: "webhook.key"}, // a second time
		{Name: "muster.db"},
		{Name: "history/file"},      // below a file
		{Name: "logs/0k/16/0"},      // a directory
		{Name: "logs/added"},        // not in the checksum
		{Name: blobName("artifac")}, // of other content
		{Name: "logs/link", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "logs/link", Typeflag: tar.TypeLink, Linkname: "webhook.key"},
		{Name: "logs/device", Typeflag: tar.TypeChar},
		{Name: "logs/dir/", Typeflag: tar.TypeDir},
	} {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		mustNotRestore(t, insert(t, stream, &h, ""), fmt.Sprintf("%q of type %c", h.Name, h.Typeflag))
	}
}

func FuzzRestore(f *testing.F) {
	var b bytes.Buffer
	dir := f.TempDir()
	if _, err := backup.Write(f.Context(), &b, source(dir)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte("text"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		parent := t.TempDir()
		to := filepath.Join(parent, "data")
		_, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify)
		entries, readErr := os.ReadDir(parent)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil && len(entries) > 0 || err == nil && len(entries) != 1 {
			t.Errorf("restoring returned %v and left %v", err, list(t, parent))
		}
	})
}

// A restore that was killed can be repeated, and nothing else is ever removed.
func TestKilledRestore(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	to := tree(t, map[string]string{backup.IncompleteName: "", "muster.db": "half", "logs/1/0/0.1.log": "half", "webhook.key": "half"})
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err != nil {
		t.Fatal(err)
	}
	want := kept()
	want["muster.db"] = database
	if got := list(t, to); !maps.Equal(got, want) {
		t.Errorf("restored %v, want %v", got, want)
	}
	for _, files := range []map[string]string{
		{"muster.db": "of a server"},
		{"notes.txt": "of a user"},
		{backup.IncompleteName: "", "notes.txt": "of a user"},
	} {
		dir := tree(t, files)
		_, err := backup.Restore(t.Context(), bytes.NewReader(stream), dir, verify)
		if muster.CodeOf(err) != muster.Conflict {
			t.Errorf("into a directory with %v: %v, want a Conflict", files, err)
		}
		delete(files, backup.IncompleteName)
		if got := list(t, dir); !maps.Equal(got, files) {
			t.Errorf("the directory had %v and has %v", files, got)
		}
	}
}

func TestEmptyDirectoryStays(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	to := t.TempDir()
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream[:len(stream)/2]), to, verify); err == nil {
		t.Fatal("half a backup was restored")
	}
	if entries, err := os.ReadDir(to); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err != nil {
		t.Fatal(err)
	}
}

func TestDamagedBlobIsLeftOut(t *testing.T) {
	t.Parallel()
	files := kept()
	damaged := blobName("artifact")
	files[damaged] = "artifacT"
	stream, written := write(t, source(tree(t, files)))
	if !slices.Equal(written.Damaged, []string{damaged}) {
		t.Fatalf("damaged are %v, want %s", written.Damaged, damaged)
	}
	got := list(t, restored(t, stream))
	delete(files, damaged)
	files["muster.db"] = database
	if !maps.Equal(got, files) {
		t.Errorf("restored %v, want %v", got, files)
	}
}

func TestDamagedDatabaseIsNotRestored(t *testing.T) {
	t.Parallel()
	s := source(tree(t, kept()))
	s.Snapshot = func(_ context.Context, path string) (store.DatabaseInfo, error) {
		return info, os.WriteFile(path, []byte("damaged"), 0o600)
	}
	stream, _ := write(t, s)
	to := filepath.Join(t.TempDir(), "data")
	if _, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, verify); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("got %v, want that the database is damaged", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

// Files may appear, grow and vanish during a backup.
// TestBackupOfANewerProgram names the program that wrote the backup, and what this one supports.
func TestBackupOfANewerProgram(t *testing.T) {
	t.Parallel()
	stream, _ := write(t, source(tree(t, kept())))
	to := filepath.Join(t.TempDir(), "to")
	_, err := backup.Restore(t.Context(), bytes.NewReader(stream), to, func(context.Context, string) (store.DatabaseInfo, error) {
		return store.DatabaseInfo{}, muster.Errorf(muster.Conflict, "the database has schema version 41 and this muster supports versions up to 31")
	})
	if muster.CodeOf(err) != muster.Conflict || !strings.Contains(err.Error(), "of muster v1.2.3: the database has schema version 41 and this muster supports versions up to 31") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}

func TestFilesChangeMeanwhile(t *testing.T) {
	t.Parallel()
	files := kept()
	for n := range 50 {
		files[fmt.Sprintf("logs/0k/%d/0/0.1.log", 1+n%10)+strconv.Itoa(n)] = strings.Repeat("x", 100*n)
	}
	dir := tree(t, files)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			name := filepath.Join(dir, fmt.Sprintf("logs/0k/%d/0/0.1.log", 1+n%10)+strconv.Itoa(n%50))
			if n%3 == 0 {
				_ = os.Remove(name)
			}
			f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
			if err == nil {
				_, _ = f.WriteString("more")
				_ = f.Close()
			}
		}
	}()
	for range 20 {
		stream, _ := write(t, source(dir))
		if _, err := backup.Check(t.Context(), bytes.NewReader(stream)); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
}

func TestInterruptedBackup(t *testing.T) {
	t.Parallel()
	dir := tree(t, kept())
	ctx, cancel := context.WithCancel(t.Context())
	s := source(dir)
	snapshot := s.Snapshot
	s.Snapshot = func(ctx context.Context, path string) (store.DatabaseInfo, error) {
		defer cancel()
		return snapshot(ctx, path)
	}
	var b bytes.Buffer
	if _, err := backup.Write(ctx, &b, s); muster.CodeOf(err) != muster.Unavailable {
		t.Fatalf("got %v, want an Unavailable error", err)
	}
	if got := list(t, dir); !maps.Equal(got, kept()) {
		t.Errorf("left %v", got)
	}
	mustNotRestore(t, b.Bytes(), "an interrupted backup")
}

func TestOtherFiles(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"empty": "", "text": strings.Repeat("text\n", 1000), "zstd": "\x28\xb5\x2f\xfd" + strings.Repeat("\x00\x01", 1000),
	} {
		_, err := backup.Check(t.Context(), strings.NewReader(content))
		if muster.CodeOf(err) != muster.Invalid || !strings.Contains(err.Error(), "not a backup") {
			t.Errorf("%s: %v, want that it is not a backup", name, err)
		}
	}
}
