package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	force  bool

	running bool // some artifacts are of a running task
}

func (a *runner) getCommand() *cli.Command {
	c := &getConfig{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster get 17 -C results", Usage: "Download all artifacts of job 17 to a directory"},
		},
		Name: "get", Usage: "Download artifacts of tasks", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryResults,
		Flags: append([]cli.Flag{
			app.Option{Name: "dir", Short: "C", Value: "path", Usage: "Directory to write the files to (default: the current one)"}.StringVar(&c.dir),
			app.Option{Name: "output", Short: "o", Value: "path", Usage: "Write the artifact to this file (exactly one must match); - means standard output"}.StringVar(&c.output),
			app.Option{Name: "name", Short: "n", Value: "pattern", Usage: "Only artifacts whose name matches, such as *.pt; may be repeated"}.RepeatedVar(&c.names),
			app.Option{Name: "force", Short: "f", Usage: "Replace files that exist and differ"}.BoolVar(&c.force),
			app.Option{Name: "list", Short: "l", Usage: "List the artifacts instead of downloading them"}.BoolVar(&c.list),
		}, c.Flags()...),
		Description: "Files keep their names; those of several tasks go to one directory per task. " +
			"Interrupted downloads are resumed, and the SHA-256 of every file is verified. " +
			"Files that are up to date are not fetched again; if one differs, nothing is fetched without --force, unless its task is running.",
		Run: func(ctx context.Context, args []string) error { return a.get(ctx, c, args) },
	})
}

// download is one artifact to fetch.
type download struct {
	task    muster.TaskID
	address string // of the task
	muster.Artifact
	dir     string // relative to the target directory
	running bool   // its task may still replace it
}

func (a *runner) get(ctx context.Context, c *getConfig, args []string) error {
	ctx, stop := app.SignalContext(ctx)
	defer stop()
	for _, pattern := range c.names {
		if _, err := path.Match(pattern, ""); err != nil {
			return muster.Errorf(muster.Invalid, "invalid pattern %q: use *, ? and [a-z]", pattern)
		}
	}
	server, sels, err := c.Select(ctx, args)
	if err != nil {
		return err
	}
	files, err := c.findArtifacts(ctx, server, sels, args)
	if err != nil {
		return err
	}
	if c.running {
		a.Messagef("the task is still running: these are its files in $MUSTER_OUT/%s", muster.LiveDir)
	}
	switch {
	case c.list:
		table := term.NewTable(term.Column{Title: "TASK", NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "SIZE", AlignRight: true, NoTruncate: true}, term.Column{Title: "SHA256"})
		for _, f := range files {
			table.AddRow(f.address, f.Name, muster.Size(f.Size).String(), f.SHA256)
		}
		return table.Draw(a.Out)
	case c.output != "" && len(files) > 1:
		return muster.Errorf(muster.Invalid, "%d artifacts match, but --output takes one: use --name to select it, or --dir to download all", len(files))
	case c.output == "-":
		return server.ReadArtifact(ctx, files[0].task, files[0].Artifact, a.Out)
	case isDirectory(c.output):
		return muster.Errorf(muster.Invalid, "%s is a directory, but --output takes a file: use --dir %s", c.output, c.output)
	case c.output != "":
		return a.downloadAll(ctx, server, files, c.force, func(download) (string, error) { return c.output, nil })
	}
	return a.downloadTo(ctx, server, files, c.dir, c.force)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// findArtifacts returns the selected artifacts. It is an error if there is none.
func (c *getConfig) findArtifacts(ctx context.Context, server *client.Client, sels []remote.Selector, args []string) ([]download, error) {
	jobs, err := remote.LoadTaskJobs(ctx, server, sels)
	if err != nil {
		return nil, err
	}
	perTask := jobs.Multiple(sels)
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
			w := download{task: t.ID, address: jobs.Address(t.ID), Artifact: art, running: !t.State.Final()}
			if perTask {
				w.dir = t.ID.String()
			}
			files = append(files, w)
		}
	}
	if len(files) == 0 {
		if len(c.names) > 0 {
			return nil, muster.Errorf(muster.NotFound, "no artifact of %s matches %s: muster get --list %s lists all", strings.Join(args, " "), strings.Join(c.names, " or "), args[0])
		}
		return nil, muster.Errorf(muster.NotFound, "%s has no artifacts: they are the outputs of the spec and the files in $MUSTER_OUT when a task ends, and those in $MUSTER_OUT/live while it runs", strings.Join(args, " "))
	}
	return files, nil
}

