package docker

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
)

// Image is a local image of the engine.
type Image struct {
	ID         string // sha256:…
	Tags       []string
	Digests    []string // such as python@sha256:…
	Size       int64    // bytes, including shared layers
	OS         string
	Arch       string
	User       string
	Workdir    string
	Entrypoint []string
	Command    []string
	Env        []string
}

// Image returns the image with a name, an ID or a prefix of an ID.
func (e *Engine) Image(ctx context.Context, ref string) (*Image, error) {
	res, err := e.api.Load().ImageInspect(ctx, ref)
	if err != nil {
		return nil, e.wrapError(ctx, "the image "+ref+" cannot be looked up", err)
	}
	img := &Image{ID: canonicalID(res.ID), Tags: res.RepoTags, Digests: res.RepoDigests, Size: res.Size, OS: res.Os, Arch: res.Architecture}
	if c := res.Config; c != nil {
		img.User, img.Workdir, img.Entrypoint, img.Command, img.Env = c.User, c.WorkingDir, c.Entrypoint, c.Cmd, c.Env
	}
	return img, nil
}

func canonicalID(id string) string {
	if strings.Contains(id, ":") {
		return id
	}
	return "sha256:" + id // Podman leaves it out
}

// ImageSummary is an image in a list.
type ImageSummary struct {
	ID    string
	Names []string // with tags or digests
}

// Images lists all images with names.
func (e *Engine) Images(ctx context.Context) ([]ImageSummary, error) {
	res, err := e.api.Load().ImageList(ctx, client.ImageListOptions{})
	if err != nil {
		return nil, e.wrapError(ctx, "the images cannot be listed", err)
	}
	list := make([]ImageSummary, len(res.Items))
	for i := range res.Items {
		list[i] = ImageSummary{ID: canonicalID(res.Items[i].ID), Names: slices.Concat(res.Items[i].RepoTags, res.Items[i].RepoDigests)}
	}
	return list, nil
}

// RemoveImage removes an image by name or ID. The error is ErrConflict if a container uses it, or if ref is an ID and the image has
// several names.
func (e *Engine) RemoveImage(ctx context.Context, ref string) error {
	_, err := e.api.Load().ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	return e.wrapError(ctx, "the image "+ref+" cannot be removed", err)
}

// Credentials authenticate to a registry: a user name and a password, or an identity token.
type Credentials = registry.AuthConfig

// PullProgress is the progress of a pull.
type PullProgress struct {
	Done, Total int64 // bytes; Total grows while layers become known
	Unpacking   bool  // all bytes are received; they are being verified and unpacked
}

// Pull pulls an image. It has no timeout; it ends with ctx. It calls onProgress at each progress message. Its errors distinguish
// ErrNotFound, ErrDenied, ErrRegistryUnreachable, ErrRegistryFailed and ErrDiskFull; their messages do not have the credentials, even if
// the registry's have.
func (e *Engine) Pull(ctx context.Context, ref string, creds *Credentials, onProgress func(PullProgress)) (err error) {
	defer func() { err = redactError(err, creds) }()
	doing := "the image " + ref + " cannot be pulled"
	var opts client.ImagePullOptions
	if creds != nil {
		opts.RegistryAuth, _ = authconfig.Encode(*creds) // strings always encode
	}
	resp, err := e.api.Load().ImagePull(ctx, ref, opts)
	if err != nil {
		return e.pullError(ctx, doing, err)
	}
	defer resp.Close()
	layers := layers{}
	for m, err := range resp.JSONMessages(ctx) {
		switch {
		case err != nil:
			return e.wrapError(ctx, doing, err)
		case m.Error != nil:
			return e.pullError(ctx, doing, m.Error)
		}
		if layers.update(&m) {
			onProgress(layers.progress())
		}
	}
	return e.wrapError(ctx, doing, ctx.Err())
}

// layers are the layers of a pull, by ID.
type layers map[string]layer

type layer struct {
	done, total int64
	downloaded  bool
}

// update applies a message and reports whether it shows progress.
func (l layers) update(m *jsonstream.Message) bool {
	cur, known := l[m.ID], m.ID != ""
	switch m.Status {
	case "Pulling fs layer", "Waiting":
	case "Downloading":
		if m.Progress != nil {
			cur.done, cur.total = max(cur.done, m.Progress.Current), max(cur.total, m.Progress.Total)
		}
	case "Verifying Checksum", "Download complete", "Extracting", "Pull complete", "Already exists":
		cur.done, cur.downloaded = cur.total, true
	default: // a message about the whole image, or "Retrying in 3 seconds"
		return !strings.HasPrefix(m.Status, "Retrying")
	}
	if known {
		l[m.ID] = cur
	}
	return true
}

