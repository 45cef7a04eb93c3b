package progress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/lazyregexp"
)

// LinePrefix begins a line of output that is an event for Muster.
const LinePrefix = "::muster "

// Limits of the task protocol. An event beyond them is malformed.
const (
	MaxEventLine  = 16 << 10 // bytes
	MaxMetrics    = 64       // in one event
	MaxMetricName = 64       // bytes
	MaxStep       = 200      // bytes; a longer step is truncated
)

// IsEvent reports whether a line of output is an event for Muster.
func IsEvent(line []byte) bool { return bytes.HasPrefix(line, []byte(LinePrefix)) }

// ParseLine parses a line for which IsEvent holds:
//
//	::muster progress=0.42 step="epoch 3/7" loss=0.12
//	::muster {"progress": 0.42, "step": "epoch 3/7", "loss": 0.12}
//
// Progress is 0 to 1. Every other name except step is a metric, a finite number. Quoted text is written as in JSON.
func ParseLine(line []byte) (muster.Progress, error) {
	body := bytes.TrimSpace(bytes.TrimPrefix(line, []byte(LinePrefix)))
	if len(body) > 0 && body[0] == '{' {
		return ParseEvent(body)
	}
	var p muster.Progress
	if len(body) > MaxEventLine {
		return p, errLongLine
	}
	for len(body) > 0 {
		key, rest, ok := bytes.Cut(body, []byte("="))
		if !ok {
			return muster.Progress{}, fmt.Errorf("%q is not name=value", truncate(string(body), 40))
		}
		val, rest, err := parseValue(rest)
		if err != nil {
			return muster.Progress{}, fmt.Errorf("%s: %w", truncate(string(key), 40), err)
		}
		if err := setField(&p, string(key), val); err != nil {
			return muster.Progress{}, err
		}
		body = bytes.TrimLeft(rest, " \t")
	}
	return p, notEmpty(&p)
}

// ParseEvent parses one JSON object, as after LinePrefix or as a line of $MUSTER_EVENTS. Metrics are fields beside progress and step, or of
// an object "metrics".
func ParseEvent(line []byte) (muster.Progress, error) {
	var p muster.Progress
	if len(line) > MaxEventLine {
		return p, errLongLine
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return p, fmt.Errorf("not a JSON object: %w", err)
	}
	if nested, ok := fields["metrics"]; ok && len(nested) > 0 && nested[0] == '{' {
		delete(fields, "metrics")
		var metrics map[string]float64
		if err := json.Unmarshal(nested, &metrics); err != nil {
			return muster.Progress{}, fmt.Errorf("metrics: %w", err)
		}
		for name, v := range metrics {
			if err := setMetric(&p, name, v); err != nil {
				return muster.Progress{}, err
			}
		}
	}
	for name, raw := range fields {
		val := string(raw)
		if len(raw) > 0 && raw[0] == '"' {
			if err := json.Unmarshal(raw, &val); err != nil {
				return muster.Progress{}, fmt.Errorf("%s: %w", truncate(name, 40), err)
			}
		}
		if err := setField(&p, name, val); err != nil {
			return muster.Progress{}, err
		}
	}
	return p, notEmpty(&p)
}

var (
	errLongLine = fmt.Errorf("longer than %d bytes", MaxEventLine)
	errNoFields = errors.New("has no fields")
)

// parseValue splits off a value: quoted, or up to the next space.
func parseValue(b []byte) (string, []byte, error) {
	if len(b) > 0 && b[0] == '"' {
		dec := json.NewDecoder(bytes.NewReader(b))
		var s string
		if err := dec.Decode(&s); err != nil {
			return "", nil, errors.New("the quoted text does not end or has a bad escape")
		}
		rest := b[dec.InputOffset():]
		if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
			return "", nil, errors.New("a space must follow the quoted text")
		}
		return s, rest, nil
	}
	if i := bytes.IndexAny(b, " \t"); i >= 0 {
		return string(b[:i]), b[i:], nil
	}
	return string(b), nil, nil
}

func setField(p *muster.Progress, name, val string) error {
	switch name {
	case "step":
		if !utf8.ValidString(val) {
			return errors.New("step is not UTF-8")
		}
		s := truncate(val, MaxStep)
		p.Step = &s
		return nil
	case "progress":
		f, err := strconv.ParseFloat(val, 64)
		// Sums of steps such as 0.1 may exceed 1 a little.
		if err != nil || !(f >= -1e-6 && f <= 1+1e-6) {
			return fmt.Errorf("progress is %q: it must be a number from 0 to 1", truncate(val, 40))
		}
		f = min(max(f, 0), 1)
		p.Progress = &f
		return nil
	default:
		f, err := strconv.ParseFloat(val, 64)
		if err != nil {
			return fmt.Errorf("%s is %q: a metric must be a number", truncate(name, 40), truncate(val, 40))
		}
		return setMetric(p, name, f)
	}
}

var metricNameRE = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_./-]*$`)

func setMetric(p *muster.Progress, name string, v float64) error {
	if len(name) > MaxMetricName || !metricNameRE.Get().MatchString(name) {
		return fmt.Errorf("%q is not a metric name: use up to %d letters, digits and _ - . /, beginning with a letter", truncate(name, 40), MaxMetricName)
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Errorf("%s is not a finite number", name)
	}
	if p.Metrics == nil {
		p.Metrics = map[string]float64{}
	}
	if p.Metrics[name] = v; len(p.Metrics) > MaxMetrics {
		return fmt.Errorf("more than %d metrics", MaxMetrics)
	}
	return nil
}

func notEmpty(p *muster.Progress) error {
	if p.Progress == nil && p.Step == nil && len(p.Metrics) == 0 {
		return errNoFields
	}
	return nil
}

// truncate shortens s to at most n bytes, at the start of a character.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
