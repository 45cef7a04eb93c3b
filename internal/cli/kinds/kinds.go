// Package kinds has the commands about kinds of tasks: what there is, what each takes, and whether one's own is right.
package kinds

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/api/wire"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/spec"
)

type config struct {
	remote.ServerOptions
	app.OutputOptions
}

func (c *config) flags() []cli.Flag {
	return slices.Concat(c.OutputOptions.Flags(), c.ServerOptions.Flags())
}

// runner is one run of the program.
type runner struct{ *app.App }

// Command returns muster kinds.
func Command(base *app.App) *cli.Command {
	a := &runner{base}
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "kinds", Usage: "list the kinds of tasks", Category: app.CategorySubmit, Flags: c.flags(),
		Commands: []*cli.Command{a.showCommand(), a.checkCommand()},
		Run:      func(ctx context.Context, _ []string) error { return a.list(ctx, c) },
	})
}

func (a *runner) list(ctx context.Context, c *config) error {
	server, err := c.Connect()
	if err != nil {
		return err
	}
	all, err := server.Kinds(ctx)
	if err != nil {
		return err
	}
	l := app.Listing[wire.Kind]{
		OutputOptions: c.OutputOptions,
		ID:            func(k wire.Kind) string { return k.Name },
		Table:         term.NewTable(term.Column{Title: "KIND", NoTruncate: true}, term.Column{Title: "WORKERS", AlignRight: true, NoTruncate: true}, term.Column{Title: "RUNTIME"}, term.Column{Title: "ABOUT"}),
		Row:           func(k wire.Kind) []string { return []string{k.Name, strconv.Itoa(k.Offered), k.Runtime, k.About} },
		Rows: func(yield func(wire.Kind, error) bool) {
			for _, k := range all {
				if !yield(k, nil) {
					return
				}
			}
		},
	}
	return l.Write(a.App)
}

func (a *runner) showCommand() *cli.Command {
	c := &config{}
	return a.NewCommand(app.Command{
		Name: "show", Usage: "show what kinds take as input, and who offers them", Args: "KIND…", Flags: c.flags(),
		Run: func(ctx context.Context, args []string) error {
			if len(args) == 0 {
				return muster.Errorf(muster.Invalid, "no kind is named: muster kinds lists what there is")
			}
			server, err := c.Connect()
			if err != nil {
				return err
			}
			all := make([]wire.Kind, len(args))
			for i, name := range args {
				if all[i], err = server.Kind(ctx, name); err != nil {
					return err
				}
			}
			return app.PrintItems(a.App, c.OutputOptions, all, func(k wire.Kind) string { return k.Name }, app.WithBlankLines(a.App, a.draw))
		},
	})
}

func (a *runner) draw(k wire.Kind) error {
	f := app.Details{App: a.App}
	f.Add("kind", k.Name)
	f.Add("about", k.About)
	if k.Own {
		f.Add("from", "owners of workers")
	}
	f.Add("runtime", k.Runtime)
	f.Add("workers", availability(&k))
	if k.Run != kind.RunNo {
		f.Add("run", k.Run)
	}
	if r := k.Resources; r != nil {
		f.Add("resources", resources(r))
	}
	if k.Checkpoint {
		f.Add("checkpoint", "goes on from where it was saved")
	}
	if k.Operation {
		f.Add("operation", "of kind custom, too")
	}
	if err := f.Draw(); err != nil {
		return err
	}
	all, requirements := inputFields(k.Input)
	switch {
	case len(k.Input) == 0:
		return a.writeLine("it takes no input")
	case len(all) == 0:
		return a.writeLine("the input is an object with any fields")
	}
	if err := a.writeLine(a.Out.Paint(term.Bold, "input")); err != nil {
		return err
	}
	width := 0
	for _, f := range all {
		width = max(width, term.Width(term.Sanitize(f.name)))
	}
	for _, f := range all {
		if err := a.drawField(f, min(width, 24)); err != nil {
			return err
		}
	}
	for _, s := range requirements {
		if err := a.writeLine("  " + term.Sanitize(s)); err != nil {
			return err
		}
	}
	return nil
}

