// Package artifacts has the command that downloads artifacts.
package artifacts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
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

type runner struct{ *app.App }

type config struct {
	remote.ServerOptions
	app.WriteOptions
	dir    string
	output string
	names  []string
	list   bool

	running bool // some artifacts are of a running task
}

// Command returns the command get.
func Command(a *app.App) *cli.Command {
	r, c := &runner{a}, &config{}
	return a.NewCommand(app.Command{
		Examples: []app.HelpRow{
			{Name: "muster get 17 -C results", Usage: "Download all artifacts of job 17 to a directory"},
		},
		Name: "get", Usage: "Download artifacts of tasks", Args: "JOB|TASK…", Complete: c.CompleteSelectors(), Category: app.CategoryResults,
		Flags: slices.Concat([]cli.Flag{
			app.Option{Name: "dir", Short: "C", Value: "path", Usage: "Directory to write the files to (default: the current one)"}.StringVar(&c.dir),
			app.Option{Name: "output", Short: "o", Value: "path", Usage: "Write the artifact to this file (exactly one must match); - means standard output"}.StringVar(&c.output),
			app.Option{Name: "name", Short: "n", Value: "pattern", Usage: "Only artifacts whose name matches, such as *.pt; may be repeated"}.RepeatedVar(&c.names),
		}, c.WriteOptions.Flags(), []cli.Flag{
			app.Option{Name: "list", Short: "l", Usage: "List the artifacts instead of downloading them"}.BoolVar(&c.list),
		}, c.ServerOptions.Flags()),
		Description: "Files keep their names; those of several tasks go to one directory per task. " +
			"Interrupted downloads are resumed, and the SHA-256 of every file is verified. " +
			"Files that are up to date are not fetched again. Nothing is fetched before you agree to replace files that differ, and to write hidden ones; " +
			"without a terminal, that needs --force or --hidden. Symbolic links in the directory are not followed.",
		Run: func(ctx context.Context, args []string) error { return r.get(ctx, c, args) },
	})
}

// download is one artifact to fetch.
type download struct {
	task    muster.TaskID
	address string // of the task
	muster.Artifact
	dir string // below the target directory
}

func (r *runner) get(ctx context.Context, c *config, args []string) error {
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
		r.Messagef("the task is still running: these are its files in $MUSTER_OUT/%s", muster.LiveDir)
	}
	switch {
	case c.list:
		table := term.NewTable(term.Column{Title: "TASK", NoTruncate: true}, term.Column{Title: "NAME"}, term.Column{Title: "SIZE", AlignRight: true, NoTruncate: true}, term.Column{Title: "SHA256"})
		for _, f := range files {
			table.AddRow(f.address, f.Name, muster.Size(f.Size).String(), f.SHA256)
		}
		return table.Draw(r.Out)
	case c.output != "" && len(files) > 1:
		return muster.Errorf(muster.Invalid, "%d artifacts match, but --output takes one: use --name to select it, or --dir to download all", len(files))
	case c.output == "-":
		return server.ReadArtifact(ctx, files[0].task, files[0].Artifact, r.Out.Untrusted())
	case isDirectory(c.output):
		return muster.Errorf(muster.Invalid, "%s is a directory, but --output takes a file: use --dir %s", c.output, c.output)
	case c.output != "":
		return r.downloadFile(ctx, server, files, c)
	}
	return r.downloadTo(ctx, server, files, c)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// findArtifacts returns the selected artifacts. It is an error if there is none.
