package frame

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// maxSecret is the most bytes of a token in a file.
const maxSecret = 4 << 10

// Secret is a token that a command takes from a file, from the environment or, so
// that all other users of the machine may see it, from an argument.
type Secret struct {
	name string // of the option; the file's is name-file
	env  string // its variable; the file's is env_FILE

	text   string
	file   string
	argued bool  // it was an argument
	err    error // of the options
}

// fileSuffix and fileVariable make the names for the file of a secret.
const (
	fileSuffix   = "-file"
	fileVariable = "_FILE"
)

// Secret makes two options: the token itself, and the file that holds it. what names the token
// in the file's usage, such as "the join token".
func (o Option) Secret(dst *Secret, what string) []cli.Flag {
	dst.name, dst.env = o.Name, o.Env
	file := Option{Name: o.Name + fileSuffix, Env: o.Env + fileVariable, Group: o.Group, Usage: "read " + what + " from the first line of this `FILE`; - is the standard input"}
	return []cli.Flag{
		o.flag(&value{
			set:   func(s string) error { dst.set(&dst.text, s, dst.file, o.Env); return nil },
			show:  func() string { return "" },
			after: dst.warning,
		}),
		file.flag(&value{
			set:  func(s string) error { dst.set(&dst.file, s, dst.text, file.Env); return nil },
			show: func() string { return "" },
		}),
	}
}

// set takes a value of an option, which comes from its variable if it is what that holds. Arguments
// are read before variables, and count more.
func (s *Secret) set(dst *string, text, other, env string) {
	argued := text != os.Getenv(env)
	switch {
	case other == "":
		*dst = text
		s.argued = s.argued || argued && dst == &s.text
	case argued:
		s.err = muster.Errorf(muster.Invalid, "--%s and --%s are both given: give one of them", s.name, s.name+fileSuffix)
	}
}

// warning says what is wrong with a token among the arguments.
func (s *Secret) warning() string {
	if !s.argued {
		return ""
	}
	return fmt.Sprintf("--%s shows the token to other users of this machine while the program starts: use --%s%s FILE (- is the standard input) or the variable %s instead",
		s.name, s.name, fileSuffix, s.env)
}

// Read returns the token, "" if none was given. The standard input is read only once.
func (s *Secret) Read() (string, error) {
	if s.err != nil || s.file == "" {
		return s.text, s.err
	}
	in, from := io.Reader(os.Stdin), "the standard input"
	if s.file != "-" {
		f, err := os.Open(s.file)
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "the file of --%s%s cannot be read: %w", s.name, fileSuffix, err)
		}
		defer f.Close()
		in, from = f, s.file
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxSecret)).ReadBytes('\n')
	line = bytes.TrimSpace(line)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", muster.Errorf(muster.Invalid, "--%s%s: %s cannot be read: %w", s.name, fileSuffix, from, err)
	case len(line) == 0:
		return "", muster.Errorf(muster.Invalid, "--%s%s: the first line of %s is empty: it must hold the token", s.name, fileSuffix, from)
	}
	s.text, s.file = string(line), ""
	return s.text, nil
}

// Take reads the token and removes it from the environment that this process passes on.
func (s *Secret) Take() (string, error) {
	text, err := s.Read()
	for _, name := range []string{s.env, s.env + fileVariable} {
		_ = os.Unsetenv(name) // fails for no such name
	}
	return text, err
}

// ForgetSecrets removes all tokens from the environment that this process passes on: the programs
// that a worker starts need none.
func ForgetSecrets() {
	for _, name := range secretOptions {
		env := (Option{Name: name}).Variable().Env
		_, _ = os.Unsetenv(env), os.Unsetenv(env+fileVariable) // fails for no such name
	}
}

// without returns args without the options of s.
func (s *Secret) without(args []string) []string {
	if s.name == "" {
		return args
	}
	var kept []string
	for i := 0; i < len(args); i++ {
		name, _, whole := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || name != s.name && name != s.name+fileSuffix {
			kept = append(kept, args[i])
		} else if !whole {
			i++
		}
	}
	return kept
}

// Arguments returns copies of the program's arguments, and then overwrites the tokens among them in what
// the system shows of this process to others.
func Arguments() []string {
	args := make([]string, len(os.Args))
	for i, arg := range os.Args {
		args[i] = strings.Clone(arg)
	}
	conceal(os.Args)
	return args
}

// secretOptions are the options that have tokens as their values.
var secretOptions = []string{"token", "admin-token", "join-token", "webhook-secret", "api-key", "coordinator-token"} //nolint:gochecknoglobals // a constant

// secrets returns the parts of args that are tokens. What a command executes may have such options, too:
// to conceal their values does no harm.
func secrets(args []string) []string {
	var list []string
	for i, arg := range args {
		name, text, whole := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || !slices.Contains(secretOptions, name):
		case whole:
			list = append(list, text)
		case i+1 < len(args):
			list = append(list, args[i+1])
		}
	}
	return list
}