// drawField writes a field, and what it is about below it.
func (a *runner) drawField(f field, width int) error {
	typeText := f.typeText
	switch {
	case f.required:
		typeText = strings.TrimPrefix(typeText+"; required", "; ")
	case f.defaultValue != "":
		typeText = strings.TrimPrefix(typeText+"; default "+f.defaultValue, "; ")
	}
	name := term.Sanitize(f.name)
	pad := strings.Repeat(" ", max(width-term.Width(name), 0))
	if err := a.writeLine(strings.TrimRight("  "+name+pad+"  "+term.Sanitize(typeText), " ")); err != nil {
		return err
	}
	for _, line := range wrap(term.Sanitize(f.description), a.Out.Width-6) {
		if err := a.writeLine("      " + a.Out.Paint(term.Dim, line)); err != nil {
			return err
		}
	}
	return nil
}

func (a *runner) writeLine(line string) error { return app.WriteOutput(a.Out, []byte(line+"\n")) }

// wrap breaks a text between its words, so that no line is wider; a width below 20 means any.
func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		if width >= 20 && line != "" && term.Width(line)+1+term.Width(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// availability says how many workers have a kind.
func availability(k *wire.Kind) string {
	s := strconv.Itoa(k.Offered)
	if k.Offered == 0 {
		s = "none that is there now"
	}
	if k.Away > 0 {
		s += fmt.Sprintf(", and %d that left or cannot be reached", k.Away)
	}
	if k.Differ > 0 {
		s += fmt.Sprintf("; %d of them have another definition", k.Differ)
	}
	return s
}

func resources(r *muster.Request) string {
	var parts []string
	add := func(name, amount string) { parts = append(parts, name+" "+amount) }
	if r.CPUs > 0 {
		add("cpus", strconv.FormatFloat(r.CPUs, 'g', -1, 64))
	}
	if r.Memory > 0 {
		add("memory", r.Memory.String())
	}
	if r.Disk > 0 {
		add("disk", r.Disk.String())
	}
	if r.PIDs > 0 {
		add("pids", strconv.Itoa(r.PIDs))
	}
	if g := r.GPUs; g.Count > 0 {
		gpus := strconv.Itoa(g.Count)
		if g.Memory > 0 {
			gpus += " with " + g.Memory.String()
		}
		add("gpus", gpus)
	}
	return strings.Join(parts, ", ")
}

func (a *runner) checkCommand() *cli.Command {
	return a.NewCommand(app.Command{
		Name: "check", Usage: "say whether folders are right as kinds of your own", Args: "DIR…",
		Description: "A kind is a folder with a " + kind.FileName + ". It is looked at on this machine; no server is asked. " +
			"A worker offers those that lie in the folder of its --kinds-dir.",
		Run: func(_ context.Context, args []string) error { return a.check(args) },
	})
}

func (a *runner) check(dirs []string) error {
	if len(dirs) == 0 {
		return muster.Errorf(muster.Invalid, "no folder is named: write the one with the %s", kind.FileName)
	}
	var invalid []string
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			if errors.Is(err, fs.ErrNotExist) {
				return muster.Errorf(muster.NotFound, "there is no folder %s", dir)
			}
			return muster.Errorf(muster.Invalid, "%s is no folder that can be read: name the folder in which %s is", dir, kind.FileName)
		}
		k, err := kind.Parse(os.DirFS(dir), dir)
		if err == nil && kind.IsReserved(k.Name) {
			err = muster.Errorf(muster.InvalidSpec, "%s: a kind or operation %s comes with Muster: choose another name", filepath.Join(dir, kind.FileName), k.Name)
		}
		if err != nil {
			source, _ := os.ReadFile(filepath.Join(dir, kind.FileName)) // without it the places are not shown
			a.Messagef("%s", strings.TrimRight(spec.Format(err, string(source)), "\n"))
			invalid = append(invalid, dir)
			continue
		}
		if err := a.writeLine(fmt.Sprintf("%s: the kind %s is right", dir, k.Name)); err != nil {
			return err
		}
	}
	if len(invalid) > 0 {
		return &app.StatusError{Status: app.ExitInvalidSpec, Err: fmt.Errorf("mend %s", strings.Join(invalid, ", "))}
	}
	return nil
}
