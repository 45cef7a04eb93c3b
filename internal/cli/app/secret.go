package app

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// maxSecret is the most bytes of a token in a file.
const maxSecret = 4 << 10

// Secret is a token from a file, from the environment, or from an argument, where other users of the machine can see it.
type Secret struct {
	name string // of the option; that of the file is name-file
	env  string // environment variable; that of the file is env_FILE

	text    string
	file    string
	fromArg bool
	err     error // both options were given
}

// fileSuffix and fileEnvSuffix are appended to the names for the file of a secret.
const (
	fileSuffix    = "-file"
	fileEnvSuffix = "_FILE"
)

// SecretVars returns two options: the token, and a file with it. noun names the token, such as "join token".
func (o Option) SecretVars(dst *Secret, noun string) []cli.Flag {
	dst.name, dst.env = o.Name, o.Env
	file := Option{Name: o.Name + fileSuffix, Value: "path", Env: o.Env + fileEnvSuffix, Group: o.Group, Usage: "File with the " + noun + " on its first line; - means standard input"}
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

// set stores the value of an option, which comes from the variable env if they are equal. Arguments are
// parsed before variables and have precedence.
func (s *Secret) set(dst *string, text, other, env string) {
	fromArg := text != os.Getenv(env)
	switch {
	case other == "":
		*dst = text
		s.fromArg = s.fromArg || fromArg && dst == &s.text
	case fromArg:
		s.err = muster.Errorf(muster.Invalid, "--%s and --%s are mutually exclusive", s.name, s.name+fileSuffix)
	}
}

// warning returns a warning if the token was an argument.
func (s *Secret) warning() string {
	if !s.fromArg {
		return ""
	}
	return fmt.Sprintf("--%s shows the token to other users of this machine while the program starts: use --%s%s FILE (- means standard input) or the variable %s",
		s.name, s.name, fileSuffix, s.env)
}

// Read returns the token, "" if none was given. Standard input is read only once.
func (s *Secret) Read() (string, error) {
	if s.err != nil || s.file == "" {
		return s.text, s.err
	}
	in, from := io.Reader(os.Stdin), "standard input"
	if s.file != "-" {
		f, err := os.Open(s.file)
		if err != nil {
			return "", muster.Errorf(muster.Invalid, "--%s%s: %w", s.name, fileSuffix, err)
		}
		defer f.Close()
		in, from = f, s.file
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxSecret)).ReadBytes('\n')
	line = bytes.TrimSpace(line)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return "", muster.Errorf(muster.Invalid, "--%s%s: %w", s.name, fileSuffix, err)
	case len(line) == 0:
		return "", muster.Errorf(muster.Invalid, "--%s%s: the first line of %s is empty, it must be the token", s.name, fileSuffix, from)
	}
	s.text, s.file = string(line), ""
	return s.text, nil
}

// FromInput reports whether Read reads standard input.
func (s *Secret) FromInput() bool { return s.file == "-" }

// ReadAndUnset is Read, and removes the token from the environment of child processes.
func (s *Secret) ReadAndUnset() (string, error) {
	text, err := s.Read()
	for _, name := range []string{s.env, s.env + fileEnvSuffix} {
		_ = os.Unsetenv(name) // fails for no such name
	}
	return text, err
}

// UnsetSecrets removes all tokens from the environment of child processes.
func UnsetSecrets() {
	for _, name := range secretFlags {
		env := (Option{Name: name}).WithEnv().Env
		_, _ = os.Unsetenv(env), os.Unsetenv(env+fileEnvSuffix) // fails for no such name
	}
}

// HasFlag reports whether name is one of the two options of s.
func (s *Secret) HasFlag(name string) bool { return name == s.name || name == s.name+fileSuffix }

// RemoveFlags returns args without the options of s.
func (s *Secret) RemoveFlags(args []string) []string {
	if s.name == "" {
		return args
	}
	var rest []string
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") || !s.HasFlag(name) {
			rest = append(rest, args[i])
		} else if !hasValue {
			i++
		}
	}
	return rest
}

// MaskArgs moves the program's arguments to memory that no other process can read, overwrites the secrets in the process list, and returns the
// arguments.
func MaskArgs() []string {
	listed := os.Args
	os.Args = make([]string, len(listed))
	for i, arg := range listed {
		os.Args[i] = strings.Clone(arg)
	}
	overwriteSecrets(listed)
	return os.Args
}

// secretFlags are the options whose values are tokens.
var secretFlags = []string{"token", "admin-token", "join-token", "webhook-secret", "api-key", "coordinator-token", "scheduler-token", "oidc-client-secret"} //nolint:gochecknoglobals // a constant

// secretValues returns the secrets in args, also those among the arguments of a task's command, as parts of args.
func secretValues(args []string) []string {
	var list []string
	for i, arg := range args {
		name, text, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || !slices.Contains(secretFlags, name):
			list = append(list, secretParts(arg)...)
		case hasValue:
			list = append(list, text)
		case i+1 < len(args):
			list = append(list, args[i+1])
		}
	}
	return list
}

// partPattern finds keys of Muster, such as in the path /k/KEY of a gateway's URL, and the token of a gateway: --dialect mloc=:8000,token=TOKEN.
var partPattern = lazyregexp.New(`mst_[a-z]+_[a-z2-7]+|://.*?/k/([^/?#,]+)|[,=]token=([^,]+)`)

// secretParts returns the secrets that are parts of an argument.
func secretParts(arg string) []string {
	var list []string
	if strings.Contains(arg, "://") {
		list = append(list, muster.Credentials(arg))
	}
	for _, match := range partPattern.Get().FindAllStringSubmatch(arg, -1) {
		list = append(list, cmp.Or(match[1], match[2], match[0]))
	}
	return list
}
