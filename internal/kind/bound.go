package kind

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxSchema is how many parts a schema may have once everything that it refers to stands in its place: to hold an
// input against it takes as long as that.
const maxSchema = 4_000

// maxWork is how many values of an input times parts of a schema are held against each other, which is a few seconds: both
// may be those of others.
const maxWork = 1_000_000

// values counts those of an input.
func values(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			n += values(part)
		}
	case map[string]any:
		for _, part := range v {
			n += values(part)
		}
	}
	return n
}

// bounded counts the parts of a schema, and refuses a schema that is small as it is written and endless as it is read: it may be from a worker, and servers hold inputs against it.
func bounded(top map[string]any) (int, error) {
	b := &bounds{top: top, known: map[string]int{}}
	n, err := b.size(top)
	if err == nil && n > maxSchema {
		err = fmt.Errorf("it has more than %d parts, those that it refers to counted each time", maxSchema)
	}
	return n, err
}

type bounds struct {
	top   map[string]any
	known map[string]int // parts of what is referred to; 0 while they are counted
}

// size counts parts, and no further than needed.
func (b *bounds) size(v any) (n int, err error) {
	n = 1
	add := func(part any) {
		if err == nil && n <= maxSchema {
			var m int
			m, err = b.size(part)
			n += m
		}
	}
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			add(part)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			to, isText := v[name].(string)
			switch {
			case isText && name == "$ref" && err == nil:
				var m int
				m, err = b.referred(to)
				n += m
			case isText && (name == "$dynamicRef" || name == "$recursiveRef"):
				return 0, fmt.Errorf("%s cannot be used: write $ref and #/$defs/…", name)
			default:
				add(v[name])
			}
		}
	}
	return n, err
}

// referred counts the parts of what a reference leads to.
func (b *bounds) referred(to string) (int, error) {
	pointer, ok := strings.CutPrefix(to, "#/")
	if !ok {
		return 0, fmt.Errorf("$ref %s leads out of the definition or to all of it: refer to a part, as #/$defs/…", cut(to))
	}
	if n, known := b.known[pointer]; known {
		if n == 0 {
			return 0, fmt.Errorf("$ref %s leads to itself", cut(to))
		}
		return n, nil
	}
	var v any = b.top
	for step := range strings.SplitSeq(pointer, "/") {
		v = inside(v, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	b.known[pointer] = 0
	n, err := b.size(v)
	b.known[pointer] = n
	return n, err
}