func (l layers) progress() PullProgress {
	p := PullProgress{Unpacking: len(l) > 0}
	for _, cur := range l {
		p.Done += cur.done
		p.Total += cur.total
		p.Unpacking = p.Unpacking && cur.downloaded
	}
	return p
}

// pullError classifies the error of a pull. Docker and Podman pass on registry errors as text, usually without a useful status, so it
// matches known texts.
func (e *Engine) pullError(ctx context.Context, doing string, err error) error {
	wrapped := e.wrapError(ctx, doing, err)
	if ctx.Err() != nil || errors.Is(wrapped, ErrUnreachable) || errors.Is(wrapped, ErrDiskFull) {
		return wrapped
	}
	text := strings.ToLower(err.Error())
	for _, pattern := range pullErrorPatterns {
		if slices.ContainsFunc(pattern.phrases, func(phrase string) bool { return strings.Contains(text, phrase) }) {
			return newError(doing, err, pattern.kind)
		}
	}
	return wrapped
}

// pullErrorPatterns classify registry errors by phrases in lower case. The first match wins.
var pullErrorPatterns = []struct {
	kind    error
	phrases []string
}{
	{ErrRegistryFailed, []string{
		"verification failed", "unexpected eof", "digest mismatch", "does not match digest", "does not match expected",
		"failed commit on ref", "unexpected commit digest", "invalid tar header", "gzip: invalid", "toomanyrequests", "too many requests",
		"500 internal server error", "502 bad gateway", "503 service unavailable", "504 gateway", "received unexpected http status: 5",
		"unexpected status code 5", "invalid status code from registry 5", "unexpected status: 5", "unknown blob", "blob unknown", "error parsing http", "error unmarshalling", "mediatype",
	}},
	{ErrDenied, []string{
		"pull access denied", "unauthorized", "authentication required", "no basic auth credentials", "denied: ", "access forbidden", "403 forbidden",
		"requested access to the resource is denied", "incorrect username or password",
	}},
	{ErrNotFound, []string{"manifest unknown", "not found", "name unknown", "repository name not known", "no matching manifest", "does not exist", "no image found"}},
	{ErrRegistryUnreachable, []string{
		"no such host", "connection refused", "i/o timeout", "network is unreachable", "no route to host", "tls:", "x509:", "client.timeout exceeded",
		"server gave http response to https client", "connection reset", "tls handshake", "server misbehaving", "lookup ", "deadline exceeded", ": eof",
	}},
}

// CheckAccess asks the registry of an image whether credentials may pull it, also if the engine has the image. Podman cannot be asked; its Pull does
// so. Its errors are those of Pull.
func (e *Engine) CheckAccess(ctx context.Context, ref string, creds *Credentials) error {
	var opts client.DistributionInspectOptions
	if creds != nil {
		opts.EncodedRegistryAuth, _ = authconfig.Encode(*creds) // strings always encode
	}
	_, err := e.api.Load().DistributionInspect(ctx, ref, opts)
	if err == nil {
		return nil
	}
	if strings.Contains(err.Error(), "is not supported") && errdefs.IsInternal(err) { // a registry may answer so, too
		if about, infoErr := e.Info(ctx); infoErr == nil && about.Name == "podman" {
			return nil
		}
	}
	return redactError(e.pullError(ctx, "the image "+ref+" cannot be pulled", err), creds)
}

// redactError removes credentials from the message of an error.
func redactError(err error, creds *Credentials) error {
	if failed, ok := errors.AsType[*engineError](err); ok && creds != nil {
		failed.msg = redactCredentials(failed.msg, creds)
	}
	return err
}

// redactCredentials replaces credentials in a registry's text, also as they were sent to it.
func redactCredentials(text string, creds *Credentials) string {
	basic := creds.Username + ":" + creds.Password
	for _, secret := range []string{base64.StdEncoding.EncodeToString([]byte(basic)), basic, creds.Password, url.QueryEscape(creds.Password), creds.IdentityToken, creds.RegistryToken} {
		if secret != "" && secret != ":" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	return text
}
