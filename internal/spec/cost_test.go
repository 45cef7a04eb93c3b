package spec_test

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// maxAlloc is the maximum of bytes that a parse may allocate in total. The race detector makes pools drop what they hold.
const maxAlloc = 50_000_000 * raceFactor

// allocated returns the bytes that the parse of a file allocates, with empty pools of the library.
func allocated(text string) (bytes uint64, err error) {
	data := []byte(text)
	runtime.GC() // twice, which empties each sync.Pool
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = spec.Parse(data, "job.yaml")
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, err
}

func TestNoFileCostsMuch(t *testing.T) {
	for _, files := range []map[string]string{longFiles, costlyFiles} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			text := files[name]
			got, err := allocated(text)
			t.Logf("%-36s %7d bytes allocate %5.1f MB (%.80v)", name, len(text), float64(got)/1e6, err)
			if got > maxAlloc {
				t.Errorf("%s: %d bytes allocate %d (%.100v)", name, len(text), got, err)
			}
		}
	}
}

// FuzzCost searches for files that allocate too much: a part that is repeated between two others.
func FuzzCost(f *testing.F) {
	f.Add("run:\n", "- a\n", "", 20_000)
	f.Add("run: [", "\n    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa~run: a\n", "[a, b]", 4_331)
	f.Add("x: &a |\n", "  a\n", "y: [*a, *a]\n", 100_000)
	f.Add(`{"run":"a","input":{"a":[`, `{"b":"\u0001"},`, "1]}}", 10_000)
	f.Fuzz(func(t *testing.T, begin, part, end string, n int) {
		if n < 0 || n*len(part) > spec.MaxFile || len(begin)+len(end) > spec.MaxFile {
			return
		}
		if got, err := allocated(begin + strings.Repeat(part, n) + end); got > maxAlloc {
			t.Errorf("%.100q, %d times %.100q, %.100q: %d bytes (%.100v)", begin, n, part, end, got, err)
		}
	})
}

// Long legitimate files are accepted.
func TestLongFilesAreRead(t *testing.T) {
	for name, text := range longFiles {
		_, err := spec.Parse([]byte(text), "job.yaml")
		if err == nil {
			continue
		}
		for _, f := range fieldsOf(err) {
			if !strings.Contains(f.Message, "the system's limit is") && !strings.Contains(f.Message, "as JSON: the maximum") && !strings.Contains(f.Message, "nothing to run") {
				t.Errorf("%s (%d bytes): %.300v", name, len(text), f)
			}
		}
	}
}

func fieldsOf(err error) []muster.FieldError {
	e, ok := errors.AsType[*muster.Error](err)
	if !ok {
		return nil
	}
	return e.Fields
}

// The error for a file that exceeds a limit has a place.
func TestWhereAFileHasTooMuch(t *testing.T) {
	for text, want := range map[string]int{
		"run: a\nenv:\n  A: |\n    b, [c]\nwhere: [\n" + strings.Repeat("a,\n", 30_000) + "]":       10_551,
		"run: \"\n a: |\n  b\n  \"\nwhere: [\n" + strings.Repeat("a,\n", 30_000) + "]":              10_551,
		"x-a:\n- |\n  " + strings.Repeat("[],{}\n  ", 30_000) + "\n- b: >  # c\n    d\n\n run: c\n": 30_007,
	} {
		if got := problems(t, text)[0]; got.Line != want || !strings.Contains(got.Message, "too large for YAML from this line on") && !strings.Contains(got.Message, "invalid YAML") {
			t.Errorf("line %d: %s; want line %d", got.Line, got.Message, want)
		}
	}
}

func BenchmarkFiles(b *testing.B) {
	for _, files := range []map[string]string{longFiles, costlyFiles} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			data := []byte(files[name])
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					_, _ = spec.Parse(data, "job.yaml")
				}
			})
		}
	}
}
