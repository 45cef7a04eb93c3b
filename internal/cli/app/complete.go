package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster/internal/cli/term"
)

// Candidate is a value that a shell may complete a word to, and what it is.
type Candidate struct{ Value, Usage string }

// Completer returns candidates for a word that begins with prefix. Others are ignored, so that it need not filter. args are the arguments
// of the command before the word. An error other than ErrFiles is not reported. The context ends after a second.
type Completer func(ctx context.Context, prefix string, args []string) ([]Candidate, error)

// completeCommand is what completion scripts call: muster __complete WORD…, where the last word is what is before the cursor, maybe
// nothing. It prints a line for each candidate, the value and what it is with a tab between them, then a line that tells what to do if there are
// no candidates: :files (complete the names of files) or :values (nothing).
const completeCommand = "__complete"

const (
	completionTimeout = time.Second
	maxCandidates     = 1000
)

// ErrFiles is returned by a Completer of names of files on this machine, with other candidates that have precedence, or without.
var ErrFiles = errors.New("the word is the name of a file")

// Files is the Completer of names of files on this machine.
func Files(context.Context, string, []string) ([]Candidate, error) { return nil, ErrFiles }

// Values returns the Completer of fixed values.
func Values[T ~string](values ...T) Completer {
	return func(context.Context, string, []string) ([]Candidate, error) {
		all := make([]Candidate, len(values))
		for i, v := range values {
			all[i].Value = string(v)
		}
		return all, nil
	}
}

// States returns the Completer of values that have a meaning.
func States[T interface{ Meaning() string }](states []T) Completer {
	return func(context.Context, string, []string) ([]Candidate, error) {
		all := make([]Candidate, len(states))
		for i, s := range states {
			all[i] = Candidate{fmt.Sprint(s), s.Meaning()}
		}
		return all, nil
	}
}

// List returns the Completer of comma-separated lists of values of c.
func (c Completer) List() Completer {
	return func(ctx context.Context, prefix string, args []string) ([]Candidate, error) {
		i := strings.LastIndexByte(prefix, ',') + 1
		all, err := c(ctx, prefix[i:], args)
		taken := strings.Split(prefix[:i], ",")
		all = slices.DeleteFunc(all, func(v Candidate) bool { return slices.Contains(taken, v.Value) })
		for k := range all {
			all[k].Value = prefix[:i] + all[k].Value
		}
		return all, err
	}
}

// Once returns the Completer of a command's first argument; for others there are no candidates.
func (c Completer) Once() Completer {
	return func(ctx context.Context, prefix string, args []string) ([]Candidate, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return c(ctx, prefix, args)
	}
}

// complete prints candidates for the last word, within a second. What takes longer is abandoned: the program ends.
func (a *App) complete(ctx context.Context, commands []*cli.Command, words []string) error {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	done := make(chan *completion, 1)
	go func() { done <- a.findCandidates(ctx, commands, words) }()
	var c completion
	select {
	case found := <-done:
		c = *found
	case <-ctx.Done():
	}
	var b strings.Builder
	for _, v := range c.candidates {
		b.WriteString(v.Value)
		if usage := strings.Join(strings.Fields(term.Sanitize(v.Usage)), " "); usage != "" {
			b.WriteString("\t" + usage)
		}
		b.WriteByte('\n')
	}
	if c.files {
		b.WriteString(":files\n")
	} else {
		b.WriteString(":values\n")
	}
	return WriteOutput(a.Out, []byte(b.String()))
}

// completion is the answer for one word.
type completion struct {
	candidates []Candidate
	files      bool // complete the names of files if there are no candidates
}

// add adds the candidates that begin with the word. Others, and those that a shell could read as something else, are left out: a
// name that someone gave to a worker must not become a part of the command.
func (c *completion) add(word string, all ...Candidate) {
	for _, v := range all {
		plain := v.Value != "" && v.Value[0] != ':' && strings.IndexFunc(v.Value, unsafeInShell) < 0
		seen := func(old Candidate) bool { return old.Value == v.Value }
		if plain && utf8.ValidString(v.Value) && strings.HasPrefix(v.Value, word) && len(c.candidates) < maxCandidates && !slices.ContainsFunc(c.candidates, seen) {
			c.candidates = append(c.candidates, v)
		}
	}
}

func unsafeInShell(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.,:/@+%=", r)
}

// use adds what completer returns for the word without typed, which is put before each candidate.
func (c *completion) use(ctx context.Context, completer Completer, typed, prefix string, args []string) {
	all, err := completer(ctx, prefix, args)
	c.files = errors.Is(err, ErrFiles)
	for _, v := range all {
		c.add(typed+prefix, Candidate{typed + v.Value, v.Usage})
	}
}

