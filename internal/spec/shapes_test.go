package spec_test

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster/internal/spec"
)

// filled repeats a text up to the most bytes that a file may have.
func filled(begin, repeat, end string) string {
	return begin + strings.Repeat(repeat, (spec.MaxFile-len(begin)-len(end))/len(repeat)) + end
}

// numbered repeats a format with the numbers from 0 up.
func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

var (
	rep      = strings.Repeat
	longName = rep("k", 400_000)
	wide     = "{" + numbered(800, "k%d: a, ") + "b: 1}"
	shell    = "  if [ \"$a\" = 'b' ]; then echo \"it's, [a] {b} c\" | d; fi # x\n"
	// staircase has headers of block scalars whose text is irregular only at its end.
	staircase = func() string {
		var b strings.Builder
		for i := range 300 {
			b.WriteString(rep("  ", i) + "- |\n")
		}
		for i := 299; i >= 0; i-- {
			b.WriteString(rep("  ", i) + " a\n")
		}
		return b.String()
	}()
)

// long are files with much in them that somebody may want to say. All of them are read.
var long = map[string]string{
	"block scalar":                        filled("x-a: |\n", shell, ""),
	"block scalar of 500 kB":              "name: don't\nscript: |\n" + rep(shell, 7_400),
	"block scalar, one line":              filled("x-a: |\n  ", "abcd ef ", "\n"),
	"block scalar, short lines":           filled("x-a: |-\n", "  a\n", ""),
	"block scalar, folded":                filled("x-a: >\n", "  echo hello world this is a line of usual length\n\n", ""),
	"block scalar, folded, short lines":   filled("x-a: >-\n", "  a\n", ""),
	"block scalar, Unicode":               filled("x-a: |\n", "  äöü日本語\n", ""),
	"block scalar, CRLF":                  filled("x-a: |\r\n", "  echo hello world\r\n", ""),
	"block scalar, tabs":                  filled("x-a: |\n", "  a\tb\tc\n", ""),
	"block scalar with list of 10,000":    "run: |\n" + rep(shell, 1_500) + "x-a:\n" + rep("- a\n", 10_000),
	"block scalars":                       "tasks:\n" + numbered(100, "  - name: \"a%d\"\n    env: {A: b}\n    script: |\n"+rep("      echo \"it's, [a] {b} & c\" | d\n\n", 250)+"\n"),
	"text in double quotes":               filled(`run: ["sh", "-c", "`, "abc ", `"]`),
	"text in double quotes, escapes":      "x-a: \"" + rep(`it is\n\"a\"`, 80_000) + "\"\n",
	"text in double quotes, in lines":     "run: \"" + rep("the text goes on in the next line, as long as it is\\\n  ", 6_000) + "\"\n",
	"text in single quotes":               filled("x-a: '", "abcd ef ", "'\n"),
	"text without quotes":                 "x-a: " + rep("abcd ef ", 70_000) + "\n",
	"text without quotes, in lines":       "x-a: a\n" + rep("  word word word word word word word word\n", 8_000),
	"list in lines":                       "x-a:\n" + rep("  - argument-of-the-program.txt\n", 10_000),
	"list in brackets":                    "x-a: [" + rep("argument, ", 15_000) + "]",
	"objects in lines":                    "x-a:\n" + numbered(100, "  k%d:\n"+numbered(100, "    k%d: a\n")),
	"object in braces":                    "x-a: {" + numbered(5_000, "k%d: a, ") + "b: c}",
	"comments":                            "run: a\n" + rep("# a comment of a usual line\n", 12_000),
	"documents":                           rep("run: a\n---\n", 999),
	"nesting":                             "x-a: " + rep("[", 90) + "a" + rep("]", 90) + "\n",
	"anchors":                             "x-a:\n" + numbered(900, "  k%d: &a%[1]d [a, b, c, d]\n"),
	"aliases":                             "x-a: &a {A: b, C: d}\ntasks:\n" + numbered(500, "- name: a%d\n  run: a\n  env: {<<: *a}\n"),
	"tabs":                                "run: |\n" + rep("  "+rep("1.5\t", 50)+"\n", 4_000),
	"JSON: list":                          `{"x-a":["a"` + rep(`,"argument"`, 40_000) + "]}",
	"JSON: object":                        `{"x-a":{` + numbered(45_000, `"k%d":1,`) + `"a":1}}`,
	"JSON: text":                          filled(`{"x-a":"`, "abcd ef ", `"}`),
	"JSON: text with escapes":             filled(`{"x-a":"`, `\n`, `"}`),
	"JSON: text with Unicode escapes":     filled(`{"x-a":"`, `\u00e4`, `"}`),
	"JSON: input with 49,000 values":      `{"kind":"noop","input":{"a":[1` + rep(",1", 49_000) + "]}}",
	"JSON: input with 12,000 fields":      `{"kind":"noop","input":{` + numbered(45_000, `"k%d":1,`) + `"a":1}}`,
	"JSON: spaces":                        filled(`{"run":"a"`, "\n", "}"),
	"JSON: 1,000 tasks":                   `{"tasks":[` + numbered(999, `{"name":"a%d","run":"a","env":{"A":"b"},"needs":[],"outputs":["a","b"]},`) + `{"run":"b"}]}`,
	"script that is not quite a spec yet": "run: |\n" + rep(shell, 15_000),
}

