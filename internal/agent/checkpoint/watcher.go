package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/backoff"
)

const (
	defaultInterval = muster.Duration(30 * time.Second)
	idleFactor      = 3 // minimal pause, as a multiple of the duration of the last scan
	maxConcurrent   = 4 // uploads

	// Limits of a checkpoint.
	maxFiles = 20_000
	maxPath  = 1024 // bytes; the time to read a folder grows with the square of its depth
	maxSize  = muster.Size(64 << 30)

	// mtimeGranularity is at least that of any file system.
	mtimeGranularity = 2 * time.Second

	listSuffix = ".list"
)

// watcher uploads one folder. One goroutine at a time calls scan.
type watcher struct {
	*Uploader

	task    *run.Task
	dir     string
	logLine func(line string)

	onSaved func() // called after each report to the server

	manifest  *manifest
	published string          // the last tree that the server knows for the task
	logged    map[string]bool // lines that are in the log
}

// Watch implements process.CheckpointStore.
func (s *Uploader) Watch(t *run.Task, dir string, logLine func(line string), onSaved func()) (stop func(timeout time.Duration)) {
	f := &watcher{Uploader: s, task: t, dir: dir, logLine: logLine, onSaved: onSaved, manifest: readManifest(dir), published: t.Checkpoint, logged: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { f.run(ctx) })
	var once sync.Once
	return func(timeout time.Duration) {
		once.Do(func() {
			cancel()
			loop.Wait()
			if timeout <= 0 {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			f.logFailure(f.scan(ctx))
		})
	}
}

func (f *watcher) run(ctx context.Context) {
	interval := f.task.Spec.Checkpoint.Every.Or(defaultInterval).Std()
	for pause := interval; backoff.Sleep(ctx, pause) == nil; {
		began := time.Now()
		if err := f.scan(ctx); ctx.Err() == nil {
			f.logFailure(err)
		}
		pause = max(interval, idleFactor*time.Since(began))
	}
}

// logFailure writes err to the task's log, once for each text.
func (f *watcher) logFailure(err error) {
	if err != nil {
		f.logOnce("saving the checkpoint to the server failed: " + err.Error())
	}
}

func (f *watcher) logOnce(line string) {
	if !f.logged[line] {
		f.logged[line] = true
		f.logLine(line)
	}
}

// scan uploads what has changed since the last scan.
func (f *watcher) scan(ctx context.Context) error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	entries, err := f.listFiles(root)
	if err != nil {
		return err
	}
	uploaded, err := f.uploadChanged(ctx, root, entries)
	if err != nil {
		return err
	}
	files, tree := make(map[string]savedFile, len(entries)), muster.Tree{Files: []muster.File{}}
	for i, e := range entries {
		switch {
		case e.link != "":
			tree.Files = append(tree.Files, muster.File{Path: e.path, Link: e.link})
		case uploaded[i].SHA256 != "":
			files[e.path] = uploaded[i]
			tree.Files = append(tree.Files, uploaded[i].treeEntry(e.path))
		}
	}
	return f.publish(ctx, &tree, files)
}

