package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// kind is the type of a column.
type kind int

const (
	null kind = iota // no value yet
	boolean
	integer
	number
	text
	timestamp
)

// union returns the type that holds values of both types.
func union(a, b kind) kind {
	switch {
	case a == b || b == null:
		return a
	case a == null:
		return b
	case a == integer && b == number || a == number && b == integer:
		return number
	default:
		return text
	}
}

// value is a cell: nil, bool, int64, float64, string or muster.Time.
type value any

func kindOf(v value) kind {
	switch v := v.(type) {
	case bool:
		return boolean
	case int64:
		return integer
	case float64:
		return number
	case string:
		return text
	case muster.Time:
		if v != 0 {
			return timestamp
		}
	}
	return null
}

// as converts a value to the type of its column, which is the union of its values' types.
func as(v value, t kind) value {
	switch v := v.(type) {
	case int64:
		if t == number {
			return float64(v)
		}
	case muster.Time:
		if v == 0 {
			return nil
		}
	}
	if t == text && v != nil {
		return format(v)
	}
	return v
}

// format returns a value as text, "" for null. It is what ParseFloat and RFC 3339 read.
func format(v value) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case string:
		return v
	case muster.Time:
		if v != 0 {
			return v.Std().UTC().Format("2006-01-02T15:04:05.000Z")
		}
	}
	return ""
}

// field is a field of a result or of the parameters.
type field struct {
	name  string
	value value
}

const (
	maxDepth     = 8   // objects in objects
	maxFieldName = 200 // bytes
)

// flatten appends the fields of a JSON value. An object that is empty or too deep, a list, and a value that is no object are one field.
func flatten(fields []field, name string, raw json.RawMessage, depth int) []field {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return fields
	}
	if raw[0] != '{' || depth == maxDepth {
		return append(fields, field{name, scalar(raw)})
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return fields
	}
	for d.More() {
		key, err := d.Token()
		var member json.RawMessage
		if err == nil {
			err = d.Decode(&member)
		}
		if err != nil {
			return fields
		}
		path, _ := key.(string)
		fields = flatten(fields, cutName(name+"."+path), member, depth+1)
	}
	return fields
}

// cutName cuts the name of a column.
func cutName(name string) string {
	if len(name) <= maxFieldName {
		return name
	}
	end := maxFieldName
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + "…"
}

// scalar returns the value of JSON that is no object, and the compact text of what is none of the types.
func scalar(raw json.RawMessage) value {
	switch raw[0] {
	case 'n':
		return nil
	case 't', 'f':
		return raw[0] == 't'
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	case '[', '{':
	default:
		return numeric(string(raw))
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// numeric returns an integer of 64 bits, a number, or the text of what is neither, such as 1e999.
func numeric(s string) value {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return f
	}
	return s
}

// literal returns the value of a parameter that is known as text: "0.1" is a number. Texts such as "0x10", "1_000" or "Inf" are no JSON.
func literal(s string) value {
	if d := json.NewDecoder(bytes.NewReader([]byte(s))); s != "" && s[0] != '"' && s[0] != '[' && s[0] != '{' {
		var raw json.RawMessage
		if d.Decode(&raw) == nil && len(raw) == len(s) {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				return scalar(raw)
			}
		}
	}
	return s
}
