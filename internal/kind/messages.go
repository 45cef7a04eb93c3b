package kind

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"unicode/utf8"

	"github.com/muster-dev/muster"
)

// message returns the message for one value. It has a generic one for rare keywords.
func message(keyword string, want, got any) string {
	list, _ := got.([]any)
	object, _ := got.(map[string]any)
	text, _ := got.(string)
	characters := utf8.RuneCountInString(text)
	switch keyword {
	case "const":
		return fmt.Sprintf("expected %s, got %s", describe(want), describe(got))
	case "format":
		return fmt.Sprintf("%s is not a valid %s", describe(got), want)
	case "minimum":
		return fmt.Sprintf("%s is too small: write at least %s", number(got), number(want))
	case "exclusiveMinimum":
		return fmt.Sprintf("%s is too small: write more than %s", number(got), number(want))
	case "maximum":
		return fmt.Sprintf("%s is too large: write at most %s", number(got), number(want))
	case "exclusiveMaximum":
		return fmt.Sprintf("%s is too large: write less than %s", number(got), number(want))
	case "multipleOf":
		return fmt.Sprintf("%s is not a multiple of %s", number(got), number(want))
	case "minLength":
		if characters == 0 {
			return "it must not be empty"
		}
		return fmt.Sprintf("it has %d characters: write at least %s", characters, want)
	case "maxLength":
		return fmt.Sprintf("it has %d characters: write at most %s", characters, want)
	case "minItems":
		return fmt.Sprintf("the list has %d entries: write at least %s", len(list), want)
	case "maxItems":
		return fmt.Sprintf("the list has %d entries: write at most %s", len(list), want)
	case "minProperties":
		return fmt.Sprintf("it has %d fields: write at least %s", len(object), want)
	case "maxProperties":
		return fmt.Sprintf("it has %d fields: write at most %s", len(object), want)
	case "uniqueItems":
		i, j := equalItems(list)
		return fmt.Sprintf("the entries %d and %d are equal: keep one of them", i, j)
	}
	return "it does not match " + keyword + " of the kind's schema"
}

// equalItems returns the indexes of the first item that is in a list twice.
func equalItems(list []any) (first, second int) {
	seen := map[string]int{}
	for i, v := range list {
		b, err := json.Marshal(plain(v))
		if err != nil {
			continue // never: it was JSON
		}
		if first, ok := seen[string(b)]; ok {
			return first, i
		}
		seen[string(b)] = i
	}
	return 0, 0
}

// notMessage returns the message for a value that a schema forbids.
func notMessage(schema any) string {
	if names := texts(child(schema, "required")); len(names) > 1 {
		return muster.JoinWords(names, "and") + " exclude each other: keep one of them"
	} else if len(names) == 1 {
		return names[0] + " is not allowed here: remove it"
	}
	return "it is not allowed here"
}

// texts returns the strings of a list.
func texts(list any) []string {
	var all []string
	for v := range members(list) {
		if s, ok := v.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// nearestHint returns a hint with the probably intended value.
func nearestHint(v any, want []any) string {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	return muster.DidYouMean(s, texts(want))
}

// typeTexts has the types of JSON Schema in words.
var typeTexts = map[string]string{
	"integer": "a whole number", "number": "a number", "string": "a string", "boolean": "true or false", "array": "a list", "object": "an object", "null": "null",
}

// typesOf returns the types of a type keyword: one, or a list.
func typesOf(v any) []string {
	if s, ok := v.(string); ok {
		return []string{s}
	}
	return texts(v)
}

func formatValues(values []any) []string {
	var out []string
	for _, v := range values {
		if s, ok := v.(string); ok && s != "" {
			out = append(out, s)
			continue
		}
		b, err := json.Marshal(v)
		if err != nil {
			continue // never happens: it was JSON
		}
		out = append(out, string(b))
	}
	return out
}

// number formats an exact number for messages.
func number(v any) string {
	r, ok := new(big.Rat).SetString(fmt.Sprint(v))
	switch {
	case !ok:
		return fmt.Sprint(v) // never: it was a number
	case r.IsInt():
		return r.Num().String()
	}
	f, _ := r.Float64() // for display only
	return strconv.FormatFloat(f, 'g', -1, 64)
}
