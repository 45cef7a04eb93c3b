package dag

import (
	"encoding/json"
	"strconv"

	"github.com/muster-dev/muster"
)

// fanOut sets the elements of a stage whose array is a reference to a list, or to a number n for the elements 0 to n-1.
func (g *Graph) fanOut(t *muster.TaskSpec, result ResultFunc) error {
	fail := func(format string, args ...any) error {
		return muster.Errorf(muster.Invalid, "array: ${%s}"+format, append([]any{t.Array.From}, args...)...)
	}
	v, err := g.resolveRef(t.Array.From, result)
	if err != nil {
		return fail(" cannot be resolved: %w", err)
	}
	v = withoutURLs(v)
	list, isList := v.([]any)
	if n, isNumber := v.(json.Number); isNumber {
		count, err := strconv.Atoi(n.String())
		if err != nil || count < 0 {
			return fail(" is %s, not a list or a number of elements", muster.Truncate(n.String()))
		}
		for i := range min(count, muster.MaxFanOut+1) {
			list = append(list, json.Number(strconv.Itoa(i)))
		}
	} else if !isList {
		return fail(" is %s, not a list or a number of elements", muster.Truncate(stringify(v)))
	}
	if len(list) > muster.MaxFanOut {
		return fail(" has more than %d elements", muster.MaxFanOut)
	}
	parts := map[string]bool{} // the references to parts of an element
	forEachRef(t, isItemReference, func(_, body string) { parts[body] = true })
	items := make([]json.RawMessage, len(list))
	for i, item := range list {
		for body := range parts {
			if _, err := itemField(item, body); err != nil {
				return fail(", element %d: ${%s}: %w", i, body, err)
			}
		}
		if items[i] = encode(item); len(stringify(item)) > muster.MaxItemSize {
			return fail(", element %d: it has more than %s", i, muster.Size(muster.MaxItemSize))
		}
	}
	t.Array = t.Array.FanOut(items)
	return nil
}
