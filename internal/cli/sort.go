package cli

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/remote"
)

// sortField is a field by which --sort orders rows, ascending.
type sortField[T any] struct {
	name    string
	compare func(a, b *T) int
}

// maxSorted limits the rows that are read to sort them.
const maxSorted = 10_000

// parseSort returns the order of a list of fields, in which a leading - reverses a field; nil for an empty list.
func parseSort[T any](names []string, fields []sortField[T]) (func(a, b *T) int, error) {
	var order []func(a, b *T) int
	for _, name := range names {
		field, reverse := strings.CutPrefix(name, "-")
		i := slices.IndexFunc(fields, func(f sortField[T]) bool { return f.name == field })
		if i < 0 {
			return nil, muster.Errorf(muster.Invalid, "cannot sort by %q: use %s, with - before it to reverse", field, sortNames(fields))
		}
		compare := fields[i].compare
		if reverse {
			compare = func(a, b *T) int { return fields[i].compare(b, a) }
		}
		order = append(order, compare)
	}
	if order == nil {
		return nil, nil
	}
	return func(a, b *T) int {
		for _, compare := range order {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	}, nil
}

// completeSort completes a list of fields, which may be reversed.
func completeSort[T any](fields []sortField[T]) app.Completer {
	names := make([]string, 0, 2*len(fields))
	for _, f := range fields {
		names = append(names, f.name)
	}
	for _, f := range fields {
		names = append(names, "-"+f.name)
	}
	return app.Values(names...).List()
}

func sortNames[T any](fields []sortField[T]) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return app.JoinComma(names)
}

// sorted yields rows in an order; without one, as they are. More than maxSorted rows are an error, with advice.
func sorted[T any](ctx context.Context, rows iter.Seq2[T, error], order func(a, b *T) int, advice string) iter.Seq2[T, error] {
	if order == nil {
		return rows
	}
	return func(yield func(T, error) bool) {
		var zero T
		all, err := remote.Collect(rows, maxSorted+1)
		switch {
		case err == nil && ctx.Err() != nil:
			err = ctx.Err()
		case len(all) > maxSorted:
			err = muster.Errorf(muster.TooLarge, "more than %d match, which is too many to sort: %s", maxSorted, advice)
		}
		if err != nil {
			yield(zero, err)
			return
		}
		slices.SortStableFunc(all, func(a, b T) int { return order(&a, &b) })
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func by[T any, V cmp.Ordered](name string, value func(*T) V) sortField[T] {
	return sortField[T]{name, func(a, b *T) int { return cmp.Compare(value(a), value(b)) }}
}
