package execute

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

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/execwire"
	"github.com/muster-dev/muster/internal/tarfolder"
)

type copyConfig struct {
	remote.ServerOptions
	app.WriteOptions // on this machine
}

func (r *runner) copyCommand() *cli.Command {
	c := &copyConfig{}
	const implied = "it is the default, omit it"
	return r.NewCommand(app.Command{
		Name: "cp", Usage: "Copy files from or to the folder of a running task", Args: "SOURCE DEST", Complete: completePaths(&c.ServerOptions), Category: app.CategoryWatch,
		Flags: append(c.WriteOptions.Flags(), c.ServerOptions.Flags()...),
		Description: "One of SOURCE and DEST is TASK:PATH. PATH is relative to the task's working folder; '$MUSTER_OUT/…', '$MUSTER_CHECKPOINT/…' and " +
			"'$TMPDIR/…' name its other folders. A directory is copied with its contents, as cp -r does; SOURCE/. copies only the contents; " +
			"- is a tar archive on standard input or output. Before a copy from a task replaces a file of this machine, or writes a hidden one that you did not name, it asks; " +
			"without a terminal, that needs --force or --hidden. " + access,
		Examples: []app.HelpRow{
			{Name: "muster cp 17.3:train.log .", Usage: "Copy a file from task 3 of job 17"},
			{Name: "muster cp fix.py 17.3:", Usage: "Copy a file to its working folder"},
			{Name: "muster cp '17.3:$MUSTER_OUT/plots' - | tar t", Usage: "List a directory"},
		},
		ForeignOptions: map[string]string{"r": implied, "R": implied, "recursive": implied, "a": implied, "archive": implied, "c": "a task has one container, omit it"},
		Run: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return muster.Errorf(muster.Invalid, "use muster cp SOURCE DEST, where one of them is TASK:PATH")
			}
			return r.copy(ctx, c, args[0], args[1])
		},
	})
}

// completePaths completes SOURCE and DEST: running tasks, and names of files.
func completePaths(c *remote.ServerOptions) app.Completer {
	tasks := c.CompleteRunning(":")
	return func(ctx context.Context, prefix string, args []string) ([]app.Candidate, error) {
		all, _ := tasks(ctx, prefix, args) // files can be completed without a server
		return all, app.ErrFiles
	}
}

func (r *runner) copy(ctx context.Context, c *copyConfig, source, dest string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	fromTask, fromPath, download := splitRemote(source)
	toTask, toPath, upload := splitRemote(dest)
	switch {
	case download && upload:
		return muster.Errorf(muster.Invalid, "cannot copy from task to task: copy to this machine first, or pipe one muster cp into another with -")
	case !download && !upload:
		return muster.Errorf(muster.Invalid, "one of %s and %s must be TASK:PATH, such as 17.3:%s", source, dest, filepath.Base(dest))
	}
	task := toTask
	if download {
		task = fromTask
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	id, err := findTask(ctx, server, task)
	if err != nil {
		return err
	}
	s := &session{runner: r, id: id, ready: make(chan struct{})}
	start := &execwire.Start{}
	var work func(context.Context) error
	if download {
		start.Get = &execwire.Get{Path: fromPath}
		work = func(ctx context.Context) error { return s.receive(ctx, fromPath, dest, c.WriteOptions) }
	} else {
		name := sourceName(source)
		start.Put = &execwire.Put{Path: toPath, Name: name, Extract: source == "-"}
		if source != "-" {
			if _, err := os.Stat(source); err != nil {
				return muster.Errorf(muster.NotFound, "cannot copy %s: %w", source, pathReason(err))
			}
		}
		work = func(ctx context.Context) error { return s.send(ctx, source, name) }
	}
	if err := start.Check(); err != nil {
		return err
	}
	if s.conn, err = server.Exec(ctx, id, start); err != nil {
		return err
	}
	return s.transfer(ctx, work)
}

// sourceName returns the name that a local source has in the archive: "." for its contents.
func sourceName(source string) string {
	slashed := filepath.ToSlash(source)
	if slashed == "." || strings.HasSuffix(slashed, "/.") {
		return "."
	}
	abs, err := filepath.Abs(source)
	if err != nil {
		return filepath.Base(source)
	}
	return filepath.Base(abs)
}

// transfer does the work beside the connection, and returns the first error.
func (s *session) transfer(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		select {
		case <-s.ready:
			err := work(ctx)
			if err != nil {
				cancel()
			}
			done <- err
		case <-ctx.Done():
			done <- nil
		}
	}()
	err := s.conn.Run(ctx, s.handle)
	if s.exit == nil {
		cancel()
	}
	workErr := <-done
	switch {
	case s.fail != nil:
		return s.fail
	case s.exit != nil:
		return workErr
	case workErr != nil && !errors.Is(workErr, context.Canceled) && muster.CodeOf(workErr) != muster.Unavailable:
		return workErr
	case errors.Is(err, context.Canceled):
		return err
	}
	return muster.Errorf(muster.Unavailable, "the connection to task %s was lost: %w", s.id, err)
}

