package spec_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// filled repeats a text up to the most bytes that a file may have.
func filled(begin, repeat, end string) string {
	return begin + strings.Repeat(repeat, (spec.MaxFile-len(begin)-len(end))/len(repeat)) + end
}

// costly are files which cost the YAML parser, or what follows it, much more than their size. Some
// took hours.
var costly = map[string]string{
	"list in brackets":    filled("run: [", "a,", "a]"),
	"list in lines":       filled("run:\n", "- a\n", ""),
	"list as JSON":        filled(`{"run":[1`, ",1", "]}"),
	"texts as JSON":       filled(`{"run":["a"`, `,"a"`, "]}"),
	"commas":              filled("run: [", ",", "]"),
	"double quotes":       filled("run: ", `"`, ""),
	"quoted texts":        filled("run: [", `"a" `, "]"),
	"single quotes":       filled("run: ", "'", ""),
	"lines of quotes":     filled("run:\n", "- \"\n", ""),
	"aliases":             filled("run: [&a a", ",*a", "]"),
	"unknown aliases":     filled("run: [", "*a,", "]"),
	"anchors":             filled("run: ", "&", ""),
	"block scalars":       filled("run:\n", "- |\n", ""),
	"empty lines":         filled("run: |\n  a\n", "\n", ""),
	"tabs in quotes":      filled(`run: "`, "\t", `a"`),
	"comments":            filled("run: a\n", "#\n", ""),
	"directives":          filled("", "%\n", ""),
	"merge keys":          filled("run: a", "<", ""),
	"dashes in brackets":  "run: [" + strings.Repeat("- ", 35_000) + "]",
	"list behind a quote": filled("a: \"b\n  c: |\n    \"\nrun: [", "a,", "a]"),
	"a long text":         filled("run: ", "a", ""),
	"a long script":       filled("run: |\n", "  [ \"$a\" ] && b, c: {d} | e # f\n", ""),
	"escapes":             filled(`run: "`, `\n`, `"`),
}

// most is how many bytes a file may allocate from first to last, with the race detector, too; what is in use at a time is less than half of it.
const most = 160_000_000

func TestNoFileCostsMuch(t *testing.T) {
	for name, text := range costly {
		data := []byte(text)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := spec.Parse(data, "job.yaml")
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d bytes allocate %d (%.100v)", name, len(data), got, err)
		}
	}
}

// What honest files have much of is still read.
func TestLongFilesAreRead(t *testing.T) {
	for name, text := range map[string]string{
		"a script":           costly["a long script"],
		"scripts":            "tasks:\n" + strings.Repeat("  - name: \"a\"\n    env: {A: b}\n    script: |\n"+strings.Repeat("      echo \"it's, [a] {b} & c\" | d\n\n", 250)+"\n", 100),
		"a quoted text":      filled(`run: ["sh", "-c", "`, "abc ", `"]`),
		"a list in lines":    "run:\n" + strings.Repeat("  - argument-of-the-program.txt\n", 10_000),
		"a list in brackets": "run: [" + strings.Repeat("argument, ", 15_000) + "]",
		"a list as JSON":     `{"run":["a"` + strings.Repeat(`,"argument"`, 40_000) + "]}",
		"tables":             "run: |\n" + strings.Repeat("  "+strings.Repeat("1.5\t", 50)+"\n", 4_000),
	} {
		if _, err := spec.Parse([]byte(text), "job.yaml"); err != nil {
			for _, f := range fieldsOf(err) {
				if strings.Contains(f.Message, "signs") || strings.Contains(f.Message, "values") || strings.Contains(f.Message, "empty lines") || strings.Contains(f.Message, "tabs") {
					t.Errorf("%s (%d bytes): %.300v", name, len(text), err)
				}
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

// A file with too much in it is told where that is.
func TestWhereAFileHasTooMuch(t *testing.T) {
	for text, want := range map[string]int{
		"run: a\nenv:\n  A: |\n    b\nwhere: [\n" + strings.Repeat("a,\n", 30_000) + "]": 20_002,
		"run: a\n" + strings.Repeat(" b\n", 200_000):                                     40_001,
	} {
		if got := problems(t, text)[0]; got.Line < want-20 || got.Line > want+20 || !strings.Contains(got.Message, "signs") {
			t.Errorf("line %d: %s; want line %d", got.Line, got.Message, want)
		}
	}
}

func BenchmarkCostlyFiles(b *testing.B) {
	for name, text := range costly {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = spec.Parse([]byte(text), "job.yaml")
			}
		})
	}
}
