package spec_test

import (
	"fmt"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// fillFile repeats a text up to the maximum size of a file.
func fillFile(begin, repeat, end string) string {
	return begin + strings.Repeat(repeat, (spec.MaxFile-len(begin)-len(end))/len(repeat)) + end
}

// repeatNumbered repeats a format with the numbers from 0.
func repeatNumbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

var (
	rep      = strings.Repeat
	longName = rep("k", 400_000)
	wide     = "{" + repeatNumbered(800, "k%d: a, ") + "b: 1}"
	shell    = "  if [ \"$a\" = 'b' ]; then echo \"it's, [a] {b} c\" | d; fi # x\n"
	// staircase has block scalars that are irregular only at their end.
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

// longFiles are long files of legitimate uses. All of them must be accepted.
var longFiles = map[string]string{
	"block scalar":                        fillFile("x-a: |\n", shell, ""),
	"block scalar of 500 kB":              "name: don't\nscript: |\n" + rep(shell, 7_400),
	"block scalar, one line":              fillFile("x-a: |\n  ", "abcd ef ", "\n"),
	"block scalar, short lines":           fillFile("x-a: |-\n", "  a\n", ""),
	"block scalar, folded":                fillFile("x-a: >\n", "  echo hello world this is a line of usual length\n\n", ""),
	"block scalar, folded, short lines":   fillFile("x-a: >-\n", "  a\n", ""),
	"block scalar, Unicode":               fillFile("x-a: |\n", "  äöü日本語\n", ""),
	"block scalar, CRLF":                  fillFile("x-a: |\r\n", "  echo hello world\r\n", ""),
	"block scalar, tabs":                  fillFile("x-a: |\n", "  a\tb\tc\n", ""),
	"block scalars in documents":          "---\nscript: | # one\n" + rep(shell, 6_000) + "---\n# two\ntasks:\n- name: a\n  script: &a |-\n" + rep("  "+shell, 6_000) + "  env: {A: b}\n",
	"block scalars, CRLF":                 "x-a: |\r\n" + rep(strings.ReplaceAll(shell, "\n", "\r\n"), 6_000) + "script: |\r\n" + rep(strings.ReplaceAll(shell, "\n", "\r\n"), 6_000),
	"block scalars in lists":              "tasks:\n- name: a\n  run:\n  - sh\n  - -c\n  - |\n" + rep("  "+shell, 1_500) + "x-a:\n- - |+\n" + rep("  "+shell, 6_000) + "\n\n  - b\n",
	"block scalar with list of 10,000":    "run: |\n" + rep(shell, 1_500) + "x-a:\n" + rep("- a\n", 10_000),
	"block scalars":                       "tasks:\n" + repeatNumbered(100, "  - name: \"a%d\"\n    env: {A: b}\n    script: |\n"+rep("      echo \"it's, [a] {b} & c\" | d\n\n", 250)+"\n"),
	"text in double quotes":               fillFile(`run: ["sh", "-c", "`, "abc ", `"]`),
	"text in double quotes, escapes":      "x-a: \"" + rep(`it is\n\"a\"`, 80_000) + "\"\n",
	"text in double quotes, in lines":     "run: \"" + rep("the text continues in the next line, as long as it is\\\n  ", 6_000) + "\"\n",
	"text in single quotes":               fillFile("x-a: '", "abcd ef ", "'\n"),
	"text without quotes":                 "x-a: " + rep("abcd ef ", 70_000) + "\n",
	"text without quotes, in lines":       "x-a: a\n" + rep("  word word word word word word word word\n", 8_000),
	"list in lines":                       "x-a:\n" + rep("  - argument-of-the-program.txt\n", 10_000),
	"list in brackets":                    "x-a: [" + rep("argument, ", 15_000) + "]",
	"objects in lines":                    "x-a:\n" + repeatNumbered(100, "  k%d:\n"+repeatNumbered(100, "    k%d: a\n")),
	"object in braces":                    "x-a: {" + repeatNumbered(5_000, "k%d: a, ") + "b: c}",
	"comments":                            "run: a\n" + rep("# a comment of a usual line\n", 12_000),
	"documents":                           rep("run: a\n---\n", 999),
	"nesting":                             "x-a: " + rep("[", 90) + "a" + rep("]", 90) + "\n",
	"anchors":                             "x-a:\n" + repeatNumbered(900, "  k%d: &a%[1]d [a, b, c, d]\n"),
	"aliases":                             "x-a: &a {A: b, C: d}\ntasks:\n" + repeatNumbered(500, "- name: a%d\n  run: a\n  env: {<<: *a}\n"),
	"tabs":                                "run: |\n" + rep("  "+rep("1.5\t", 50)+"\n", 4_000),
	"JSON: list":                          `{"x-a":["a"` + rep(`,"argument"`, 40_000) + "]}",
	"JSON: object":                        `{"x-a":{` + repeatNumbered(45_000, `"k%d":1,`) + `"a":1}}`,
	"JSON: text":                          fillFile(`{"x-a":"`, "abcd ef ", `"}`),
	"JSON: text with escapes":             fillFile(`{"x-a":"`, `\n`, `"}`),
	"JSON: text with Unicode escapes":     fillFile(`{"x-a":"`, `\u00e4`, `"}`),
	"JSON: input with 49,000 values":      `{"kind":"noop","input":{"a":[1` + rep(",1", 49_000) + "]}}",
	"JSON: input with 12,000 fields":      `{"kind":"noop","input":{` + repeatNumbered(45_000, `"k%d":1,`) + `"a":1}}`,
	"JSON: spaces":                        fillFile(`{"run":"a"`, "\n", "}"),
	"JSON: 1,000 tasks":                   `{"tasks":[` + repeatNumbered(999, `{"name":"a%d","run":"a","env":{"A":"b"},"needs":[],"outputs":["a","b"]},`) + `{"run":"b"}]}`,
	"script that is not quite a spec yet": "run: |\n" + rep(shell, 15_000),
}

// costlyFiles are files that are much more expensive for the YAML parser, or later steps, than their size. Some
// took hours.
var costlyFiles = map[string]string{
	"JSON: stages":                 stagesJSON(muster.MaxStages),
	"JSON: stages without a name":  stagesLike(`{"kind":"noop","x-%d":0}`),
	"JSON: empty stages":           stagesLike(`{"where":{},"python":{},"x-%d":{}}`),
	"JSON: stages with problems":   stagesLike(`{"name":"","needs":["","%d"],"x":1}`),
	"JSON: stages with resources":  stagesLike(`{"kind":"noop","resources":{"cpus":%d,"gpus":{"vram":-1}},"gang":{"size":-1}}`),
	"JSON: stages with references": stagesLike(`{"name":"s%[1]d","run":["${s%[1]d.result}","${s1.result}","${a.result.b}"]}`),
	"JSON: stages with inputs":     stagesLike(`{"name":"s%[1]d","needs":"s0","run":"a","inputs":[{"from":"s0","name":"x"},{"from":"s9"}]}`),
	"JSON: stages with conditions": stagesLike(`{"name":"s%[1]d","kind":"noop","needs":"s0","when":"${s0.exit_code} == %[1]d"}`),
	"JSON: stages with objects":    stagesLike(`{"script":{"text":"%d"},"container":{},"checkpoint":{},"retries":{}}`),
	"list in brackets":             fillFile("run: [", "a,", "a]"),
	"list in lines":                fillFile("run:\n", "- a\n", ""),
	"list as JSON":                 fillFile(`{"run":[1`, ",1", "]}"),
	"texts as JSON":                fillFile(`{"run":["a"`, `,"a"`, "]}"),
	"commas":                       fillFile("run: [", ",", "]"),
	"double quotes":                fillFile("run: ", `"`, ""),
	"quoted texts":                 fillFile("run: [", `"a" `, "]"),
	"single quotes":                fillFile("run: ", "'", ""),
	"single quotes, escaped":       fillFile("run: '", "''", "'"),
	"lines of quotes":              fillFile("run:\n", "- \"\n", ""),
	"aliases":                      fillFile("run: [&a a", ",*a", "]"),
	"unknown aliases":              fillFile("run: [", "*a,", "]"),
	"anchors":                      fillFile("run: ", "&", ""),
	"block scalars, empty":         fillFile("run:\n", "- |\n", ""),
	"block scalars, short":         fillFile("run:\n", "- |\n a\n", ""),
	"empty lines":                  fillFile("run: |\n  a\n", "\n", ""),
	"tabs in quotes":               fillFile(`run: "`, "\t", `a"`),
	"comments":                     fillFile("run: a\n", "#\n", ""),
	"one long comment":             fillFile("run: a\n#", "abcd ef ", "\n"),
	"spaces":                       fillFile("run: a", " ", "\n"),
	"directives":                   fillFile("", "%\n", ""),
	"merge keys":                   fillFile("run: a", "<", ""),
	"dashes in brackets":           "run: [" + rep("- ", 35_000) + "]",
	"list in braces":               fillFile("{run: [", "a,", "a]}"),
	"object in braces":             fillFile("{env: {", "a:,", "a: b}}"),
	"quotes in braces":             fillFile("{run: [", `"a""a"`, "a]}"),
	"braces at the limit":          "{x-a: {" + rep("a:,", 5_800) + "b: '" + rep("c ", 500_000) + "'}, run: a}",
	"entries at the limit":         "{x-a: [" + rep("a,", 11_600) + "'" + rep("c ", 500_000) + "'], run: a}",
	"short entries":                "{x-a: [" + rep("a,", 21_500) + "a], run: a}",
	"entries after a block":        "x-b: |\n" + rep("  c:\n", 200_000) + "x-a: [[" + rep("a,", 5_800) + "a]]\n",
	"quotes in brackets":           "{x-a: [" + rep(`""`, 5_800) + "'" + rep("c ", 500_000) + "'], run: a}",
	"no block in quotes":           fillFile("{x-a: \"\n a: |\n  \", run: [", "a,\n  ", "a]}"),
	"no block in a comment":        fillFile("x-a: {b: |\n  c, run: [", "a,\n  ", "a]}"),
	"no block behind a quote":      fillFile("x-a: |\n  b\nx-b: 'c\n a: |\n  '\n  [", "a,\n  ", "a]"),
	"list behind a quote":          fillFile("a: \"b\n  c: |\n    \"\nrun: [", "a,", "a]"),
	"a long text":                  fillFile("run: ", "a", ""),
	"a long script":                fillFile("run: |\n", "  [ \"$a\" ] && b, c: {d} | e # f\n", ""),
	"escapes":                      fillFile(`run: "`, `\n`, `"`),
	"broken JSON":                  fillFile(`{"run":["abcd efgh ijkl"`, `,"abcd efgh ijkl"`, "]"),
	"staircase":                    staircase,
	"comments behind levels":       rep("- ", 1500) + "a\n" + rep("#\n #\n", 30_000) + "b: 1\n",
	"comments at two columns":      "a:\n     b: x\n" + rep("#\n #\n", 200_000) + "c: 1\n",
	"keys of brackets":             "run: " + rep("[", 4000) + "a" + rep("]:b", 3999) + "]",
	"spaces before a block":        "a: |\n          \n [" + rep(",", 300_000) + "]\n",
	"keys between NELs":            rep("a:\u0085", 250_000),
	"dashes between NELs":          rep("-\u0085", 340_000),
	"quotes between NELs":          "[" + rep("\"a\"\u0085", 180_000) + "]",
	"dashes between CRs":           rep("-\r", 500_000),
	"tag directives":               rep("%TAG !x! b\n", 15_000) + "---\nrun: a\n",
	"numbered directives":          repeatNumbered(20_000, "%%TAG !x%d! b\n") + "---\nrun: a\n",
	"brackets at the limit":        "run: [" + rep("[],", 11_000) + "a]",
	"lines at the limit":           "run: [\n" + rep("a,\n", 18_500) + "a]",
	"list at the limit":            "run:\n" + rep("- a\n", 18_900),
	"list of list":                 rep("- a\n", 18_900),
	"nesting at the limit":         "input: [" + rep(rep("[", 90)+"a"+rep("]", 90)+",", 180) + "]",
	"fields at the limit":          "x-a:\n" + repeatNumbered(13, "  k%d:\n"+repeatNumbered(700, "    k%d: a\n")),
	"text at the limit":            "run: " + rep("a b", 200_000) + "\n",
	"quotes at the limit":          `run: "\x41` + rep("a b", 200_000) + "\"\n",
	"block at the limit":           "run:\n  ? |\n" + rep("     hello world echo hello\n", 9_300) + "   hello\n",
	"folded at the limit":          "run:\n  ? >\n" + rep("     hello world echo hello\n", 9_300) + "   hello\n",
	"documents at the limit":       rep("tasks: [{run: a, env: {A: b}},{run: a},{run: a}]\n---\n", 999),
	"script and list":              "run: |\n" + rep("  echo hello, \"world\"\n", 25_000) + "x-a:\n" + rep("- a\n", 7_000),
	"digits":                       "run: " + rep("1", 400_000) + "\n",
	"more digits":                  "run:\n" + rep("1\\n", 200_000),
	"control characters":           "run: |\n  " + rep("\x01", 340_000) + "\nx-a:\n" + rep("- a\n", 4_000),
	"angle brackets":               fillFile("run: |\n  ", "a<<&", "\n"),
	"aliases of objects":           "x-a: &a " + wide + "\nrun: a\ninput: {" + repeatNumbered(50, "k%d: *a, ") + "z: '${b}'}",
	"merged aliases":               "x-a: &a " + wide + "\nrun: a\ninput: {" + repeatNumbered(50, "k%d: {<<: *a}, ") + "z: 1}",
	"aliases of a text":            "x-a: &a |\n" + rep("  hello world\n", 30_000) + "run: a\ninput: [" + rep("*a, ", 9_000) + "a]",
	"aliases in documents":         rep("x-a: &a [a,a,a,a,a,a,a]\nx-b: &b [*a,*a,*a,*a,*a,*a,*a]\nx-c: &c [*b,*b,*b,*b,*b]\nrun: a\ninput: [*c,*c,*c]\n---\n", 400),
	"tags":                         "run:\n" + rep("!t null<<:  !t \n    ", 4_837),
	"anchors before names":         "run:\n" + rep("&a \\ntruetasks:\n", 8_303),
	"names with ?":                 "run: |\n" + rep("? \\n|\n", 10_264),
	"fields without commas":        "run: [" + rep("\n    "+rep("a", 72)+"~run: a\n", 4_331),
	"ends of documents":            "input: {" + rep("---\n...\n[a, b]", 4_065),
	"long name":                    "input: {? " + rep("k", 100_000) + ": [" + rep("a,", 17_000) + "a]}",
	"long name of a list":          "input:\n  " + rep("k", 2_000) + ":\n" + rep("    - a\n", 9_000),
	"JSON: tasks":                  fillFile(`{"tasks":[{}`, ",{}", "]}"),
	"JSON: unknown fields":         `{"run":"a",` + repeatNumbered(49_000, `"k%d":1,`) + `"a":1}`,
	"JSON: env":                    `{"run":"a","env":{` + repeatNumbered(49_000, `"K%d":"a",`) + `"a":"1"}}`,
	"JSON: inputs":                 `{"run":"a","inputs":[{}` + rep(`,{}`, 49_000) + `]}`,
	"JSON: axes":                   `{"run":"a","matrix":{` + repeatNumbered(20_000, `"k%d":["1"],`) + `"a":["1"]}}`,
	"JSON: axis":                   `{"run":"a","matrix":{"a":["1"` + rep(`,"1"`, 49_000) + `]}}`,
	"JSON: brackets":               `{"run":"a","input":[` + rep(rep("[", 90)+rep("]", 90)+",", 500) + "1]}",
	"JSON: long name":              `{"run":"a","input":{"` + longName + `":[1` + rep(",1", 49_000) + "]}}",
	"JSON: long name of refs":      `{"run":"a","input":{"` + longName + `":["${"` + rep(`,"${a}"`, 49_000) + "]}}",
	"JSON: long axis":              `{"run":"a","matrix":{"` + longName + `":["1"` + rep(`,"1"`, 49_000) + "]}}",
	"JSON: name of dots":           `{"tasks":[{"name":"aa","run":"a","input":{"` + rep(".", 400_000) + `":["${"` + rep(`,"${aa.result}"`, 29_000) + "]}}]}",
	"JSON: long names":             `{"run":"a","input":` + rep(`{"`+rep("k", 5_000)+`":`, 90) + `[1` + rep(",1", 49_000) + "]" + rep("}", 91),
	"JSON: references":             `{"run":"a","input":{"a":["${"` + rep(`,"${a.result.x}"`, 45_000) + "]}}",
	"JSON: references in run":      `{"run":"` + rep(`${a.result.x}`, 80_000) + `"}`,
	"JSON: angle brackets":         fillFile(`{"run":"`, "<", `"}`),
	"JSON: quotes":                 fillFile(`{"run":"`, `\"`, `"}`),
}
