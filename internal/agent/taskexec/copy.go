package taskexec

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/tarfolder"
)

// findFolder returns the folder of an attempt that has a path, and the path in it.
func findFolder(text string, a *run.Access) (f run.AccessFolder, rel string, err error) {
	variable, rel, err := execwire.ParsePath(text)
	if err != nil {
		return f, "", err
	}
	if variable == "/" {
		for _, f := range a.Folders {
			if f.TaskPath == "" {
				continue
			}
			if rest, ok := strings.CutPrefix(rel, path.Clean(f.TaskPath)); ok && (rest == "" || rest[0] == '/') {
				return f, path.Join(".", rest), nil
			}
		}
		return f, "", muster.Errorf(muster.Invalid, "%s is outside the task's folders: use a path in its working folder, $MUSTER_OUT, $MUSTER_CHECKPOINT or $TMPDIR", text)
	}
	for _, f := range a.Folders {
		if f.Variable == variable {
			return f, rel, nil
		}
	}
	return f, "", muster.Errorf(muster.Invalid, "the task has no folder $%s: use a path in its working folder, $MUSTER_OUT, $MUSTER_CHECKPOINT or $TMPDIR", variable)
}

// openFolder opens the folder that has a path.
func openFolder(text string, a *run.Access) (root *os.Root, rel string, err error) {
	f, rel, err := findFolder(text, a)
	if err != nil {
		return nil, "", err
	}
	parent, err := os.OpenRoot(filepath.Dir(f.Dir)) // which the task cannot replace, as it can the folder
	if err == nil {
		root, err = parent.OpenRoot(filepath.Base(f.Dir))
		_ = parent.Close()
	}
	if err != nil {
		return nil, "", muster.Errorf(muster.Conflict, "cannot open the task's folder: it may have ended: %w", err)
	}
	return root, rel, nil
}

func (c *command) note(ctx context.Context) func(string) {
	return func(text string) {
		_ = c.conn.Send(ctx, &execwire.Frame{Note: text}) // the end of the connection ends the copy
	}
}

// get sends a file or folder as a tar archive.
func (c *command) get(ctx context.Context, g *execwire.Get, a *run.Access) error {
	root, rel, err := openFolder(g.Path, a)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	as := path.Base(rel)
	if path.IsAbs(g.Path) {
		as = path.Base(g.Path) // also of the folder itself
	}
	info, err := root.Stat(rel)
	if err != nil {
		return pathError(g.Path, err)
	}
	if info.IsDir() && (g.Path == "" || strings.HasSuffix(g.Path, "/.")) {
		as = "."
	}
	if err := c.conn.Send(ctx, &execwire.Frame{Ready: true}); err != nil {
		return err
	}
	out := c.conn.Writer(ctx, execwire.Stdout)
	w := bufio.NewWriterSize(out, execwire.MaxChunk)
	if err := tarfolder.Pack(ctx, root, rel, as, w, tarfolder.PackOptions{Open: run.OpenRegularIn, Note: c.note(ctx)}); err != nil {
		return pathError(g.Path, err)
	}
	if err := errors.Join(w.Flush(), out.Close()); err != nil {
		return err
	}
	return c.conn.Send(ctx, &execwire.Frame{Exit: &execwire.Exit{}})
}

func pathError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return muster.Errorf(muster.NotFound, "there is no %s in the task's folder", name)
	case muster.CodeOf(err) != muster.Internal:
		return err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return muster.Errorf(muster.Invalid, "cannot copy %s: %w", name, err)
}

// put unpacks the client's tar archive.
func (c *command) put(ctx context.Context, p *execwire.Put, a *run.Access) error {
	root, rel, err := openFolder(p.Path, a)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var owner *tarfolder.Owner
	if info, err := root.Stat("."); err == nil {
		owner = tarfolder.OwnerOf(info)
	}
	name := p.Name
	if p.Extract {
		name = "."
		if info, err := root.Stat(rel); err != nil || !info.IsDir() {
			return muster.Errorf(muster.NotFound, "there is no folder %s in the task: create it first", p.Path)
		}
	}
	if strings.HasSuffix(p.Path, "/") {
		rel += "/"
	}
	o, err := tarfolder.Destination(root, rel, name, owner)
	if err != nil {
		return err
	}
	o.Note = c.note(ctx)
	if err := c.conn.Send(ctx, &execwire.Frame{Ready: true}); err != nil {
		return err
	}
	in := c.conn.Reader(ctx, execwire.Stdin)
	if err := tarfolder.Unpack(ctx, in, root, o); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // padding
		return err
	}
	return c.conn.Send(ctx, &execwire.Frame{Exit: &execwire.Exit{}})
}