func (c *config) findArtifacts(ctx context.Context, server *client.Client, sels []remote.Selector, args []string) ([]download, error) {
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
			w := download{task: t.ID, address: jobs.Address(t.ID), Artifact: art}
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
func (c *config) matches(name string) bool {
	return len(c.names) == 0 || slices.ContainsFunc(c.names, func(pattern string) bool {
		byPath, _ := path.Match(pattern, name) // patterns were checked
		byBase, _ := path.Match(pattern, path.Base(name))
		return byPath || byBase
	})
}

// downloadFile downloads one artifact to the file that the user named.
func (r *runner) downloadFile(ctx context.Context, server *client.Client, files []download, c *config) error {
	root, err := os.OpenRoot(filepath.Dir(c.output))
	if err != nil {
		return muster.Errorf(muster.Invalid, "open directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	allowed := app.WriteOptions{Force: c.Force, Hidden: true}
	return r.downloadAll(ctx, server, files, []client.Target{{Root: root, Name: filepath.Base(c.output)}}, allowed)
}

// downloadTo downloads into a directory and never outside it.
func (r *runner) downloadTo(ctx context.Context, server *client.Client, files []download, c *config) error {
	targets := make([]client.Target, len(files))
	for i, f := range files {
		if err := checkName(f.Name, runtime.GOOS); err != nil {
			return muster.Errorf(muster.Invalid, "the name of artifact %q of task %s %w: use --output to write it to a file of another name", f.Name, f.address, err)
		}
		targets[i].Name = path.Join(f.dir, f.Name)
	}
	if i, ok := conflict(targets, runtime.GOOS); ok {
		return muster.Errorf(muster.Invalid, "the artifacts cannot all be in one directory: %s has the path of another one; use --name to select one of them", targets[i].Name)
	}
	dir := cmp.Or(c.dir, ".")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as any tool that downloads
		return muster.Errorf(muster.Invalid, "create directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return muster.Errorf(muster.Invalid, "open directory: %w", err)
	}
	defer func() { _ = root.Close() }()
	for i := range targets {
		targets[i].Root = root
	}
	return r.downloadAll(ctx, server, files, targets, c.WriteOptions)
}

// checkName returns why an artifact cannot be a file of that name on a system, or nil. The server checks names, too, but this machine need
// not trust it.
func checkName(name, system string) error {
	if err := muster.CheckArtifactName(name); err != nil {
		return err
	}
	ignored := func(element string) bool { return strings.TrimRight(element, ". ") != element }
	if !filepath.IsLocal(filepath.FromSlash(name)) || system == windows && slices.ContainsFunc(strings.Split(name, "/"), ignored) {
		return fmt.Errorf("cannot be that of a file on %s", system)
	}
	return nil
}

const windows = "windows"

// conflict returns a target that cannot be beside one before it.
func conflict(targets []client.Target, system string) (int, bool) {
	names := make([]string, len(targets))
	for i, t := range targets {
		names[i] = t.Name
		if system == windows || system == "darwin" {
			names[i] = strings.ToLower(t.Name)
		}
	}
	if all := muster.ConflictingPaths(names); len(all) > 0 {
		return all[0], true
	}
	return 0, false
}

// maxDownloads limits concurrent downloads.
const maxDownloads = 4

// downloadAll downloads files to their targets, with a progress bar on a terminal, and prints the paths. It skips files that are up to
// date, and asks before it replaces others or writes hidden files.
func (r *runner) downloadAll(ctx context.Context, server *client.Client, files []download, targets []client.Target, allowed app.WriteOptions) error {
	var total int64
	var existing, hidden []string
	current := make([]bool, len(files))
	skipped := 0
	for i, f := range files {
		exists, same, err := targets[i].Stat(ctx, f.Artifact)
		if err != nil {
			return interruptedDownload(ctx, err)
		}
		if same {
			current[i] = true
			skipped++
			continue
		}
		total += f.Size
		if targets[i].Replace = exists; exists {
			existing = append(existing, targets[i].String())
		}
		if app.IsHidden(f.Name) {
			hidden = append(hidden, targets[i].String())
		}
	}
	if err := r.ConfirmFiles(ctx, existing, hidden, allowed); err != nil {
		return err
	}
	bar := app.NewTransferBar("fetching", total)
	err := r.RunWithStatus(ctx, bar.Line, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(maxDownloads)
		for i, f := range files {
			if current[i] {
				continue
			}
			group.Go(func() error {
				var reported int64
				return server.DownloadArtifact(ctx, f.task, f.Artifact, targets[i], func(done int64) {
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
	for _, t := range targets {
		if err := r.WriteLine(t.String()); err != nil {
			return err
		}
	}
	if skipped > 0 {
		r.Messagef("%s up to date", term.Plural(skipped, "file"))
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
