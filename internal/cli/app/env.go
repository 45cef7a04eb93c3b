package app

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// EnvVar returns a flag with environment variables, as docker has it: NAME=VALUE, or NAME for the value that the variable has here.
// It may be repeated.
func (o Option) EnvVar(dst *map[string]string) cli.Flag {
	o.Value = cmp.Or(o.Value, "name[=value]")
	return Var(o, dst, func(s string) (map[string]string, error) {
		name, value, ok := strings.Cut(s, "=")
		if name == "" {
			return nil, errors.New("must be NAME=VALUE, or NAME for the value that it has here")
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				return nil, fmt.Errorf("%s is not set here: write %s=VALUE", name, name)
			}
		}
		return withEntry(*dst, name, value), nil
	}, formatMap)
}

func withEntry(m map[string]string, name, value string) map[string]string {
	all := maps.Clone(m)
	if all == nil {
		all = map[string]string{}
	}
	all[name] = value
	return all
}

// ReadEnvFile reads a file with environment variables in docker's format: a line is NAME=VALUE without quotes, NAME for the value
// that the variable has here, if it is set, or a comment that begins with #.
func ReadEnvFile(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "read environment file: %w", err)
	}
	defer func() { _ = f.Close() }()
	env := map[string]string{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, muster.MaxSpecSize)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimLeft(lines.Text(), " \t")
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") {
			return nil, muster.Errorf(muster.Invalid, "%s, line %d: %q is not NAME=VALUE", path, n, muster.Truncate(line))
		}
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		env[name] = value
	}
	if err := lines.Err(); err != nil {
		return nil, muster.Errorf(muster.Invalid, "read %s: %w", path, err)
	}
	return env, nil
}
