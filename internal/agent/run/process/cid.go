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

// resolveCIDs puts the content identifiers of artifacts into the result: a text ipfs://{NAME} becomes ipfs://Qm…, of the bytes that the
// artifact NAME has. Those artifacts have their CID from then on. All else in the result stays as it was written.
func (a *Attempt) resolveCIDs(ctx context.Context, files []outputFile) error {
	if !bytes.Contains(a.result, []byte("{")) || !bytes.Contains(a.result, []byte("ipfs:")) {
		return nil // as most are; a slash may be written in several ways
	}
	result, err := replaceStrings(a.result, func(text string) (string, error) {
		name, ok := cidPlaceholder(text)
		if !ok {
			return text, nil
		}
		i := slices.IndexFunc(a.artifacts, func(f muster.Artifact) bool { return f.Name == name })
		if i < 0 {
			return "", run.Failf(muster.ResultInvalid, "%s refers to %s, and there is no artifact %s: leave that file in $MUSTER_OUT", resultName, text, name)
		}
		f := &a.artifacts[i]
		if f.CID == "" {
			index := slices.IndexFunc(files, func(f outputFile) bool { return f.name == name })
			id, err := a.computeCID(ctx, files[index])
			if err != nil {
				return "", run.Failf(muster.WorkerInternal, "the content identifier of %s cannot be computed: %w", name, err)
			}
			f.CID = id
		}
		return cid.Scheme + f.CID, nil
	})
	if err == nil && len(result) > muster.MaxResultSize {
		err = run.Failf(muster.ResultInvalid, "%s is larger than %s with the content identifiers that it asks for", resultName, muster.Size(muster.MaxResultSize))
	}
	if err != nil {
		return err
	}
	a.result = result
	return nil
}

// cidPlaceholder returns the name of the artifact whose identifier is to stand in the place of a text.
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

// ctxReader is a file that is read only as long as nobody minds.
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

// replaceStrings returns valid JSON with what f makes of each text in it that is a value, and no name of a field.
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