// uploadChanged uploads the changed files. For a file that is being written it returns the last uploaded version, or zero.
func (f *watcher) uploadChanged(ctx context.Context, root *os.Root, entries []entry) ([]savedFile, error) {
	uploaded := make([]savedFile, len(entries))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrent)
	for i, e := range entries {
		if e.link != "" {
			continue
		}
		uploaded[i] = f.manifest.Files[e.path]
		if uploaded[i].stamp == e.stamp && !uploaded[i].Recent || gctx.Err() != nil {
			continue
		}
		g.Go(func() error {
			s, err := f.upload(gctx, root, e.path)
			switch {
			case err == nil:
				uploaded[i] = s
			case !errors.Is(err, errChanged):
				return fmt.Errorf("%s: %w", e.path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return uploaded, context.Cause(ctx)
}

type entry struct {
	path string
	stamp

	link string
}

var errChanged = errors.New("it changes while it is read")

// listFiles returns the files and links to save, sorted by path.
func (f *watcher) listFiles(root *os.Root) ([]entry, error) {
	var all []entry
	var size muster.Size
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the task removed it meanwhile
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, withoutPath(err))
		}
		if d.IsDir() && len(name) > maxPath {
			f.logOnce(fmt.Sprintf("%.60s… is not saved with the checkpoint: its path is longer than %d bytes", name, maxPath))
			return fs.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // the task removed it meanwhile
		}
		e := entry{path: name, stamp: stampOf(info)}
		switch {
		case strings.ContainsAny(name, "\\\x00") || !fs.ValidPath(name):
			f.logOnce(fmt.Sprintf("%q is not saved with the checkpoint: its name is not plain text", name))
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			if e.link = innerLink(root, name); e.link == "" {
				f.logOnce(name + " is not saved with the checkpoint: it is a link that points outside the folder")
				return nil
			}
		case !info.Mode().IsRegular():
			f.logOnce(name + " is not saved with the checkpoint: it is not a file")
			return nil
		default:
			size += muster.Size(info.Size())
		}
		all = append(all, e)
		switch {
		case len(all) > maxFiles:
			return fmt.Errorf("it has more than %d files", maxFiles)
		case size > maxSize:
			return fmt.Errorf("it is larger than %s", maxSize)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	return all, err
}

// innerLink returns the target of a link within the folder, "" if it points outside.
func innerLink(root *os.Root, name string) string {
	link, err := root.Readlink(name)
	if err != nil || path.IsAbs(link) || strings.ContainsAny(link, "\\\x00") || !fs.ValidPath(path.Join(path.Dir(name), link)) {
		return ""
	}
	return link
}

func (f *watcher) upload(ctx context.Context, root *os.Root, name string) (savedFile, error) {
	began := time.Now()
	file, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return savedFile{}, errChanged
	}
	if err != nil {
		return savedFile{}, withoutPath(err)
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return savedFile{}, withoutPath(err)
	}
	if !before.Mode().IsRegular() {
		return savedFile{}, errChanged
	}
	sha, size, upErr := f.Blobs.UploadFile(ctx, file)
	after, err := file.Stat()
	s := savedFile{stamp: stampOf(before), SHA256: sha, Recent: before.ModTime().After(began.Add(-mtimeGranularity))}
	if err != nil || s.stamp != stampOf(after) || upErr == nil && size != s.Size {
		return savedFile{}, errChanged
	}
	return s, upErr
}

// publish uploads the list of files and reports it to the server if it has changed.
func (f *watcher) publish(ctx context.Context, tree *muster.Tree, files map[string]savedFile) error {
	b, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	sha := hex.EncodeToString(sum[:])
	if len(tree.Files) == 0 && f.published == "" {
		return nil // the task has written nothing yet
	}
	if sha != f.published {
		if err := f.uploadList(ctx, b); err != nil {
			return err
		}
	}
	if sha != f.manifest.lastTree() || !maps.Equal(files, f.manifest.Files) {
		f.manifest.Files = files
		f.manifest.addTree(sha)
		if err := f.manifest.write(f.dir); err != nil {
			f.Log.Warn("writing a checkpoint's manifest failed", slog.String("folder", f.dir), slog.Any("error", err))
		}
	}
	if sha != f.published {
		f.published = sha
		f.OnSaved(f.task.Attempt, sha)
		f.onSaved()
	}
	return nil
}

func (f *watcher) uploadList(ctx context.Context, b []byte) error {
	path := f.dir + listSuffix
	if err := os.WriteFile(path, b, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(path) }() // the next one replaces it
	list, err := os.Open(path)
	if err != nil {
		return err
	}
	defer list.Close()
	_, _, err = f.Blobs.UploadFile(ctx, list)
	return err
}

// withoutPath removes the path from an error, because it names folders of the worker.
func withoutPath(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
