package frame

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

// Variable returns the option with the variable that belongs to its name:
// MUSTER_DATA for data.
func (o Option) Variable() Option {
	o.Env = "MUSTER_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
	return o
}

// value is a flag's value: it fills a field of a command's config.
type value struct {
	set   func(string) error
	show  func() string
	after func() string // a warning once all options are read, "" for none; may be nil
}

func (v *value) Set(s string) error { return v.set(s) }
func (v *value) String() string     { return v.show() }
func (v *value) Get() any           { return v.show() }

// Into makes a flag whose text is read by parse and stored in dst. The default is what dst
// holds; show says it in the help text.
func Into[T any](o Option, dst *T, parse func(string) (T, error), show func(T) string) cli.Flag {
	return o.flag(&value{
		set: func(s string) error {
			v, err := parse(s)
			if err == nil {
				*dst = v
			}
			return err
		},
		show: func() string { return show(*dst) },
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

// Text is any text.
func (o Option) Text(dst *string) cli.Flag {
	return Into(o, dst, func(s string) (string, error) { return s, nil }, func(s string) string { return s })
}

// On is a switch: given without a value it is on.
func (o Option) On(dst *bool) cli.Flag {
	f := &cli.BoolFlag{Name: o.Name, Usage: o.Usage, Category: o.Group, Destination: dst, Local: true, HideDefault: true}
	if o.Env != "" {
		f.Sources = cli.EnvVars(o.Env)
	}
	if o.Short != "" {
		f.Aliases = []string{o.Short}
	}
	return f
}

// Choice is one of the texts that are allowed.
func (o Option) Choice(dst *string, allowed ...string) cli.Flag {
	return Into(o, dst, func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("write one of %s", strings.Join(allowed, ", "))
		}
		return s, nil
	}, func(s string) string { return s })
}

// Number is a whole number from least to most.
func (o Option) Number(dst *int, least, most int) cli.Flag {
	return Into(o, dst, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("write a whole number from %d to %d", least, most)
		}
		return n, nil
	}, func(n int) string { return unlessZero(n, strconv.Itoa) })
}

// Decimal is a number from 0 to most.
func (o Option) Decimal(dst *float64, most float64) cli.Flag {
	return Into(o, dst, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= most) {
			return 0, fmt.Errorf("write a number from 0 to %.0f", most)
		}
		return f, nil
	}, func(f float64) string {
		return unlessZero(f, func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) })
	})
}

// Size is a number of bytes.
func (o Option) Size(dst *muster.Size) cli.Flag {
	return Into(o, dst, muster.ParseSize, func(s muster.Size) string { return unlessZero(s, muster.Size.String) })
}

// Duration is a length of time.
func (o Option) Duration(dst *muster.Duration) cli.Flag {
	return Into(o, dst, muster.ParseDuration, func(d muster.Duration) string { return unlessZero(d, muster.Duration.String) })
}

func unlessZero[T comparable](v T, show func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return show(v)
}

// List may be given several times, and with commas.
func (o Option) List(dst *[]string) cli.Flag {
	return Into(o, dst, func(s string) ([]string, error) {
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

// Repeated may be given several times; a comma is part of the value.
func (o Option) Repeated(dst *[]string) cli.Flag {
	return Into(o, dst, func(s string) ([]string, error) {
		if s == "" {
			return nil, errors.New("it is empty")
		}
		return append(*dst, s), nil
	}, func(all []string) string { return strings.Join(all, " ") })
}

// Pairs may be given several times, each time as NAME=VALUE.
func (o Option) Pairs(dst *map[string]string) cli.Flag {
	return Into(o, dst, func(s string) (map[string]string, error) {
		name, text, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, errors.New("write NAME=VALUE")
		}
		all := maps.Clone(*dst)
		if all == nil {
			all = map[string]string{}
		}
		all[name] = text
		return all, nil
	}, func(all map[string]string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			parts = append(parts, name+"="+all[name])
		}
		return strings.Join(parts, " ")
	})
}
