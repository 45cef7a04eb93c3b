package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/term"
)

// WriteOptions say which files a command that copies files of tasks to this machine may write without asking.
type WriteOptions struct {
	Force  bool // replace existing files
	Hidden bool // write hidden files
}

// Flags returns the options.
func (o *WriteOptions) Flags() []cli.Flag {
	return []cli.Flag{
		Option{Name: "force", Short: "f", Usage: "Replace existing files without asking"}.BoolVar(&o.Force),
		Option{Name: "hidden", Usage: "Write hidden files, such as .bashrc, without asking"}.BoolVar(&o.Hidden),
	}
}

// ConfirmFiles asks before existing files are replaced, and before hidden files are written, unless the options permit it. It is a Conflict
// if the answer is no, or if there is no terminal to ask at.
func (a *App) ConfirmFiles(ctx context.Context, existing, hidden []string, o WriteOptions) error {
	if n := len(existing); n > 0 && !o.Force {
		question := fmt.Sprintf("%s already exists. Replace it?", listNames(existing))
		if n > 1 {
			question = fmt.Sprintf("%d files already exist: %s. Replace them?", n, listNames(existing))
		}
		if err := a.confirm(ctx, question, fmt.Sprintf("%s already %s: use --force to replace %s", listNames(existing), verb(n, "exists", "exist"), verb(n, "it", "them"))); err != nil {
			return err
		}
	}
	if n := len(hidden); n > 0 && !o.Hidden {
		question := fmt.Sprintf("%s is a hidden file. Write it?", listNames(hidden))
		if n > 1 {
			question = fmt.Sprintf("%d files are hidden: %s. Write them?", n, listNames(hidden))
		}
		return a.confirm(ctx, question, fmt.Sprintf("%s %s: use --hidden to write %s", listNames(hidden), verb(n, "is a hidden file", "are hidden files"), verb(n, "it", "them")))
	}
	return nil
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// confirm asks a question. Without a terminal it returns refusal.
func (a *App) confirm(ctx context.Context, question, refusal string) error {
	if !a.Err.Interactive {
		return muster.Errorf(muster.Conflict, "%s", refusal)
	}
	answer, err := term.Prompt(ctx, a.Err, question+" [y/N] ")
	switch {
	case ctx.Err() != nil:
		return err
	case err != nil: // no terminal to read from
		return muster.Errorf(muster.Conflict, "%s", refusal)
	case answer != "y" && answer != "yes":
		return muster.Errorf(muster.Conflict, "nothing was written")
	}
	return nil
}

// IsHidden reports whether an element of a slash-separated path begins with a dot.
func IsHidden(name string) bool {
	return name != "." && (name[:min(1, len(name))] == "." || strings.Contains(name, "/."))
}

// maxListedNames is how many names a question lists.
const maxListedNames = 5

// listNames lists the first names for one line.
func listNames(names []string) string {
	text := term.Sanitize(strings.Join(names[:min(len(names), maxListedNames)], ", "))
	if more := len(names) - maxListedNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
