package do

import (
	"fmt"
	"strings"
	"testing"
)

// The dialects are recorded output of the programs named, shortened.
func TestJUnit(t *testing.T) {
	for _, c := range []struct{ name, text, want, wrong string }{
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
		{name: "suites in suites", text: `<testsuite name="a"><testsuite name="b"><testcase name="x"/></testsuite><testcase name="y"/></testsuite>`, want: "b.x passed, a.y passed"},
		{name: "Latin 1", text: "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><testsuite><testcase name=\"caf\xe9\"/></testsuite>", want: "café passed"},
		{name: "another encoding", text: `<?xml version="1.0" encoding="UTF-16"?><testsuite/>`, wrong: "encoding"},
		{name: "broken off in a case", text: `<testsuite name="s"><testcase name="a"/><testcase name="b"><failure>x`, want: "s.a passed, s.b error", wrong: "breaks off"},
		{name: "broken off between cases", text: `<testsuite name="s"><testcase name="a"/>`, want: "s.a passed", wrong: "unexpected EOF"},
		{name: "nothing", text: ``, wrong: "no JUnit file"},
		{name: "a page", text: `<html><body/></html>`, wrong: "begins with <html>"},
		{name: "deep", text: strings.Repeat("<testsuite>", maxDepth+1), wrong: "too deep"},
		{name: "entities", text: `<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite><testcase name="&a;"/></testsuite>`, want: "&a; passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cases, err := readJUnit(strings.NewReader(c.text))
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

func FuzzJUnit(f *testing.F) {
	f.Add(`<testsuite><testcase name="a" time="1"><failure message="m">x</failure></testcase></testsuite>`)
	f.Fuzz(func(t *testing.T, text string) {
		cases, _ := readJUnit(strings.NewReader(text)) // an error may come after cases
		for _, c := range cases {
			if c.Outcome == "" || !(c.Duration >= 0) || len(c.Message) > maxMessage || len(c.Name) > 1000 {
				t.Errorf("%q: %+v", text, c)
			}
		}
	})
}
