package app

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

	text    string
	file    string
	fromArg bool  // it was an argument
	err     error // of the options
}

// fileSuffix and fileEnvSuffix make the names for the file of a secret.
const (
	fileSuffix    = "-file"
	fileEnvSuffix = "_FILE"
)

// SecretVars makes two options: the token itself, and the file that holds it. what names the token
// in the file's usage, such as "the join token".
func (o Option) SecretVars(dst *Secret, noun string) []cli.Flag {
	dst.name, dst.env = o.Name, o.Env
	file := Option{Name: o.Name + fileSuffix, Env: o.Env + fileEnvSuffix, Group: o.Group, Usage: "read " + noun + " from the first line of this `FILE`; - is the standard input"}
	return []cli.Flag{
		o.flag(&flagValue{
			set:     func(s string) error { dst.set(&dst.text, s, dst.file, o.Env); return nil },
			format:  func() string { return "" },
			warning: dst.warning,
		}),
		file.flag(&flagValue{
			set:    func(s string) error { dst.set(&dst.file, s, dst.text, file.Env); return nil },
			format: func() string { return "" },
		}),
	}
}

// set takes a value of an option, which comes from its variable if it is what that holds. Arguments
// are read before variables, and count more.
func (s *Secret) set(dst *string, text, other, env string) {
	fromArg := text != os.Getenv(env)
	switch {
	case other == "":
		*dst = text
		s.fromArg = s.fromArg || fromArg && dst == &s.text
	case fromArg:
		s.err = muster.Errorf(muster.Invalid, "--%s and --%s are both given: give one of them", s.name, s.name+fileSuffix)
	}
}

// warning says what is wrong with a token among the arguments.
func (s *Secret) warning() string {
	if !s.fromArg {
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

// ReadAndUnset reads the token and removes it from the environment that this process passes on.
func (s *Secret) ReadAndUnset() (string, error) {
	text, err := s.Read()
	for _, name := range []string{s.env, s.env + fileEnvSuffix} {
		_ = os.Unsetenv(name) // fails for no such name
	}
	return text, err
}

// UnsetSecrets removes all tokens from the environment that this process passes on: the programs
// that a worker starts need none.
func UnsetSecrets() {
	for _, name := range secretFlags {
		env := (Option{Name: name}).WithEnv().Env
		_, _ = os.Unsetenv(env), os.Unsetenv(env+fileEnvSuffix) // fails for no such name
	}
}

// removeFlags returns args without the options of s.
func (s *Secret) removeFlags(args []string) []string {
	if s.name == "" {
		return args
	}
	var rest []string
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || name != s.name && name != s.name+fileSuffix {
			rest = append(rest, args[i])
		} else if !hasValue {
			i++
		}
	}
	return rest
}

// MaskArgs returns copies of the program's arguments, and then overwrites the tokens among them in what
// the system shows of this process to others.
func MaskArgs() []string {
	args := make([]string, len(os.Args))
	for i, arg := range os.Args {
		args[i] = strings.Clone(arg)
	}
	overwriteSecrets(os.Args)
	return args
}

// secretFlags are the options that have tokens as their values.
var secretFlags = []string{"token", "admin-token", "join-token", "webhook-secret", "api-key", "coordinator-token"} //nolint:gochecknoglobals // a constant

// secretValues returns the parts of args that are tokens. What a command executes may have such options, too:
// to conceal their values does no harm.
func secretValues(args []string) []string {
	var list []string
	for i, arg := range args {
		name, text, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || !slices.Contains(secretFlags, name):
		case hasValue:
			list = append(list, text)
		case i+1 < len(args):
			list = append(list, args[i+1])
		}
	}
	return list
}
