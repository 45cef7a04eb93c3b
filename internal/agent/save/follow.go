package save

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
)

const (
	defaultEvery = 30 * time.Second
	rest         = 3 // times as long as a look took nothing is looked at
	atOnce       = 4 // files that are uploaded

	// the most that a checkpoint may have to be saved
	maxFiles = 20_000
	maxPath  = 1024 // bytes; to look into a folder takes the square of its depth
	maxSize  = muster.Size(64 << 30)

	// tick is longer than the time that any file system takes for one.
	tick = 2 * time.Second

	listSuffix = ".list"
)

// follower follows one folder. look is called by one goroutine at a time.
type follower struct {
	*Saver

	task *run.Task
	dir  string
	say  func(line string)

	onSaved func() // after each checkpoint that the server was told of

	note *note
	told string          // the tree that the server was last told, or told us
	said map[string]bool // lines that the log has
}

// Follow implements run.Checkpoints.
func (s *Saver) Follow(t *run.Task, dir string, say func(line string), onSaved func()) (stop func(last time.Duration)) {
	f := &follower{Saver: s, task: t, dir: dir, say: say, onSaved: onSaved, note: readNote(dir), told: t.Checkpoint, said: map[string]bool{}}
	ctx, cancel := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() { f.run(ctx) })
	var once sync.Once
	return func(last time.Duration) {
		once.Do(func() {
			cancel()
			loop.Wait()
			if last <= 0 {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), last)
			defer cancel()
			f.tell(f.look(ctx))
		})
	}
}

func (f *follower) run(ctx context.Context) {
	every := f.task.Spec.Checkpoint.Every.Std()
	if every <= 0 {
		every = defaultEvery
	}
	t := time.NewTimer(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		began := time.Now()
		if err := f.look(ctx); ctx.Err() == nil {
			f.tell(err)
		}
		t.Reset(max(every, rest*time.Since(began)))
	}
}

// tell writes into the task's log why it is not saved, once for each reason.
func (f *follower) tell(err error) {
	if err != nil {
		f.once("the checkpoint is not saved off this worker: " + err.Error())
	}
}

func (f *follower) once(line string) {
	if !f.said[line] {
		f.said[line] = true
		f.say(line)
	}
}

// look saves what has changed since the look before.
func (f *follower) look(ctx context.Context) error {
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read
	found, err := f.list(root)
	if err != nil {
		return err
	}
	taken, err := f.takeAll(ctx, root, found)
	if err != nil {
		return err
	}
	files, tree := make(map[string]saved, len(found)), muster.Tree{Files: []muster.File{}}
	for i, e := range found {
		switch {
		case e.link != "":
			tree.Files = append(tree.Files, muster.File{Path: e.path, Link: e.link})
		case taken[i].SHA256 != "":
			files[e.path] = taken[i]
			tree.Files = append(tree.Files, taken[i].file(e.path))
		}
	}
	return f.publish(ctx, &tree, files)
}

// takeAll uploads the files that changed, a few at once. Of one that is being written
// it returns what was saved of it before, or nothing.
func (f *follower) takeAll(ctx context.Context, root *os.Root, found []entry) ([]saved, error) {
	taken := make([]saved, len(found))
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, e := range found {
		if e.link != "" {
			continue
		}
		taken[i] = f.note.Files[e.path]
		if taken[i].stamp == e.stamp && !taken[i].Fresh || all.Err() != nil {
			continue
		}
		g.Go(func() error {
			s, err := f.take(all, root, e.path)
			switch {
			case err == nil:
				taken[i] = s
			case !errors.Is(err, errChanged):
				return fmt.Errorf("%s: %w", e.path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return taken, context.Cause(ctx)
}

// entry is a file of the folder, or a link.
type entry struct {
	path string
	stamp

	link string
}

var errChanged = errors.New("it changes while it is read")

// list finds what is to be saved, by path.
func (f *follower) list(root *os.Root) ([]entry, error) {
	var all []entry
	var size muster.Size
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the task removed it meanwhile
		}
		if err != nil {
			return fmt.Errorf("%s cannot be read: %w", name, bare(err))
		}
		if d.IsDir() && len(name) > maxPath {
			f.once(fmt.Sprintf("%.60s… is not saved with the checkpoint: its path is longer than %d bytes", name, maxPath))
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
			f.once(fmt.Sprintf("%q is not saved with the checkpoint: its name is not plain text", name))
			return nil
		case info.Mode()&fs.ModeSymlink != 0:
			if e.link = inner(root, name); e.link == "" {
				f.once(name + " is not saved with the checkpoint: it is a link that leads out of the folder")
				return nil
			}
		case !info.Mode().IsRegular():
			f.once(name + " is not saved with the checkpoint: it is not a file")
			return nil
		default:
			size += muster.Size(info.Size())
		}
		all = append(all, e)
		switch {
		case len(all) > maxFiles:
			return fmt.Errorf("it has more than %d files", maxFiles)
		case size > maxSize:
			return fmt.Errorf("it has more than %s", maxSize)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	return all, err
}

// inner returns where a link leads to in the folder, "" if it leads elsewhere.
func inner(root *os.Root, name string) string {
	link, err := root.Readlink(name)
	if err != nil || path.IsAbs(link) || strings.ContainsAny(link, "\\\x00") || !fs.ValidPath(path.Join(path.Dir(name), link)) {
		return ""
	}
	return link
}

// take uploads a file.
func (f *follower) take(ctx context.Context, root *os.Root, name string) (saved, error) {
	began := time.Now()
	file, err := root.OpenFile(name, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return saved{}, errChanged
	}
	if err != nil {
		return saved{}, bare(err)
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return saved{}, bare(err)
	}
	if !before.Mode().IsRegular() {
		return saved{}, errChanged
	}
	sha, size, upErr := f.cfg.Blobs.UploadFile(ctx, file)
	after, err := file.Stat()
	s := saved{stamp: stampOf(before), SHA256: sha, Fresh: before.ModTime().After(began.Add(-tick))}
	if err != nil || s.stamp != stampOf(after) || upErr == nil && size != s.Size {
		return saved{}, errChanged
	}
	return s, upErr
}

// publish uploads the list of files and tells the server, if it is another one.
func (f *follower) publish(ctx context.Context, tree *muster.Tree, files map[string]saved) error {
	b, err := json.Marshal(tree)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	sha := hex.EncodeToString(sum[:])
	if len(tree.Files) == 0 && f.told == "" {
		return nil // nothing was made yet
	}
	if sha != f.told {
		if err := f.uploadList(ctx, b); err != nil {
			return err
		}
	}
	if sha != f.note.last() || !maps.Equal(files, f.note.Files) {
		f.note.Files = files
		f.note.was(sha)
		if err := f.note.write(f.dir); err != nil {
			f.cfg.Log.Warn("what was saved of a checkpoint is not remembered", slog.String("folder", f.dir), slog.Any("error", err))
		}
	}
	if sha != f.told {
		f.told = sha
		f.cfg.Saved(f.task.Attempt, sha)
		f.onSaved()
	}
	return nil
}

func (f *follower) uploadList(ctx context.Context, b []byte) error {
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
	_, _, err = f.cfg.Blobs.UploadFile(ctx, list)
	return err
}

// bare is an error without the path, which names folders of the worker.
func bare(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}
