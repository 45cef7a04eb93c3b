package process

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/run"
	"github.com/muster-dev/muster/internal/cid"
)

// address puts the content identifiers of artifacts into the result: a text ipfs://{NAME} becomes ipfs://Qm…, of the bytes that the
// artifact NAME has. Those artifacts have their CID from then on. All else in the result stays as it was written.
func (a *Attempt) address(ctx context.Context, files []found) error {
	if !bytes.Contains(a.result, []byte("{")) || !bytes.Contains(a.result, []byte("ipfs:")) {
		return nil // as most are; a slash may be written in several ways
	}
	addressed, err := replaceTexts(a.result, func(text string) (string, error) {
		name, ok := wanted(text)
		if !ok {
			return text, nil
		}
		i := slices.IndexFunc(a.artifacts, func(f muster.Artifact) bool { return f.Name == name })
		if i < 0 {
			return "", run.Failf(muster.ResultInvalid, "%s refers to %s, and there is no artifact %s: leave that file in $MUSTER_OUT", resultName, text, name)
		}
		f := &a.artifacts[i]
		if f.CID == "" {
			at := slices.IndexFunc(files, func(f found) bool { return f.name == name })
			id, err := a.identify(ctx, files[at])
			if err != nil {
				return "", run.Failf(muster.WorkerInternal, "the content identifier of %s cannot be computed: %w", name, err)
			}
			f.CID = id
		}
		return cid.Scheme + f.CID, nil
	})
	if err == nil && len(addressed) > muster.MaxResultSize {
		err = run.Failf(muster.ResultInvalid, "%s is larger than %s with the content identifiers that it asks for", resultName, muster.Size(muster.MaxResultSize))
	}
	if err != nil {
		return err
	}
	a.result = addressed
	return nil
}

// wanted returns the name of the artifact whose identifier is to stand in the place of a text.
func wanted(text string) (string, bool) {
	name, ok := strings.CutPrefix(text, cid.Scheme+"{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}

func (a *Attempt) identify(ctx context.Context, f found) (string, error) {
	root, err := a.folder(f.dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	file, err := run.OpenIn(root, filepath.FromSlash(f.name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	return cid.Of(&until{file, ctx.Err})
}

// until is a file that is read only as long as nobody minds.
type until struct {
	file *os.File
	over func() error
}

// Read implements io.Reader.
func (u *until) Read(b []byte) (int, error) {
	if err := u.over(); err != nil {
		return 0, err
	}
	return u.file.Read(b)
}

// replaceTexts returns valid JSON with what f makes of each text in it that is a value, and no name of a field.
func replaceTexts(raw []byte, f func(string) (string, error)) ([]byte, error) {
	var out []byte
	for i := 0; i < len(raw); {
		if raw[i] != '"' {
			out = append(out, raw[i])
			i++
			continue
		}
		end := i + 1
		for raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end++
		text := raw[i:end]
		if rest := bytes.TrimLeft(raw[end:], " \t\r\n"); len(rest) == 0 || rest[0] != ':' {
			var before string
			if err := json.Unmarshal(text, &before); err != nil {
				return nil, err
			}
			after, err := f(before)
			if err != nil {
				return nil, err
			}
			if after != before {
				if text, err = json.Marshal(after); err != nil {
					return nil, err
				}
			}
		}
		out = append(out, text...)
		i = end
	}
	return out, nil
}
