package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
)

const (
	// MaxFolderFiles is the maximum number of files in one folder.
	MaxFolderFiles = 200_000
	// maxConcurrentUploads is the number of files that are read or sent at once.
	maxConcurrentUploads = 4
)

// UploadProgress is the progress of an upload.
type UploadProgress struct {
	Files  int   // in the folder
	Bytes  int64 // size of these files
	ToSend int64 // bytes that the server does not have; -1 if not known yet
	Sent   int64 // of ToSend
}

// UploadFolder uploads a folder and returns the value for the files field of a spec:
// "sha256:…". It does not send files that the server has already, resumes interrupted
// uploads, and does not hold files in memory. It skips what the folder's .musterignore
// matches, .git, .muster and empty folders. Symbolic links are uploaded as links; a link
// that leads out of the folder is an error. progress, if not nil, is called by one goroutine
// at a time.
func (c *Client) UploadFolder(ctx context.Context, dir string, progress func(UploadProgress)) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", muster.Errorf(muster.Invalid, "cannot open the folder %s: %w", dir, err)
	}
	defer func() { _ = root.Close() }()
	f := &folderUpload{client: c, root: root, dir: dir, progress: progress, state: UploadProgress{ToSend: -1}}
	if err := f.walk(); err != nil {
		return "", err
	}
	if err := f.hash(ctx); err != nil {
		return "", err
	}
	for range maxUploadRounds {
		start := time.Now()
		if err := f.uploadMissing(ctx); err != nil {
			return "", err
		}
		if time.Since(start) < longUpload {
			break
		}
	}
	return f.uploadTree(ctx)
}

const (
	// longUpload is the duration of an upload after which it asks again for missing files: the server keeps files without a job only for
	// a time, of at least an hour, after the client uploaded or asked for them.
	longUpload      = 20 * time.Minute
	maxUploadRounds = 3
)

type folderUpload struct {
	client *Client
	root   *os.Root
	dir    string // for messages
	tree   muster.Tree

	mu       sync.Mutex
	state    UploadProgress
	progress func(UploadProgress)
}

func (f *folderUpload) updateProgress(change func(*UploadProgress)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.state)
	if f.progress != nil {
		f.progress(f.state)
	}
}

// walk lists the files to upload, sorted by path.
func (f *folderUpload) walk() error {
	rules, err := f.root.ReadFile(IgnoreFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, IgnoreFile), err)
	}
	ig, err := parseIgnore(rules)
	if err != nil {
		return err
	}
	err = fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, name), err)
		case name == ".":
			return nil
		case ig.match(name, d.IsDir()):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		case len(f.tree.Files) == MaxFolderFiles:
			return muster.Errorf(muster.TooLarge, "the folder %s has more than %d files: list unneeded ones in %s", f.dir, MaxFolderFiles, IgnoreFile)
		}
		return f.add(name, d)
	})
	if err != nil {
		return err
	}
	slices.SortFunc(f.tree.Files, func(a, b muster.File) int { return strings.Compare(a.Path, b.Path) })
	f.updateProgress(func(p *UploadProgress) {
		p.Files = len(f.tree.Files)
		for _, e := range f.tree.Files {
			p.Bytes += e.Size
		}
	})
	return nil
}

func (f *folderUpload) add(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, name), err)
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		f.tree.Files = append(f.tree.Files, muster.File{Path: name, Size: info.Size(), Exec: mode&0o111 != 0})
	case mode&fs.ModeSymlink != 0:
		target, err := f.root.Readlink(name)
		if err != nil {
			return muster.Errorf(muster.Invalid, "cannot read the link %s: %w", path.Join(f.dir, name), err)
		}
		if !f.linkStaysInside(name, target) {
			return muster.Errorf(muster.Invalid, "the link %s leads out of the folder, to %s: list it in %s, or move its target into the folder",
				path.Join(f.dir, name), target, IgnoreFile)
		}
		f.tree.Files = append(f.tree.Files, muster.File{Path: name, Link: target})
	default:
		return muster.Errorf(muster.Invalid, "%s is not a file, folder or link: list it in %s", path.Join(f.dir, name), IgnoreFile)
	}
	return nil
}

// linkStaysInside reports whether a link stays in the folder, by its text and, if its
// target exists, by following it: os.Root rejects a chain that leads out.
func (f *folderUpload) linkStaysInside(name, target string) bool {
	if path.IsAbs(target) || strings.Contains(target, `\`) {
		return false
	}
	to := path.Join(path.Dir(name), target)
	if to == ".." || strings.HasPrefix(to, "../") {
		return false
	}
	_, err := f.root.Stat(name)
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

func (f *folderUpload) hash(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentUploads)
	for i := range f.tree.Files {
		e := &f.tree.Files[i]
		if e.Link != "" {
			continue
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			in, err := f.root.Open(e.Path)
			if err != nil {
				return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, e.Path), err)
			}
			defer func() { _ = in.Close() }()
			sum := sha256.New()
			if e.Size, err = io.Copy(sum, in); err != nil {
				return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, e.Path), err)
			}
			e.SHA256 = hex.EncodeToString(sum.Sum(nil))
			return nil
		})
	}
	return group.Wait()
}

// uploadMissing uploads the files that the server does not have, each content once.
func (f *folderUpload) uploadMissing(ctx context.Context) error {
	files := map[string]*muster.File{}
	var hashes []string
	for i := range f.tree.Files {
		if e := &f.tree.Files[i]; e.Link == "" && files[e.SHA256] == nil {
			files[e.SHA256] = e
			hashes = append(hashes, e.SHA256)
		}
	}
	missing, err := f.client.MissingBlobs(ctx, hashes)
	if err != nil {
		return err
	}
	f.updateProgress(func(p *UploadProgress) {
		p.ToSend = 0
		for _, h := range missing {
			if e := files[h]; e != nil {
				p.ToSend += e.Size
			}
		}
	})
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxConcurrentUploads)
	for _, h := range missing {
		e := files[h]
		if e == nil {
			return muster.Errorf(muster.Internal, "the server reported an unknown blob %q as missing", h)
		}
		group.Go(func() error { return f.uploadFile(ctx, e) })
	}
	return group.Wait()
}

func (f *folderUpload) uploadFile(ctx context.Context, e *muster.File) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	in, err := f.root.Open(e.Path)
	if err != nil {
		return muster.Errorf(muster.Invalid, "cannot read %s: %w", path.Join(f.dir, e.Path), err)
	}
	defer func() { _ = in.Close() }()
	reported := int64(0)
	err = f.client.PutBlob(ctx, e.SHA256, in, e.Size, func(done int64) {
		f.updateProgress(func(p *UploadProgress) { p.Sent += done - reported })
		reported = done
	})
	if muster.CodeOf(err) == muster.Invalid {
		return muster.Errorf(muster.Invalid, "%s changed while it was uploaded: try again (%w)", path.Join(f.dir, e.Path), err)
	}
	return err
}

func (f *folderUpload) uploadTree(ctx context.Context) (string, error) {
	data, err := json.Marshal(f.tree)
	if err != nil {
		return "", muster.Errorf(muster.Internal, "cannot encode the list of files as JSON: %w", err)
	}
	sum := sha256.Sum256(data)
	hash := hex.EncodeToString(sum[:])
	if err := f.client.PutBlob(ctx, hash, bytes.NewReader(data), int64(len(data)), nil); err != nil {
		return "", err
	}
	return "sha256:" + hash, nil
}
