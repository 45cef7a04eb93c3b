package builtin

import (
	"fmt"
	"strings"
	"testing"
)

// The dialects are recorded output of the programs named, shortened.
func TestJUnit(t *testing.T) {
	for _, c := range []struct {
		name, text, want, wrong string
		missing                 int
	}{
		{name: "pytest", text: `<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest" errors="1" failures="1" skipped="1" tests="4" time="0.1" timestamp="2026-01-01" hostname="h">` +
			`<testcase classname="test_a" name="test_one" time="0.001" /><testcase classname="test_a" name="test_two[x]" time="0.002"><failure message="assert 1 == 2">def test_two():&#10;&gt; assert</failure></testcase>` +
			`<testcase classname="test_a" name="test_three" time="0.000"><skipped type="pytest.skip" message="not now">t.py:5: not now</skipped></testcase>` +
			`<testcase classname="test_a" name="test_err" time="0.0"><error message="failed on setup">E</error></testcase></testsuite></testsuites>`,
			want: "test_a.test_one passed, test_a.test_two[x] failed, test_a.test_three skipped, test_a.test_err error"},
		{name: "gotestsum", text: `<testsuites tests="2" failures="1"><testsuite tests="2" failures="1" time="0.01" name="m/p"><properties><property name="go.version" value="go1"></property></properties>` +
			`<testcase classname="m/p" name="TestA" time="0.00"></testcase><testcase classname="m/p" name="TestB/sub" time="0.00"><failure message="Failed" type="">=== RUN</failure></testcase></testsuite></testsuites>`,
			want: "m/p.TestA passed, m/p.TestB/sub failed"},
		{name: "jest", text: `<testsuites name="jest tests" tests="1" failures="0" time="1.2"><testsuite name="sum" file="src/sum.test.js"><testcase classname="sum adds" name="sum adds" time="0.004"></testcase></testsuite></testsuites>`,
			want: "sum adds.sum adds passed"},
		{name: "surefire", text: `<testsuite xmlns:xsi="x" name="com.A" time="1,234.5" tests="2"><testcase name="flaky" classname="com.A" time="1,000.5"><flakyFailure message="m" type="t"><stackTrace><![CDATA[at]]></stackTrace></flakyFailure></testcase>` +
			`<testcase name="bad" classname="com.A" time="0"><failure message="m">x</failure><rerunFailure message="m"><stackTrace>y</stackTrace></rerunFailure><system-out>text</system-out></testcase></testsuite>`,
			want: "com.A.flaky passed flaky 2, com.A.bad failed 2"},
		{name: "GoogleTest", text: `<testsuites><testsuite name="S"><testcase name="A" status="run" time="0" classname="S"/><testcase name="B" status="notrun" time="0" classname="S"/></testsuite></testsuites>`,
			want: "S.A passed, S.B skipped"},
		{name: "go-junit-report", text: `<testsuites tests="2" failures="1" errors="1"><testsuite name="m/broken" tests="1" failures="0" errors="1"><testcase name="[build failed]" classname="m/broken" time="0"><error message="Build error">x.go:3: undefined</error></testcase></testsuite>` +
			`<testsuite name="m/p" tests="1" failures="1" errors="0"><testcase name="TestA" classname="m/p" time="0.010"><failure message="Failed">a_test.go:5</failure></testcase></testsuite></testsuites>`,
			want: "m/broken.[build failed] error, m/p.TestA failed"},
		{name: "ctest", text: `<testsuite name="Linux-c++" tests="4" failures="1" disabled="1" skipped="1" hostname="" time="1" timestamp="2026-01-01"><testcase name="a" classname="a" time="0.5" status="run"><properties/><system-out>x</system-out></testcase>` +
			`<testcase name="b" classname="b" time="0.5" status="fail"><failure message=""/><system-out>boom</system-out></testcase><testcase name="c" classname="c" time="0" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>` +
			`<testcase name="d" classname="d" time="0" status="disabled"><disabled message="Disabled"/></testcase></testsuite>`,
			want: "a.a passed, b.b failed, c.c skipped, d.d skipped"},
		{name: "a suite that failed itself", text: `<testsuites><testsuite name="lib" tests="0" errors="1"><error message="cannot be compiled">line 3</error></testsuite></testsuites>`, want: "lib error"},
		{name: "counted and missing", text: `<testsuites tests="6"><testsuite name="a" tests="5"><testcase name="x"/><testsuite name="b" tests="2"><testcase name="y"/></testsuite></testsuite><testsuite name="c"><testcase name="z"/></testsuite></testsuites>`,
			want: "a.x passed, b.y passed, c.z passed", missing: 3},
		{name: "suites in suites", text: `<testsuite name="a"><testsuite name="b"><testcase name="x"/></testsuite><testcase name="y"/></testsuite>`, want: "b.x passed, a.y passed"},
		{name: "Latin 1", text: "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><testsuite><testcase name=\"caf\xe9\"/></testsuite>", want: "café passed"},
		{name: "another encoding", text: `<?xml version="1.0" encoding="UTF-16"?><testsuite/>`, wrong: "encoding"},
		{name: "broken off in a case", text: `<testsuite name="s"><testcase name="a"/><testcase name="b"><failure>x`, want: "s.a passed, s.b error", wrong: "is truncated"},
		{name: "broken off between cases", text: `<testsuite name="s"><testcase name="a"/>`, want: "s.a passed", wrong: "unexpected EOF"},
		{name: "nothing", text: ``, wrong: "not a JUnit file"},
		{name: "a page", text: `<html><body/></html>`, wrong: "begins with <html>"},
		{name: "deep", text: strings.Repeat("<testsuite>", maxDepth+1), wrong: "too deep"},
		{name: "entities", text: `<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite><testcase name="&a;"/></testsuite>`, want: "&a; passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cases, missing, err := readJUnit(strings.NewReader(c.text))
			if missing != c.missing {
				t.Errorf("%d cases are missing", missing)
			}
			var got []string
			for _, k := range cases {
				text := k.ID + " " + k.Outcome
				if k.Flaky {
					text += " flaky"
				}
				if k.Tries > 0 {
					text += fmt.Sprint(" ", k.Tries)
				}
				got = append(got, text)
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("the cases are %s", s)
			}
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestSuiteFailuresAreCounted(t *testing.T) {
	cases, _, err := readJUnit(strings.NewReader("<testsuite>" + strings.Repeat("<failure/>", maxCases+1) + "</testsuite>"))
	if err == nil || !strings.Contains(err.Error(), "more than") || len(cases) != maxCases {
		t.Errorf("it has %d cases, and the error is %v", len(cases), err)
	}
}

func FuzzJUnit(f *testing.F) {
	f.Add(`<testsuite><testcase name="a" time="1"><failure message="m">x</failure></testcase></testsuite>`)
	f.Fuzz(func(t *testing.T, text string) {
		cases, missing, _ := readJUnit(strings.NewReader(text)) // an error may come after cases
		if missing < 0 {
			t.Errorf("%q: %d are missing", text, missing)
		}
		for _, c := range cases {
			if c.Outcome == "" || !(c.Duration >= 0) || len(c.Message) > maxMessage || len(c.Name) > 1000 {
				t.Errorf("%q: %+v", text, c)
			}
		}
	})
}
