package cli

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sync/errgroup"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
)

type getConfig struct {
	remote
	dir    string
	output string
	names  []string
	list   bool
}

func (c *getConfig) flags() []cli.Flag {
	return slices.Concat([]cli.Flag{
		option{name: "dir", short: "C", usage: "put the files into this `FOLDER` (default: the current one)"}.text(&c.dir),
		option{name: "output", short: "o", usage: "write the only file that matches to this `PATH`, or to standard output with -"}.text(&c.output),
		option{name: "name", short: "n", usage: "only artifacts whose name matches the `PATTERN`, such as *.pt; may be repeated"}.repeated(&c.names),
		option{name: "list", short: "l", usage: "list the artifacts and fetch nothing"}.on(&c.list),
	}, c.remote.flags())
}

func (a *app) getCommand() *cli.Command {
	c := &getConfig{}
	return a.command(command{
		name: "get", usage: "download the artifacts of tasks", args: "JOB|TASK…", category: results, flags: c.flags(),
		about: "Each file is written under its name; those of several tasks into a folder for each task. " +
			"A download that was broken off is resumed, and every file is checked by its SHA-256.",
		run: func(ctx context.Context, args []string) error { return a.get(ctx, c, args) },
	})
}

// wanted is one artifact to fetch.
type wanted struct {
	task muster.TaskID
	muster.Artifact
	folder string // below the target folder
}

func (a *app) get(ctx context.Context, c *getConfig, args []string) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	for _, pattern := range c.names {
		if _, err := path.Match(pattern, ""); err != nil {
			return muster.Errorf(muster.Invalid, "%q is not a pattern: use * and ? and [a-z]", pattern)
		}
	}
	server, err := c.connect()
	if err != nil {
		return err
	}
	files, err := c.find(ctx, server, args)
	if err != nil {
		return err
	}
	switch {
	case c.list:
		table := term.NewTable(term.Column{Title: "TASK", Whole: true}, term.Column{Title: "NAME"}, term.Column{Title: "SIZE", Right: true, Whole: true}, term.Column{Title: "SHA256"})
		for _, f := range files {
			table.Row(f.task.String(), f.Name, muster.Size(f.Size).String(), f.SHA256)
		}
		return table.Draw(a.out)
	case c.output != "" && len(files) > 1:
		return muster.Errorf(muster.Invalid, "%d artifacts match, but --output takes one: choose with --name, or write them into a folder with --dir", len(files))
	case c.output == "-":
		return server.Read(ctx, files[0].task, files[0].Artifact, a.out)
	case c.output != "":
		return a.fetch(ctx, server, files, func(wanted) (string, error) { return c.output, nil })
	}
	return a.fetchInto(ctx, server, files, c.dir)
}

// find lists the artifacts that are asked for. None at all is an error.
func (c *getConfig) find(ctx context.Context, server *client.Client, args []string) ([]wanted, error) {
	sels, err := selection(ctx, server, args)
	if err != nil {
		return nil, err
	}
	apart, err := several(ctx, server, sels)
	if err != nil {
		return nil, err
	}
	var files []wanted
	for t, err := range tasksOf(ctx, server, sels, nil) {
		if err != nil {
			return nil, err
		}
		for _, art := range t.Artifacts {
			if !c.matches(art.Name) {
				continue
			}
			w := wanted{task: t.ID, Artifact: art}
			if apart {
				w.folder = t.ID.String()
			}
			files = append(files, w)
		}
	}
	if len(files) == 0 {
		return nil, muster.Errorf(muster.NotFound, "there is no such artifact: muster get --list %s shows what is there; a task has artifacts once it has ended", args[0])
	}
	return files, nil
}

// matches says whether an artifact is asked for, by its whole name or its last
// part.
func (c *getConfig) matches(name string) bool {
	return len(c.names) == 0 || slices.ContainsFunc(c.names, func(pattern string) bool {
		whole, _ := path.Match(pattern, name) // patterns were checked
		last, _ := path.Match(pattern, path.Base(name))
		return whole || last
	})
}

// fetchInto downloads into a folder and never outside it.
func (a *app) fetchInto(ctx context.Context, server *client.Client, files []wanted, dir string) error {
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
	return a.fetch(ctx, server, files, func(w wanted) (string, error) {
		name := filepath.FromSlash(path.Join(w.folder, w.Name))
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

// fetches is how many files are downloaded at once.
const fetches = 4

// fetch downloads files to where place says, with a bar on a terminal, and prints
// the path of each.
func (a *app) fetch(ctx context.Context, server *client.Client, files []wanted, place func(wanted) (string, error)) error {
	paths := make([]string, len(files))
	var total int64
	for i, f := range files {
		to, err := place(f)
		if err != nil {
			return err
		}
		if slices.Contains(paths[:i], to) {
			return muster.Errorf(muster.Invalid, "two artifacts would be written to %s: name the tasks one at a time", to)
		}
		paths[i], total = to, total+f.Size
	}
	bar := newBytesBar("fetching", total)
	err := a.underway(ctx, bar.line, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(fetches)
		for i, f := range files {
			group.Go(func() error {
				var told int64
				return server.Download(ctx, f.task, f.Artifact, paths[i], func(done int64) {
					bar.done.Add(done - told)
					told = done
				})
			})
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	for _, p := range paths {
		fmt.Fprintln(a.out, p)
	}
	return nil
}

// underway runs do with a status line on a terminal.
func (a *app) underway(ctx context.Context, line func() string, do func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	shown, done := context.WithCancel(ctx)
	group.Go(func() error { return term.NewStatus(a.err).Run(shown, line) })
	group.Go(func() error {
		defer done()
		return do(ctx)
	})
	return group.Wait()
}

// bytesBar is the status line of a transfer.
type bytesBar struct {
	verb  string
	total atomic.Int64 // below 0 while it is not known
	done  atomic.Int64
	began time.Time
}

func newBytesBar(verb string, total int64) *bytesBar {
	b := &bytesBar{verb: verb, began: time.Now()}
	b.total.Store(total)
	return b
}

func (b *bytesBar) line() string {
	total, done, passed := b.total.Load(), b.done.Load(), time.Since(b.began)
	if total < 0 {
		return fmt.Sprintf("%s: reading files, %s", b.verb, term.Elapsed(passed))
	}
	share := 1.0
	if total > 0 {
		share = float64(done) / float64(total)
	}
	rate := ""
	if s := passed.Seconds(); s > 1 {
		rate = fmt.Sprintf(", %s/s", muster.Size(float64(done)/s))
	}
	return fmt.Sprintf("%s %s %s of %s%s", b.verb, term.Bar(20, share), muster.Size(done), muster.Size(total), rate)
}