// receive writes what the task sends.
func (s *session) receive(ctx context.Context, source, dest string, allowed app.WriteOptions) error {
	in := s.conn.Reader(ctx, execwire.Stdout)
	if dest == "-" {
		_, err := io.Copy(s.Out.Untrusted(), in)
		return err
	}
	name, err := sentName(source)
	if err != nil {
		return err
	}
	root, rel, err := openParent(dest)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	o, err := tarfolder.Destination(root, rel, name, nil)
	if err != nil {
		return err
	}
	o.Note = func(text string) { s.Warnf("%s", text) }
	o.CheckName = muster.CheckArtifactName
	o.Confirm = s.confirm(ctx, root.Name(), &allowed)
	if err := tarfolder.Unpack(ctx, in, root, o); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in) // padding
	return err
}

// sentName returns the name that the worker gives to a path of the task in the archive: "." for the contents of a folder.
func sentName(source string) (string, error) {
	if source == "" || strings.HasSuffix(source, "/.") {
		return ".", nil
	}
	_, rel, err := execwire.ParsePath(source)
	return path.Base(rel), err
}

// confirm returns a function that asks before the first existing file is replaced, and before the first hidden one is written that the user
// did not name. The answers hold for the rest of the copy.
func (s *session) confirm(ctx context.Context, dir string, allowed *app.WriteOptions) func(tarfolder.Entry) error {
	ask := func(option *bool, path, state, name, verb, kind string) error {
		if *option {
			return nil
		}
		err := s.Confirm(ctx, app.Question{
			Text:    path + " " + state + ". " + verb + " it and any other " + kind + " file?",
			Refusal: path + " " + state + ": use --" + name + " to " + strings.ToLower(verb) + " it",
			No:      "the copy ended before " + path + " was written",
		})
		*option = err == nil
		return err
	}
	return func(e tarfolder.Entry) error {
		path := filepath.Join(dir, filepath.FromSlash(e.Name))
		if e.Exists {
			if err := ask(&allowed.Force, path, "already exists", "force", "Replace", "existing"); err != nil {
				return err
			}
		}
		if app.IsHidden(e.Below) {
			return ask(&allowed.Hidden, path, "is hidden", "hidden", "Write", "hidden")
		}
		return nil
	}
}

// openParent opens the folder itself, or that of a path.
func openParent(dest string) (root *os.Root, rel string, err error) {
	dir, rel := dest, ""
	if info, err := os.Stat(dest); err != nil || !info.IsDir() {
		dir, rel = filepath.Dir(filepath.Clean(dest)), filepath.Base(dest)
		if strings.HasSuffix(filepath.ToSlash(dest), "/") {
			rel += "/"
		}
	}
	if root, err = os.OpenRoot(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", muster.Errorf(muster.NotFound, "there is no folder %s: create it first", dir)
		}
		return nil, "", muster.Errorf(muster.Invalid, "cannot write to %s: %w", dir, pathReason(err))
	}
	return root, rel, nil
}

func pathReason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// send sends a local file or folder, or an archive.
func (s *session) send(ctx context.Context, source, name string) error {
	out := s.conn.Writer(ctx, execwire.Stdin)
	if source == "-" {
		if _, err := io.Copy(struct{ io.Writer }{out}, s.In); err != nil {
			return err
		}
		return out.Close()
	}
	dir, rel := source, "."
	if info, err := os.Stat(source); err != nil || !info.IsDir() {
		dir, rel = filepath.Dir(source), filepath.Base(source)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return muster.Errorf(muster.NotFound, "cannot copy %s: %w", source, pathReason(err))
	}
	defer func() { _ = root.Close() }()
	w := bufio.NewWriterSize(out, execwire.MaxChunk)
	o := tarfolder.PackOptions{Open: run.OpenRegularIn, Note: func(text string) { s.Warnf("%s", text) }}
	if err := tarfolder.Pack(ctx, root, rel, name, w, o); err != nil {
		return err
	}
	return errors.Join(w.Flush(), out.Close())
}
