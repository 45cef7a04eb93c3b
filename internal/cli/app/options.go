package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
)

// Option describes a flag.
type Option struct {
	Name, Short, Usage string
	Value              string // placeholder in the help text; "" means that of the type
	Env                string // environment variable; "" means none
	Group              string // heading in the help text

	Aliases []string // other names, which the help text does not show; not for switches

	Complete Completer // of its values; nil means names of files if Value is path, else none
}

// WithEnv returns the option with the environment variable of its name: MUSTER_DATA for data.
func (o Option) WithEnv() Option {
	o.Env = "MUSTER_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
	return o
}

// flagValue implements cli.Value with functions.
type flagValue struct {
	placeholder string
	set         func(string) error
	format      func() string
	warning     func() string // called once all options are read, "" means none; may be nil
	complete    Completer     // may be nil
}

func (v *flagValue) Set(s string) error { return v.set(s) }
func (v *flagValue) String() string     { return v.format() }
func (v *flagValue) Get() any           { return v.format() }

// Var returns a flag that stores the result of parse in dst. The default is the value of dst,
// which the help text shows with format.
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

func (o Option) flag(v *flagValue) cli.Flag {
	v.placeholder, v.complete = cmp.Or(o.Value, "string"), o.Complete
	f := &cli.GenericFlag{Name: o.Name, Usage: o.Usage, Category: o.Group, Value: v, DefaultText: v.String(), Local: true}
	if o.Short != "" {
		f.Aliases = []string{o.Short}
	}
	f.Aliases = append(f.Aliases, o.Aliases...)
	if o.Env != "" {
		f.Sources = cli.EnvVars(o.Env)
	}
	return f
}

// Placeholder returns the placeholder of an option's value, "" for a switch or an unknown option.
func Placeholder(flags []cli.Flag, name string) string {
	for _, f := range flags {
		if g, ok := f.(*cli.GenericFlag); ok && slices.Contains(f.Names(), name) {
			if v, ok := g.Value.(*flagValue); ok {
				return v.placeholder
			}
		}
	}
	return ""
}

// StringVar returns a flag with a text.
func (o Option) StringVar(dst *string) cli.Flag {
	return Var(o, dst, func(s string) (string, error) { return s, nil }, func(s string) string { return s })
}

// BoolVar returns a switch.
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

// OptionalBoolVar returns a switch that leaves dst nil unless it is set, also with =false.
func (o Option) OptionalBoolVar(dst **bool) cli.Flag {
	f := &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Category: o.Group, Local: true, HideDefault: true}
	if o.Short != "" {
		f.Aliases = []string{o.Short}
	}
	f.Action = func(_ context.Context, _ *cli.Command, v bool) error {
		*dst = &v
		return nil
	}
	return f
}

// EnumVar returns a flag with one of the allowed texts.
func (o Option) EnumVar(dst *string, allowed ...string) cli.Flag {
	o.Complete = Values(allowed...)
	return Var(o, dst, func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("must be one of %s", strings.Join(allowed, ", "))
		}
		return s, nil
	}, func(s string) string { return s })
}

// IntVar returns a flag with an integer from lo to hi.
func (o Option) IntVar(dst *int, lo, hi int) cli.Flag {
	o.Value = cmp.Or(o.Value, "int")
	return Var(o, dst, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < lo || n > hi {
			return 0, fmt.Errorf("must be an integer from %d to %d", lo, hi)
		}
		return n, nil
	}, func(n int) string { return formatNonZero(n, strconv.Itoa) })
}

// FloatVar returns a flag with a number from 0 to hi.
func (o Option) FloatVar(dst *float64, hi float64) cli.Flag {
	o.Value = cmp.Or(o.Value, "number")
	return Var(o, dst, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= hi) {
			return 0, fmt.Errorf("must be a number from 0 to %.0f", hi)
		}
		return f, nil
	}, func(f float64) string {
		return formatNonZero(f, func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) })
	})
}

// SizeVar returns a flag with a number of bytes, such as 4GiB.
func (o Option) SizeVar(dst *muster.Size) cli.Flag {
	o.Value = cmp.Or(o.Value, "bytes")
	return Var(o, dst, muster.ParseSize, func(s muster.Size) string { return formatNonZero(s, muster.Size.String) })
}

// DurationVar returns a flag with a duration, such as 90s.
func (o Option) DurationVar(dst *muster.Duration) cli.Flag {
	o.Value = cmp.Or(o.Value, "duration")
	return Var(o, dst, muster.ParseDuration, func(d muster.Duration) string { return formatNonZero(d, muster.Duration.String) })
}

// OptionalDurationVar returns a flag with a duration whose absence, nil, differs from 0.
func (o Option) OptionalDurationVar(dst **muster.Duration) cli.Flag {
	o.Value = cmp.Or(o.Value, "duration")
	return Var(o, dst, func(s string) (*muster.Duration, error) {
		d, err := muster.ParseDuration(s)
		return &d, err
	}, FormatOptional)
}

// FormatOptional formats a value, "" if it is nil.
func FormatOptional[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func formatNonZero[T comparable](v T, formatValue func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return formatValue(v)
}

// ListVar returns a flag with a comma-separated list. It may be repeated.
func (o Option) ListVar(dst *[]string) cli.Flag {
	o.Value = cmp.Or(o.Value, "list")
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

// RepeatedVar returns a flag that may be repeated; a comma is part of the value.
func (o Option) RepeatedVar(dst *[]string) cli.Flag {
	return Var(o, dst, func(s string) ([]string, error) {
		if s == "" {
			return nil, errors.New("must not be empty")
		}
		return append(*dst, s), nil
	}, func(all []string) string { return strings.Join(all, " ") })
}

// MapVar returns a flag with NAME=VALUE. It may be repeated.
func (o Option) MapVar(dst *map[string]string) cli.Flag {
	o.Value = cmp.Or(o.Value, "name=value")
	return Var(o, dst, func(s string) (map[string]string, error) {
		name, val, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, errors.New("must be NAME=VALUE")
		}
		return withEntry(*dst, name, val), nil
	}, formatMap)
}

func formatMap(all map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+"="+all[name])
	}
	return strings.Join(parts, " ")
}

// LogOptions configures the log of a daemon on standard error. The zero value is not valid: use DefaultLogOptions.
type LogOptions struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// DefaultLogOptions returns level info and format text.
func DefaultLogOptions() LogOptions { return LogOptions{Level: "info", Format: "text"} }

// Flags returns the options.
func (l *LogOptions) Flags() []cli.Flag {
	const group = "Logging"
	return []cli.Flag{
		Option{Name: "log-level", Value: "level", Usage: "Minimum log level: debug, info, warn or error", Group: group}.WithEnv().EnumVar(&l.Level, "debug", "info", "warn", "error"),
		Option{Name: "log-format", Value: "format", Usage: "Log format: text or json", Group: group}.WithEnv().EnumVar(&l.Format, "text", "json"),
	}
}

// Logger returns a logger that writes to w.
func (l *LogOptions) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, muster.Errorf(muster.Internal, "log level: %w", err)
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return slog.New(slog.NewTextHandler(w, o)), nil
}
