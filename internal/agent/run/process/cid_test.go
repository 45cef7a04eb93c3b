package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
)

// fakeTransfer takes uploads.
type fakeTransfer struct{ Transfer }

func (fakeTransfer) UploadFile(context.Context, *os.File) (string, int64, error) {
	return "sha", 1, nil
}

// The places in a result that ask for an artifact's CID get it, computed over the bytes that are taken, and nothing else changes.
func TestResultsGetContentIdentifiers(t *testing.T) {
	const hello, sub = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN", "QmbFMke1KXqnYyBBWxB74N4c5SBnJMVAiMNRcGu6x1AwQH"
	for _, c := range []struct{ name, result, want, wrong string }{
		{name: "one", result: `{"modelUrl": "ipfs://{model.pt}"}`, want: `{"modelUrl": "ipfs://` + hello + `"}`},
		{name: "all else stays as it is", result: ` {"z":1.0,"a":[ "ipfs://{model.pt}","ipfs:\/\/{sub\/empty}" ],"é":"\u00e9 {}", "ipfs://{model.pt}" : 12345678901234567890}`,
			want: ` {"z":1.0,"a":[ "ipfs://` + hello + `","ipfs://` + sub + `" ],"é":"\u00e9 {}", "ipfs://{model.pt}" : 12345678901234567890}`},
		{name: "texts that only look so", result: `["ipfs://Qm", "ipfs://{model.pt", "see ipfs://{model.pt}", "\"ipfs://{model.pt}\""]`, want: `["ipfs://Qm", "ipfs://{model.pt", "see ipfs://{model.pt}", "\"ipfs://{model.pt}\""]`},
		{name: "a text alone", result: `"ipfs://{model.pt}"`, want: `"ipfs://` + hello + `"`},
		{name: "no such artifact", result: `{"a": "ipfs://{other.pt}"}`, wrong: "there is no artifact other.pt"},
		{name: "grown too large", result: "[" + strings.Repeat(`"ipfs://{model.pt}",`, 8000) + "1]", wrong: "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &Attempt{base: t.TempDir(), Task: &run.Task{Spec: &muster.TaskSpec{}}, executor: &Executor{deps: &Deps{Transfer: fakeTransfer{}}}}
			a.Dir = filepath.Join(a.base, "work")
			mkdir(t, a.Dir)
			mkdir(t, a.outDir())
			mkdir(t, filepath.Join(a.outDir(), "sub"))
			write(t, filepath.Join(a.outDir(), "model.pt"), "hello\n")
			write(t, filepath.Join(a.outDir(), "sub", "empty"), "")
			write(t, filepath.Join(a.outDir(), "result.json"), c.result)
			err := a.collectOutputs(t.Context())
			if c.wrong != "" {
				f, ok := errors.AsType[*run.TaskError](err)
				if !ok || f.Reason != muster.ResultInvalid || !strings.Contains(f.Message, c.wrong) {
					t.Errorf("it ends with %v", err)
				}
				return
			}
			if err != nil || string(a.result) != c.want {
				t.Errorf("%s, %v\nwant %s", a.result, err, c.want)
			}
			for _, f := range a.artifacts {
				if f.Name == "model.pt" && strings.Contains(c.want, hello) != (f.CID == hello) {
					t.Errorf("the artifact is %+v", f)
				}
			}
		})
	}
}

func FuzzReplaceTexts(f *testing.F) {
	f.Add(`{"a": ["b", "\"", {"c\\": "d"}], "e" : 1}`)
	f.Fuzz(func(t *testing.T, raw string) {
		if !json.Valid([]byte(raw)) {
			return
		}
		same, err := replaceStrings([]byte(raw), func(s string) (string, error) { return s, nil })
		if err != nil || string(same) != raw {
			t.Errorf("%q becomes %q, %v", raw, same, err)
		}
		other, err := replaceStrings([]byte(raw), func(s string) (string, error) { return s + "\"\\", nil })
		if err != nil || !json.Valid(other) {
			t.Errorf("%q becomes %q, %v", raw, other, err)
		}
	})
}
