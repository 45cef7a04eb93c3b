package app

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// Option is the part of a flag that people read. Usage names the value in
// back quotes.
type Option struct {
	Name, Short, Usage string
	Env                string // its variable; "" for none
	Group              string // heading in the help text
}

// WithEnv returns the option with the variable that belongs to its name:
// MUSTER_DATA for data.
func (o Option) WithEnv() Option {
	o.Env = "MUSTER_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
	return o
}

// flagValue is a flag's value: it fills a field of a command's config.
type flagValue struct {
	set     func(string) error
	format  func() string
	warning func() string // a warning once all options are read, "" for none; may be nil
}

func (v *flagValue) Set(s string) error { return v.set(s) }
func (v *flagValue) String() string     { return v.format() }
func (v *flagValue) Get() any           { return v.format() }

// Var makes a flag whose text is read by parse and stored in dst. The default is what dst
// holds; show says it in the help text.
func Var[T any](o Option, dst *T, parse func(string) (T, error), format func(T) string) cli.Flag {
	return o.flag(&flagValue{
		set: func(s string) error {
			v, err := parse(s)
			if err == nil {
				*dst = v
			}
			return err
		},
		format: func() string { return format(*dst) },
	})
}

func (o Option) flag(v cli.Value) cli.Flag {
	f := &cli.GenericFlag{Name: o.Name, Usage: o.Usage, Category: o.Group, Value: v, Local: true, HideDefault: v.String() == ""}
	if o.Short != "" {
		f.Aliases = []string{o.Short}
	}
	if o.Env != "" {
		f.Sources = cli.EnvVars(o.Env)
	}
	return f
}

// StringVar is any text.
func (o Option) StringVar(dst *string) cli.Flag {
	return Var(o, dst, func(s string) (string, error) { return s, nil }, func(s string) string { return s })
}

// BoolVar is a switch: given without a value it is on.
func (o Option) BoolVar(dst *bool) cli.Flag {
	f := &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Category: o.Group, Destination: dst, Local: true, HideDefault: true}
	if o.Env != "" {
		f.Sources = cli.EnvVars(o.Env)
	}
	if o.Short != "" {
		f.Aliases = []string{o.Short}
	}
	return f
}

// EnumVar is one of the texts that are allowed.
func (o Option) EnumVar(dst *string, allowed ...string) cli.Flag {
	return Var(o, dst, func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("write one of %s", strings.Join(allowed, ", "))
		}
		return s, nil
	}, func(s string) string { return s })
}

// IntVar is a whole number from least to most.
func (o Option) IntVar(dst *int, lo, hi int) cli.Flag {
	return Var(o, dst, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < lo || n > hi {
			return 0, fmt.Errorf("write a whole number from %d to %d", lo, hi)
		}
		return n, nil
	}, func(n int) string { return formatNonZero(n, strconv.Itoa) })
}

// FloatVar is a number from 0 to most.
func (o Option) FloatVar(dst *float64, hi float64) cli.Flag {
	return Var(o, dst, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= hi) {
			return 0, fmt.Errorf("write a number from 0 to %.0f", hi)
		}
		return f, nil
	}, func(f float64) string {
		return formatNonZero(f, func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) })
	})
}

// SizeVar is a number of bytes.
func (o Option) SizeVar(dst *muster.Size) cli.Flag {
	return Var(o, dst, muster.ParseSize, func(s muster.Size) string { return formatNonZero(s, muster.Size.String) })
}

// DurationVar is a length of time.
func (o Option) DurationVar(dst *muster.Duration) cli.Flag {
	return Var(o, dst, muster.ParseDuration, func(d muster.Duration) string { return formatNonZero(d, muster.Duration.String) })
}

func formatNonZero[T comparable](v T, formatValue func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return formatValue(v)
}

// ListVar may be given several times, and with commas.
func (o Option) ListVar(dst *[]string) cli.Flag {
	return Var(o, dst, func(s string) ([]string, error) {
		all := *dst
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part == "" {
				return nil, errors.New("an item of the list is empty")
			}
			all = append(all, part)
		}
		return all, nil
	}, func(all []string) string { return strings.Join(all, ",") })
}

// RepeatedVar may be given several times; a comma is part of the value.
func (o Option) RepeatedVar(dst *[]string) cli.Flag {
	return Var(o, dst, func(s string) ([]string, error) {
		if s == "" {
			return nil, errors.New("it is empty")
		}
		return append(*dst, s), nil
	}, func(all []string) string { return strings.Join(all, " ") })
}

// MapVar may be given several times, each time as NAME=VALUE.
func (o Option) MapVar(dst *map[string]string) cli.Flag {
	return Var(o, dst, func(s string) (map[string]string, error) {
		name, val, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, errors.New("write NAME=VALUE")
		}
		all := maps.Clone(*dst)
		if all == nil {
			all = map[string]string{}
		}
		all[name] = val
		return all, nil
	}, func(all map[string]string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			parts = append(parts, name+"="+all[name])
		}
		return strings.Join(parts, " ")
	})
}
