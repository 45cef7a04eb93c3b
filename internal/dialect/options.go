package dialect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// OptionReader reads the options of one gateway. An option that is not given has its default.
type OptionReader struct {
	system string
	values map[string]string
	errs   []error
}

// ReadOptions returns a reader of the options of c.
func (c *Config) ReadOptions() *OptionReader { return &OptionReader{system: c.Name, values: c.Options} }

// Err returns an Invalid error with all values that cannot be read.
func (o *OptionReader) Err() error {
	if err := errors.Join(o.errs...); err != nil {
		return muster.Errorf(muster.Invalid, "--dialect %s: %w", o.system, err)
	}
	return nil
}

// Fail records that the value of an option cannot be used, and what to do.
func (o *OptionReader) Fail(name, format string, args ...any) {
	o.errs = append(o.errs, muster.Errorf(muster.Invalid, "%s=%s: %s", name, o.values[name], fmt.Sprintf(format, args...)))
}

// OneOf returns one of several texts; the first one is the default, and may be empty.
func (o *OptionReader) OneOf(name string, texts ...string) string {
	value := o.values[name]
	switch {
	case value == "":
		return texts[0]
	case !slices.Contains(texts, value):
		o.Fail(name, "use one of %s", strings.TrimPrefix(strings.Join(texts, ", "), ", "))
	}
	return value
}

// Duration returns a duration.
func (o *OptionReader) Duration(name string, fallback, least, most time.Duration) time.Duration {
	return number(o, name, fallback, least, most, time.ParseDuration, fmt.Sprintf("use a duration from %s to %s, such as %s", least, most, fallback))
}

// Int returns a whole number.
func (o *OptionReader) Int(name string, fallback, least, most int) int {
	return number(o, name, fallback, least, most, strconv.Atoi, fmt.Sprintf("use a number from %d to %d", least, most))
}

func number[T cmp.Ordered](o *OptionReader, name string, fallback, least, most T, parse func(string) (T, error), hint string) T {
	value := o.values[name]
	if value == "" {
		return fallback
	}
	n, err := parse(value)
	if err != nil || n < least || n > most {
		o.Fail(name, "%s", hint)
	}
	return n
}
