package spec_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/spec"
)

// The documentation of the fields is complete.

func specPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "job-spec.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// fields lists the paths of all fields below a type, without indexes.
func fields(t reflect.Type, prefix string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	switch reflect.New(t).Interface().(type) {
	case *muster.Script, *muster.Checkpoint, *muster.Gang, *muster.Mount, *muster.Secret, *muster.SweepParameter: // a short form, and fields
	case json.Unmarshaler:
		return nil
	}
	var all []string
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "tasks" {
			all = append(all, name)
			all = append(all, fields(field.Type, "")...)
			continue
		}
		all = append(all, prefix+name)
		all = append(all, fields(field.Type, prefix+name+".")...)
	}
	return all
}

func TestThePageHasEveryField(t *testing.T) {
	want := fields(reflect.TypeFor[muster.Spec](), "")
	var got []string
	_, body, _ := strings.Cut(specPage(t), "## The job")
	body, _, _ = strings.Cut(body, "## Arrays")
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\|").FindAllStringSubmatch(body, -1) {
		got = append(got, m[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	for _, f := range want {
		if !slices.Contains(got, f) {
			t.Errorf("docs/job-spec.md has no row for %s", f)
		}
	}
	for _, f := range got {
		if !slices.Contains(want, f) {
			t.Errorf("docs/job-spec.md has a row for %s, which does not exist", f)
		}
	}
}

func TestThePageHasEveryWord(t *testing.T) {
	words := slices.Concat(muster.TaskSignals, muster.Vendors, muster.NotifyOn, muster.NotifyPresets, muster.Capabilities, []string{muster.KindNoop, muster.KindProcess, muster.KindScript, muster.KindContainer,
		muster.IsolationContainer, muster.IsolationProcess, muster.IsolationAuto, muster.PullMissing, muster.PullAlways, muster.PullNever, muster.NetworkBridge, muster.NetworkAllowlist,
		muster.DisconnectFail, muster.DisconnectRequeue,
		muster.GangRestart, muster.GangEnd, muster.NetworkHost, muster.NetworkNone, muster.LauncherTorchrun})
	for _, r := range muster.Reasons {
		words = append(words, string(r))
	}
	text := specPage(t)
	for _, w := range words {
		if !strings.Contains(text, "`"+w+"`") {
			t.Errorf("docs/job-spec.md does not document %s", w)
		}
	}
}

func TestTheExamplesOfThePageAreValid(t *testing.T) {
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(specPage(t), -1)
	if len(found) < 4 {
		t.Errorf("only %d examples", len(found))
	}
	for _, m := range found {
		if _, err := spec.Parse([]byte(m[1]), "example"); err != nil {
			t.Errorf("%s\n%s", m[1], spec.Format(err, m[1]))
		}
	}
}