// costly are files which cost the YAML parser, or what follows it, much more than their size. Some
// took hours.
var costly = map[string]string{
	"list in brackets":        filled("run: [", "a,", "a]"),
	"list in lines":           filled("run:\n", "- a\n", ""),
	"list as JSON":            filled(`{"run":[1`, ",1", "]}"),
	"texts as JSON":           filled(`{"run":["a"`, `,"a"`, "]}"),
	"commas":                  filled("run: [", ",", "]"),
	"double quotes":           filled("run: ", `"`, ""),
	"quoted texts":            filled("run: [", `"a" `, "]"),
	"single quotes":           filled("run: ", "'", ""),
	"single quotes, escaped":  filled("run: '", "''", "'"),
	"lines of quotes":         filled("run:\n", "- \"\n", ""),
	"aliases":                 filled("run: [&a a", ",*a", "]"),
	"unknown aliases":         filled("run: [", "*a,", "]"),
	"anchors":                 filled("run: ", "&", ""),
	"block scalars, empty":    filled("run:\n", "- |\n", ""),
	"block scalars, short":    filled("run:\n", "- |\n a\n", ""),
	"empty lines":             filled("run: |\n  a\n", "\n", ""),
	"tabs in quotes":          filled(`run: "`, "\t", `a"`),
	"comments":                filled("run: a\n", "#\n", ""),
	"one long comment":        filled("run: a\n#", "abcd ef ", "\n"),
	"spaces":                  filled("run: a", " ", "\n"),
	"directives":              filled("", "%\n", ""),
	"merge keys":              filled("run: a", "<", ""),
	"dashes in brackets":      "run: [" + rep("- ", 35_000) + "]",
	"list behind a quote":     filled("a: \"b\n  c: |\n    \"\nrun: [", "a,", "a]"),
	"a long text":             filled("run: ", "a", ""),
	"a long script":           filled("run: |\n", "  [ \"$a\" ] && b, c: {d} | e # f\n", ""),
	"escapes":                 filled(`run: "`, `\n`, `"`),
	"broken JSON":             filled(`{"run":["abcd efgh ijkl"`, `,"abcd efgh ijkl"`, "]"),
	"staircase":               staircase,
	"brackets at the limit":   "run: [" + rep("[],", 11_000) + "a]",
	"lines at the limit":      "run: [\n" + rep("a,\n", 18_500) + "a]",
	"list at the limit":       "run:\n" + rep("- a\n", 18_900),
	"list of list":            rep("- a\n", 18_900),
	"nesting at the limit":    "input: [" + rep(rep("[", 90)+"a"+rep("]", 90)+",", 180) + "]",
	"fields at the limit":     "x-a:\n" + numbered(13, "  k%d:\n"+numbered(700, "    k%d: a\n")),
	"text at the limit":       "run: " + rep("a b", 200_000) + "\n",
	"quotes at the limit":     `run: "\x41` + rep("a b", 200_000) + "\"\n",
	"block at the limit":      "run:\n  ? |\n" + rep("     hello world echo hello\n", 9_300) + "   hello\n",
	"folded at the limit":     "run:\n  ? >\n" + rep("     hello world echo hello\n", 9_300) + "   hello\n",
	"documents at the limit":  rep("tasks: [{run: a, env: {A: b}},{run: a},{run: a}]\n---\n", 999),
	"script and list":         "run: |\n" + rep("  echo hello, \"world\"\n", 25_000) + "x-a:\n" + rep("- a\n", 7_000),
	"digits":                  "run: " + rep("1", 400_000) + "\n",
	"more digits":             "run:\n" + rep("1\\n", 200_000),
	"control characters":      "run: |\n  " + rep("\x01", 340_000) + "\nx-a:\n" + rep("- a\n", 4_000),
	"angle brackets":          filled("run: |\n  ", "a<<&", "\n"),
	"aliases of objects":      "x-a: &a " + wide + "\nrun: a\ninput: {" + numbered(50, "k%d: *a, ") + "z: '${b}'}",
	"merged aliases":          "x-a: &a " + wide + "\nrun: a\ninput: {" + numbered(50, "k%d: {<<: *a}, ") + "z: 1}",
	"aliases of a text":       "x-a: &a |\n" + rep("  hello world\n", 30_000) + "run: a\ninput: [" + rep("*a, ", 9_000) + "a]",
	"aliases in documents":    rep("x-a: &a [a,a,a,a,a,a,a]\nx-b: &b [*a,*a,*a,*a,*a,*a,*a]\nx-c: &c [*b,*b,*b,*b,*b]\nrun: a\ninput: [*c,*c,*c]\n---\n", 400),
	"tags":                    "run:\n" + rep("!t null<<:  !t \n    ", 4_837),
	"anchors before names":    "run:\n" + rep("&a \\ntruetasks:\n", 8_303),
	"names with ?":            "run: |\n" + rep("? \\n|\n", 10_264),
	"fields without commas":   "run: [" + rep("\n    "+rep("a", 72)+"~run: a\n", 4_331),
	"ends of documents":       "input: {" + rep("---\n...\n[a, b]", 4_065),
	"long name":               "input: {? " + rep("k", 100_000) + ": [" + rep("a,", 17_000) + "a]}",
	"long name of a list":     "input:\n  " + rep("k", 2_000) + ":\n" + rep("    - a\n", 9_000),
	"JSON: tasks":             filled(`{"tasks":[{}`, ",{}", "]}"),
	"JSON: unknown fields":    `{"run":"a",` + numbered(49_000, `"k%d":1,`) + `"a":1}`,
	"JSON: env":               `{"run":"a","env":{` + numbered(49_000, `"K%d":"a",`) + `"a":"1"}}`,
	"JSON: inputs":            `{"run":"a","inputs":[{}` + rep(`,{}`, 49_000) + `]}`,
	"JSON: axes":              `{"run":"a","matrix":{` + numbered(20_000, `"k%d":["1"],`) + `"a":["1"]}}`,
	"JSON: axis":              `{"run":"a","matrix":{"a":["1"` + rep(`,"1"`, 49_000) + `]}}`,
	"JSON: brackets":          `{"run":"a","input":[` + rep(rep("[", 90)+rep("]", 90)+",", 500) + "1]}",
	"JSON: long name":         `{"run":"a","input":{"` + longName + `":[1` + rep(",1", 49_000) + "]}}",
	"JSON: long name of refs": `{"run":"a","input":{"` + longName + `":["${"` + rep(`,"${a}"`, 49_000) + "]}}",
	"JSON: long axis":         `{"run":"a","matrix":{"` + longName + `":["1"` + rep(`,"1"`, 49_000) + "]}}",
	"JSON: name of dots":      `{"tasks":[{"name":"aa","run":"a","input":{"` + rep(".", 400_000) + `":["${"` + rep(`,"${aa.result}"`, 29_000) + "]}}]}",
	"JSON: long names":        `{"run":"a","input":` + rep(`{"`+rep("k", 5_000)+`":`, 90) + `[1` + rep(",1", 49_000) + "]" + rep("}", 91),
	"JSON: references":        `{"run":"a","input":{"a":["${"` + rep(`,"${a.result.x}"`, 45_000) + "]}}",
	"JSON: references in run": `{"run":"` + rep(`${a.result.x}`, 80_000) + `"}`,
	"JSON: angle brackets":    filled(`{"run":"`, "<", `"}`),
	"JSON: quotes":            filled(`{"run":"`, `\"`, `"}`),
}