func (a *App) findCandidates(ctx context.Context, commands []*cli.Command, words []string) *completion {
	word := ""
	if len(words) > 0 {
		word, words = words[len(words)-1], words[:len(words)-1]
	}
	root := a.rootCommand(commands)
	l := &commandLine{}
	l.enter(root)
	for _, w := range words {
		l.read(w)
	}
	for _, f := range l.cmd.Flags {
		_ = f.PostParse() // a wrong variable is reported when the command runs
	}
	c := &completion{}
	switch name, value, hasValue := strings.Cut(word, "="); {
	case l.pending != nil:
		c.use(ctx, optionCompleter(l.pending), "", word, l.args)
	case !l.ended && strings.HasPrefix(word, "-") && hasValue:
		if f := l.option(strings.TrimLeft(name, "-")); f != nil {
			c.use(ctx, optionCompleter(f), name+"=", value, l.args)
		}
	case !l.ended && strings.HasPrefix(word, "-"):
		for _, f := range l.cmd.VisibleFlags() {
			if d, ok := f.(cli.DocGenerationFlag); ok {
				c.add(word, Candidate{"--" + f.Names()[0], d.GetUsage()})
			}
		}
		if l.cmd == root {
			c.add(word, Candidate{"--version", "Show the version"})
		}
	default:
		if !l.ended && len(l.args) == 0 {
			c.add(word, commandCandidates(l.cmd.Commands)...)
		}
		if l.cmd.ArgsUsage == "" {
			break
		}
		c.use(ctx, argumentCompleter(l.cmd, l.args), "", word, l.args)
		c.candidates = slices.DeleteFunc(c.candidates, func(v Candidate) bool { return v.Value[0] == '-' || slices.Contains(l.args, v.Value) })
	}
	return c
}

func commandCandidates(commands []*cli.Command) []Candidate {
	var all []Candidate
	for _, c := range commands {
		if !c.Hidden {
			all = append(all, Candidate{c.Name, c.Usage})
		}
	}
	return all
}

const completerKey = "complete" // in the metadata of a command

// argumentCompleter returns the Completer of the arguments of cmd after args. A command of another program has names of files.
func argumentCompleter(cmd *cli.Command, args []string) Completer {
	completer, ok := cmd.Metadata[completerKey].(Completer)
	if !ok || cmd.StopOnNthArg != nil && len(args) > 0 {
		return Files
	}
	return completer
}

// optionCompleter returns the Completer of the values of an option.
func optionCompleter(f cli.Flag) Completer {
	if g, ok := f.(*cli.GenericFlag); ok {
		if v, ok := g.Value.(*flagValue); ok {
			switch {
			case v.complete != nil:
				return v.complete
			case v.placeholder == "path":
				return Files
			}
		}
	}
	return Values[string]()
}

// commandLine is a command line up to a word. Its options have values, so that completers can use them.
type commandLine struct {
	cmd     *cli.Command
	args    []string
	pending cli.Flag // the option whose value is the next word
	ended   bool     // words are arguments, even if they begin with -
}

func (l *commandLine) enter(cmd *cli.Command) {
	l.cmd = cmd
	for _, f := range cmd.Flags {
		_ = f.PreParse() // fails only for options with a validator, and there are none
	}
}

// read reads the next word as the library does. Mistakes are ignored.
func (l *commandLine) read(word string) {
	switch {
	case l.pending != nil:
		_ = l.pending.Set("", word)
		l.pending = nil
	case l.ended || len(word) < 2 || word[0] != '-':
		if below := l.cmd.Command(word); below != nil && !l.ended && len(l.args) == 0 {
			l.enter(below)
			return
		}
		l.args = append(l.args, word)
		l.ended = l.ended || l.cmd.StopOnNthArg != nil
	case word == "--":
		l.ended = true
	default:
		l.readOption(word)
	}
}

func (l *commandLine) readOption(word string) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
	f := l.option(name)
	if f == nil && !strings.HasPrefix(word, "--") { // the last of several short ones may have a value
		last, _ := utf8.DecodeLastRuneInString(name)
		f = l.option(string(last))
	}
	if f == nil {
		return
	}
	b, ok := f.(interface{ IsBoolFlag() bool })
	switch isSwitch := ok && b.IsBoolFlag(); {
	case hasValue:
		_ = f.Set("", value)
	case isSwitch:
		_ = f.Set("", "true")
	default:
		l.pending = f
	}
}

// option returns the option of the command with a name without dashes, nil if there is none.
func (l *commandLine) option(name string) cli.Flag {
	i := slices.IndexFunc(l.cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if i < 0 {
		return nil
	}
	return l.cmd.Flags[i]
}

// completeHelp completes the arguments of muster help: the words of a command, or a topic.
func (a *App) completeHelp(commands []*cli.Command) Completer {
	return func(_ context.Context, _ string, args []string) ([]Candidate, error) {
		below := commands
		for _, name := range args {
			i := slices.IndexFunc(below, func(c *cli.Command) bool { return c.HasName(name) })
			if i < 0 {
				return nil, nil
			}
			below = below[i].Commands
		}
		all := commandCandidates(below)
		if len(args) == 0 {
			for _, t := range a.Topics {
				all = append(all, Candidate{t.Name, t.Usage})
			}
		}
		return all, nil
	}
}
