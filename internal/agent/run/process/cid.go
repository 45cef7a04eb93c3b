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

// resolveCIDs replaces each string ipfs://{NAME} of the result by ipfs://Qm…, the content identifier of the artifact NAME, and
// sets the CID of that artifact. Other bytes of the result do not change.
func (a *Attempt) resolveCIDs(ctx context.Context, files []outputFile) error {
	if !bytes.Contains(a.result, []byte("{")) || !bytes.Contains(a.result, []byte("ipfs:")) {
		return nil // fast path. JSON may escape a slash, so the search text has none
	}
	result, err := replaceStrings(a.result, func(text string) (string, error) {
		name, ok := cidPlaceholder(text)
		if !ok {
			return text, nil
		}
		i := slices.IndexFunc(a.artifacts, func(f muster.Artifact) bool { return f.Name == name })
		if i < 0 {
			return "", run.Failf(muster.ResultInvalid, "%s refers to %s, but there is no artifact %s: write that file to $MUSTER_OUT", resultName, text, name)
		}
		f := &a.artifacts[i]
		if f.CID == "" {
			index := slices.IndexFunc(files, func(f outputFile) bool { return f.name == name })
			id, err := a.computeCID(ctx, files[index])
			if err != nil {
				return "", run.Failf(muster.WorkerInternal, "compute the content identifier of %s: %w", name, err)
			}
			f.CID = id
		}
		return cid.Scheme + f.CID, nil
	})
	if err == nil && len(result) > muster.MaxResultSize {
		err = run.Failf(muster.ResultInvalid, "%s is larger than %s after its content identifiers are filled in", resultName, muster.Size(muster.MaxResultSize))
	}
	if err != nil {
		return err
	}
	a.result = result
	return nil
}

// cidPlaceholder returns the artifact name of ipfs://{NAME}.
func cidPlaceholder(text string) (string, bool) {
	name, ok := strings.CutPrefix(text, cid.Scheme+"{")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(name, "}")
}

func (a *Attempt) computeCID(ctx context.Context, f outputFile) (string, error) {
	root, err := a.openFolder(f.dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	file, err := run.OpenRegularIn(root, filepath.FromSlash(f.name))
	if err != nil {
		return "", err
	}
	defer file.Close()
	return cid.Sum(&ctxReader{file, ctx.Err})
}

// ctxReader is a file whose reads fail after its context has ended.
type ctxReader struct {
	file   *os.File
	ctxErr func() error
}

// Read implements io.Reader.
func (u *ctxReader) Read(b []byte) (int, error) {
	if err := u.ctxErr(); err != nil {
		return 0, err
	}
	return u.file.Read(b)
}

// replaceStrings applies f to each string value of valid JSON, not to field names.
func replaceStrings(raw []byte, f func(string) (string, error)) ([]byte, error) {
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
