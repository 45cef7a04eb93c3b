package cli

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

// option is the part of a flag that people read. Usage names the value in
// back quotes.
type option struct {
	name, short, usage string
	env                string // its variable; "" for none
	group              string // heading in the help text
}

// variable returns the option with the variable that belongs to its name:
// MUSTER_DATA for data.
func (o option) variable() option {
	o.env = "MUSTER_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_"))
	return o
}

// value is a flag's value: it fills a field of a command's config.
type value struct {
	set  func(string) error
	show func() string
}

func (v *value) Set(s string) error { return v.set(s) }
func (v *value) String() string     { return v.show() }
func (v *value) Get() any           { return v.show() }

// into makes a flag whose text is read by parse and stored in dst. The default is what dst
// holds; show says it in the help text.
func into[T any](o option, dst *T, parse func(string) (T, error), show func(T) string) cli.Flag {
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

func (o option) flag(v cli.Value) cli.Flag {
	f := &cli.GenericFlag{Name: o.name, Usage: o.usage, Category: o.group, Value: v, Local: true, HideDefault: v.String() == ""}
	if o.short != "" {
		f.Aliases = []string{o.short}
	}
	if o.env != "" {
		f.Sources = cli.EnvVars(o.env)
	}
	return f
}

func (o option) text(dst *string) cli.Flag {
	return into(o, dst, func(s string) (string, error) { return s, nil }, func(s string) string { return s })
}

// on is a switch: given without a value it is on.
func (o option) on(dst *bool) cli.Flag {
	f := &cli.BoolFlag{Name: o.name, Usage: o.usage, Category: o.group, Destination: dst, Local: true, HideDefault: true}
	if o.short != "" {
		f.Aliases = []string{o.short}
	}
	return f
}

func (o option) choice(dst *string, allowed ...string) cli.Flag {
	return into(o, dst, func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", fmt.Errorf("write one of %s", strings.Join(allowed, ", "))
		}
		return s, nil
	}, func(s string) string { return s })
}

func (o option) number(dst *int, least, most int) cli.Flag {
	return into(o, dst, func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("write a whole number from %d to %d", least, most)
		}
		return n, nil
	}, func(n int) string { return unlessZero(n, strconv.Itoa) })
}

func (o option) decimal(dst *float64, most float64) cli.Flag {
	return into(o, dst, func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0 && f <= most) {
			return 0, fmt.Errorf("write a number from 0 to %.0f", most)
		}
		return f, nil
	}, func(f float64) string {
		return unlessZero(f, func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) })
	})
}

func (o option) size(dst *muster.Size) cli.Flag {
	return into(o, dst, muster.ParseSize, func(s muster.Size) string { return unlessZero(s, muster.Size.String) })
}

func (o option) duration(dst *muster.Duration) cli.Flag {
	return into(o, dst, muster.ParseDuration, func(d muster.Duration) string { return unlessZero(d, muster.Duration.String) })
}

func unlessZero[T comparable](v T, show func(T) string) string {
	var zero T
	if v == zero {
		return ""
	}
	return show(v)
}

// list may be given several times, and with commas.
func (o option) list(dst *[]string) cli.Flag {
	return into(o, dst, func(s string) ([]string, error) {
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

// repeated may be given several times; a comma is part of the value.
func (o option) repeated(dst *[]string) cli.Flag {
	return into(o, dst, func(s string) ([]string, error) {
		if s == "" {
			return nil, errors.New("it is empty")
		}
		return append(*dst, s), nil
	}, func(all []string) string { return strings.Join(all, " ") })
}

// pairs may be given several times, each time as NAME=VALUE.
func (o option) pairs(dst *map[string]string) cli.Flag {
	return into(o, dst, func(s string) (map[string]string, error) {
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
