package transfer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

const (
	maxTree  = 64 << 20 // bytes of a tree's JSON form
	maxFiles = 500_000  // entries of a tree
	maxName  = 255      // bytes of one file's name, as file systems allow
)

// FetchTree implements process.Transfer. Its errors are run.TaskErrors. The tree is not trusted: nothing is written outside dir, and no
// link in it points outside.
func (c *Client) FetchTree(ctx context.Context, sha, dir string) error {
	list, err := c.treeBlob(ctx, sha)
	if err != nil && !errors.Is(err, errLarger) {
		return fetchFailed(sha, err)
	}
	var tree *muster.Tree
	if err == nil {
		tree, err = decodeTree(list)
	}
	if err == nil {
		err = checkTree(tree)
	}
	if err != nil {
		return run.Failf(muster.TaskInvalid, "project folder %s is invalid: %w", short(sha), err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return run.Failf(muster.FetchFailed, "open the task's folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	if err := c.writeTree(ctx, tree, root); err != nil {
		return run.Failf(muster.FetchFailed, "write project folder %s: %w", short(sha), err)
	}
	return nil
}

// treeBlob returns the JSON form of a tree.
func (c *Client) treeBlob(ctx context.Context, sha string) ([]byte, error) {
	if !muster.IsSHA256(sha) {
		return nil, fmt.Errorf("%q is not a SHA-256", sha)
	}
	f, err := c.openCached(ctx, sha, -1, maxTree)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxTree+1))
	if err == nil && len(b) > maxTree { // it was in the cache
		err = tooLongError(maxTree)
	}
	return b, err
}

func decodeTree(b []byte) (*muster.Tree, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var t muster.Tree
	if err := dec.Decode(&t); err != nil {
		return nil, fmt.Errorf("not a list of files: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("extra data after the list of files")
	}
	return &t, nil
}

// checkTree returns an error for a tree that cannot be written within one folder.
func checkTree(t *muster.Tree) error {
	if len(t.Files) > maxFiles {
		return fmt.Errorf("it has %d files, more than %d", len(t.Files), maxFiles)
	}
	seen := make(map[string]bool, len(t.Files)) // whether the path is a folder
	links := map[string]string{}
	for i := range t.Files {
		f := &t.Files[i]
		if !fs.ValidPath(f.Path) || f.Path == "." || strings.ContainsAny(f.Path, "\\\x00") {
			return fmt.Errorf("%q is not a path inside a folder", f.Path)
		}
		if slices.ContainsFunc(strings.Split(f.Path, "/"), func(name string) bool { return len(name) > maxName }) {
			return fmt.Errorf("%q has a name of more than %d bytes", muster.Truncate(f.Path), maxName)
		}
		if folder, ok := seen[f.Path]; ok {
			if folder {
				return fmt.Errorf("%q is a file and a folder", f.Path)
			}
			return fmt.Errorf("%q occurs twice", f.Path)
		}
		seen[f.Path] = false
		for d := path.Dir(f.Path); d != "."; d = path.Dir(d) {
			if folder, ok := seen[d]; ok && !folder {
				return fmt.Errorf("%q is a file and a folder", d)
			}
			seen[d] = true
		}
		switch {
		case f.Link != "":
			if path.IsAbs(f.Link) || !fs.ValidPath(path.Join(path.Dir(f.Path), f.Link)) || strings.ContainsAny(f.Link, "\\\x00") {
				return outsideError(f.Path)
			}
			links[f.Path] = f.Link
		case !muster.IsSHA256(f.SHA256) || f.Size < 0:
			return fmt.Errorf("%q has no valid hash and size", f.Path)
		}
	}
	for p := range links {
		if leavesFolder(p, links) {
			return outsideError(p)
		}
	}
	return nil
}

func outsideError(link string) error { return fmt.Errorf("link %q points outside the folder", link) }

// maxLinks is how many links Linux follows on one path before it gives up (MAXSYMLINKS).
const maxLinks = 40

// leavesFolder reports whether a path leads out of the folder that has these links, by their paths: "a/.." is not where it seems to
// be if a is a link.
func leavesFolder(name string, links map[string]string) bool {
	rest, dir := strings.Split(name, "/"), []string(nil)
	for followed := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			if len(dir) == 0 {
				return true
			}
			dir = dir[:len(dir)-1]
			continue
		}
		dir = append(dir, part)
		if target, ok := links[strings.Join(dir, "/")]; ok {
			if followed++; followed > maxLinks {
				return false // no program gets further
			}
			dir, rest = dir[:len(dir)-1], slices.Concat(strings.Split(target, "/"), rest)
		}
	}
	return false
}

// writeTree writes the files and then the links, so that no file is written through a link.
func (c *Client) writeTree(ctx context.Context, t *muster.Tree, root *os.Root) error {
	g, files := errgroup.WithContext(ctx)
	g.SetLimit(maxConcurrent)
	for i := range t.Files {
		f := &t.Files[i]
		if f.Link != "" || files.Err() != nil {
			continue
		}
		g.Go(func() error {
			if err := c.writeFile(files, f, root); err != nil {
				return fmt.Errorf("%s: %w", f.Path, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range t.Files {
		f := &t.Files[i]
		if f.Link == "" {
			continue
		}
		if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if err := root.Symlink(f.Link, f.Path); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *Client) writeFile(ctx context.Context, f *muster.File, root *os.Root) error {
	mode := fs.FileMode(0o644)
	if f.Exec {
		mode = 0o755
	}
	if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
		return err
	}
	dst, err := root.OpenFile(f.Path, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	return errors.Join(c.fetchInto(ctx, f.SHA256, f.Size, dst), dst.Close())
}