// matches reports whether a pattern matches the name of an artifact, or its base name.
func (c *getConfig) matches(name string) bool {
	return len(c.names) == 0 || slices.ContainsFunc(c.names, func(pattern string) bool {
		byPath, _ := path.Match(pattern, name) // patterns were checked
		byBase, _ := path.Match(pattern, path.Base(name))
		return byPath || byBase
	})
}

// downloadTo downloads into a directory and never outside it.
func (a *runner) downloadTo(ctx context.Context, server *client.Client, files []download, dir string, force bool) error {
	dir = cmp.Or(dir, ".")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any tool that downloads
		return muster.Errorf(muster.Invalid, "create directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return muster.Errorf(muster.Invalid, "open directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	return a.downloadAll(ctx, server, files, force, func(w download) (string, error) {
		name := filepath.FromSlash(path.Join(w.dir, w.Name))
		if !filepath.IsLocal(filepath.FromSlash(w.Name)) {
			return "", muster.Errorf(muster.Invalid, "artifact %q of task %s is outside the directory: refused", w.Name, w.task)
		}
		// Root does not follow links out of the directory.
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return "", muster.Errorf(muster.Invalid, "create directory for %s: %w", name, err)
		}
		if _, err := root.Stat(filepath.Dir(name)); err != nil {
			return "", muster.Errorf(muster.Invalid, "artifact %q of task %s is outside the directory: %w", w.Name, w.task, err)
		}
		return filepath.Join(dir, name), nil
	})
}

// maxDownloads limits concurrent downloads.
const maxDownloads = 4

// downloadAll downloads files to the paths that pathFor returns, with a progress bar on a terminal, and prints the paths. It skips files that
// are up to date. Without force, it fetches nothing if a file exists and differs.
func (a *runner) downloadAll(ctx context.Context, server *client.Client, files []download, force bool, pathFor func(download) (string, error)) error {
	paths := make([]string, len(files))
	var total int64
	for i, f := range files {
		to, err := pathFor(f)
		if err != nil {
			return err
		}
		if slices.Contains(paths[:i], to) {
			return muster.Errorf(muster.Invalid, "two artifacts have the path %s: download one task at a time", to)
		}
		paths[i] = to
	}
	current := make([]bool, len(files))
	skipped := 0
	for i := range files {
		f := &files[i]
		exists, same, err := compareFile(ctx, paths[i], f.Artifact)
		switch {
		case err != nil:
			return interruptedDownload(ctx, err)
		case same:
			current[i] = true
			skipped++
		case exists && !force && !f.running:
			return muster.Errorf(muster.Conflict, "%s exists and differs: use --force to replace it, or -C DIR for another directory", paths[i])
		default:
			total += f.Size
		}
	}
	bar := app.NewTransferBar("fetching", total)
	err := a.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(maxDownloads)
		for i, f := range files {
			if current[i] {
				continue
			}
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
		return interruptedDownload(ctx, err)
	}
	for _, p := range paths {
		fmt.Fprintln(a.Out, p)
	}
	if skipped > 0 {
		a.Messagef("%s up to date", term.Plural(skipped, "file"))
	}
	return nil
}

// interruptedDownload returns err, or after a signal an error with the exit status of one.
func interruptedDownload(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &app.StatusError{Status: app.ExitCancelled, Err: errors.New("interrupted: run the same command again to continue")}
}

// compareFile reports whether a regular file exists at a path, and whether it is the artifact.
func compareFile(ctx context.Context, path string, a muster.Artifact) (exists, same bool, err error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false, false, nil // writing it reports the error
	}
	if info.Size() != a.Size {
		return true, false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return true, false, muster.Errorf(muster.Invalid, "read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	defer context.AfterFunc(ctx, func() { _ = f.Close() })() // ends the copy
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return true, false, muster.Errorf(muster.Invalid, "read %s: %w", path, err)
	}
	return true, hex.EncodeToString(sum.Sum(nil)) == a.SHA256, nil
}
