package cli

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type getConfig struct {
	remote.ServerOptions
	dir    string
	output string
	names  []string
	list   bool

	running bool // a task that still runs has some of them
}

func (c *getConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		app.Option{Name: "dir", Short: "C", Usage: "put the files into this `FOLDER` (default: the current one)"}.StringVar(&c.dir),
		app.Option{Name: "output", Short: "o", Usage: "write the only file that matches to this `PATH`, or to standard output with -"}.StringVar(&c.output),
		app.Option{Name: "name", Short: "n", Usage: "only artifacts whose name matches the `PATTERN`, such as *.pt; may be repeated"}.RepeatedVar(&c.names),
		app.Option{Name: "list", Short: "l", Usage: "list the artifacts and fetch nothing"}.BoolVar(&c.list),
	}, c.Flags())
}

func (a *runner) getCommand() *cli.Command {
	c := &getConfig{}
	return a.NewCommand(app.Command{
		Name: "get", Usage: "download the artifacts of tasks", Args: "JOB|TASK…", Category: app.CategoryResults, Flags: c.flags(),
		Description: "Each file is written under its name; those of several tasks into a folder for each task. " +
			"A download that was broken off is resumed, and every file is checked by its SHA-256.",
		Run: func(ctx context.Context, args []string) error { return a.get(ctx, c, args) },
	})
}

// download is one artifact to fetch.
type download struct {
	task muster.TaskID
	muster.Artifact
	dir string // below the target folder
}

func (a *runner) get(ctx context.Context, c *getConfig, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	for _, pattern := range c.names {
		if _, err := path.Match(pattern, ""); err != nil {
			return muster.Errorf(muster.Invalid, "%q is not a pattern: use * and ? and [a-z]", pattern)
		}
	}
	server, err := c.Connect()
	if err != nil {
		return err
	}
	files, err := c.findArtifacts(ctx, server, args)
	if err != nil {
		return err
	}
	if c.running {
		a.Messagef("it still runs: this is what it has shown so far, in $MUSTER_OUT/%s", muster.LiveDir)
	}
	switch {
	case c.list:
		table := term.NewTable(term.Column{Title: "TASK", NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "SIZE", AlignRight: true, NoTruncate: true}, term.Column{Title: "SHA256"})
		for _, f := range files {
			table.AddRow(f.task.String(), f.Name, muster.Size(f.Size).String(), f.SHA256)
		}
		return table.Draw(a.Out)
	case c.output != "" && len(files) > 1:
		return muster.Errorf(muster.Invalid, "%d artifacts match, but --output takes one: choose with --name, or write them into a folder with --dir", len(files))
	case c.output == "-":
		return server.ReadArtifact(ctx, files[0].task, files[0].Artifact, a.Out)
	case c.output != "":
		return a.downloadAll(ctx, server, files, func(download) (string, error) { return c.output, nil })
	}
	return a.downloadTo(ctx, server, files, c.dir)
}

// findArtifacts lists the artifacts that are asked for. None at all is an error.
func (c *getConfig) findArtifacts(ctx context.Context, server *client.Client, args []string) ([]download, error) {
	sels, err := remote.ResolveSelectors(ctx, server, args)
	if err != nil {
		return nil, err
	}
	perTask, err := remote.MultipleTasks(ctx, server, sels)
	if err != nil {
		return nil, err
	}
	var files []download
	for t, err := range remote.Tasks(ctx, server, sels, nil) {
		if err != nil {
			return nil, err
		}
		for _, art := range t.Artifacts {
			if !c.matches(art.Name) {
				continue
			}
			c.running = c.running || !t.State.Final()
			w := download{task: t.ID, Artifact: art}
			if perTask {
				w.dir = t.ID.String()
			}
			files = append(files, w)
		}
	}
	if len(files) == 0 {
		if len(c.names) > 0 {
			return nil, muster.Errorf(muster.NotFound, "no artifact of %s matches %s: muster get --list %s shows what is there", strings.Join(args, " "), strings.Join(c.names, " or "), args[0])
		}
		return nil, muster.Errorf(muster.NotFound, "%s has no artifacts: a task has them once it has ended, if it named outputs or left files in $MUSTER_OUT, and while it runs in $MUSTER_OUT/live", strings.Join(args, " "))
	}
	return files, nil
}

// matches says whether an artifact is asked for, by its whole name or its last
// part.
func (c *getConfig) matches(name string) bool {
	return len(c.names) == 0 || slices.ContainsFunc(c.names, func(pattern string) bool {
		byPath, _ := path.Match(pattern, name) // patterns were checked
		byBase, _ := path.Match(pattern, path.Base(name))
		return byPath || byBase
	})
}

// downloadTo downloads into a folder and never outside it.
func (a *runner) downloadTo(ctx context.Context, server *client.Client, files []download, dir string) error {
	if dir == "" {
		dir = "."
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any tool that downloads
		return muster.Errorf(muster.Invalid, "the folder cannot be made: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return muster.Errorf(muster.Invalid, "the folder cannot be opened: %w", err)
	}
	defer func() { _ = root.Close() }()
	return a.downloadAll(ctx, server, files, func(w download) (string, error) {
		name := filepath.FromSlash(path.Join(w.dir, w.Name))
		if !filepath.IsLocal(filepath.FromSlash(w.Name)) {
			return "", muster.Errorf(muster.Invalid, "artifact %q of task %s would land outside the folder: it is refused", w.Name, w.task)
		}
		// Root refuses to follow links out of the folder.
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", muster.Errorf(muster.Invalid, "the folder for %s cannot be made: %w", name, err)
		}
		if _, err := root.Stat(filepath.Dir(name)); err != nil {
			return "", muster.Errorf(muster.Invalid, "artifact %q of task %s would land outside the folder: %w", w.Name, w.task, err)
		}
		return filepath.Join(dir, name), nil
	})
}

// maxDownloads is how many files are downloaded at once.
const maxDownloads = 4

// downloadAll downloads files to where place says, with a bar on a terminal, and prints
// the path of each.
func (a *runner) downloadAll(ctx context.Context, server *client.Client, files []download, pathFor func(download) (string, error)) error {
	paths := make([]string, len(files))
	var total int64
	for i, f := range files {
		to, err := pathFor(f)
		if err != nil {
			return err
		}
		if slices.Contains(paths[:i], to) {
			return muster.Errorf(muster.Invalid, "two artifacts would be written to %s: name the tasks one at a time", to)
		}
		paths[i], total = to, total+f.Size
	}
	bar := app.NewTransferBar("fetching", total)
	err := a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(maxDownloads)
		for i, f := range files {
			group.Go(func() error {
				var reported int64
				return server.DownloadArtifact(ctx, f.task, f.Artifact, paths[i], func(done int64) {
					bar.Done.Add(done - reported)
					reported = done
				})
			})
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	for _, p := range paths {
		fmt.Fprintln(a.Out, p)
	}
	return nil
}
