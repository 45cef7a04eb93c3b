package kind

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxSchemaSize is how many parts a schema may have once everything that it refers to stands in its place: to hold an
// input against it takes as long as that.
const maxSchemaSize = 4_000

// maxWork is how many values of an input times parts of a schema are held against each other, which is a few seconds: both
// may be those of others.
const maxWork = 1_000_000

// countValues counts those of an input.
func countValues(v any) int {
	n := 1
	switch v := v.(type) {
	case []any:
		for _, part := range v {
			n += countValues(part)
		}
	case map[string]any:
		for _, part := range v {
			n += countValues(part)
		}
	}
	return n
}

// schemaSize counts the parts of a schema, and refuses a schema that is small as it is written and endless as it is read: it may be from a worker, and servers hold inputs against it.
func schemaSize(top map[string]any) (int, error) {
	b := &schemaSizer{top: top, refSizes: map[string]int{}}
	n, err := b.size(top)
	if err == nil && n > maxSchemaSize {
		err = fmt.Errorf("it has more than %d parts, those that it refers to counted each time", maxSchemaSize)
	}
	return n, err
}

type schemaSizer struct {
	top      map[string]any
	refSizes map[string]int // parts of what is referred to; 0 while they are counted
}

// size counts parts, and no further than needed.
func (b *schemaSizer) size(v any) (n int, err error) {
	n = 1
	add := func(part any) {
		if err == nil && n <= maxSchemaSize {
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
				m, err = b.refSize(to)
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

// refSize counts the parts of what a reference leads to.
func (b *schemaSizer) refSize(to string) (int, error) {
	pointer, ok := strings.CutPrefix(to, "#/")
	if !ok {
		return 0, fmt.Errorf("$ref %s leads out of the definition or to all of it: refer to a part, as #/$defs/…", truncate(to))
	}
	if n, known := b.refSizes[pointer]; known {
		if n == 0 {
			return 0, fmt.Errorf("$ref %s leads to itself", truncate(to))
		}
		return n, nil
	}
	var v any = b.top
	for step := range strings.SplitSeq(pointer, "/") {
		v = child(v, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
	}
	b.refSizes[pointer] = 0
	n, err := b.size(v)
	b.refSizes[pointer] = n
	return n, err
}
