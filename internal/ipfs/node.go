package ipfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/muster-dev/muster"
)

// node is a client of the node's RPC API.
type node struct {
	url  *url.URL
	http *http.Client
}

// stallTimeout is how long a request may make no progress.
const stallTimeout = 5 * time.Minute

func newNode(text string) (*node, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, muster.Errorf(muster.Invalid, "%q is not the address of an IPFS node: write the URL of its RPC API, such as http://127.0.0.1:5001", muster.HideCredentials(text))
	}
	u.Path = ""
	return &node{url: u, http: &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: maxConcurrent, IdleConnTimeout: time.Minute}}}, nil
}

// add adds and pins a file, and returns its CID according to the node.
func (n *node) add(ctx context.Context, name string, content io.Reader) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(stallTimeout, func() { cancel(fmt.Errorf("no progress for %s", stallTimeout)) })
	defer watchdog.Stop()

	body, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() { // ends with the request, which closes body
		part, err := form.CreateFormFile("file", name)
		if err == nil {
			_, err = io.Copy(part, &watchdogReader{content, watchdog})
		}
		if err == nil {
			err = form.Close()
		}
		_ = w.CloseWithError(err) // never fails
	}()
	// The options of ipfs add for the CIDv0 that package cid computes, independent of the node's defaults.
	options := url.Values{"cid-version": {"0"}, "raw-leaves": {"false"}, "chunker": {"size-262144"}, "trickle": {"false"}, "pin": {"true"}, "progress": {"false"}}
	resp, err := n.call(ctx, "add", options, body, form.FormDataContentType())
	_ = body.Close() // never fails
	if err != nil {
		return "", cause(ctx, err)
	}
	defer resp.Body.Close()
	hash := ""
	for d := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)); ; {
		var reply struct {
			Hash string `json:"Hash"`
		}
		err := d.Decode(&reply)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", cause(ctx, fmt.Errorf("read the response: %w", err))
		}
		if reply.Hash != "" {
			hash = reply.Hash
		}
	}
	// The trailer has errors after the start of the response.
	if text := resp.Trailer.Get("X-Stream-Error"); text != "" {
		return "", fmt.Errorf("node error: %.200s", text)
	}
	if hash == "" {
		return "", errors.New("the response has no CID")
	}
	return hash, nil
}

// unpin removes a pin.
func (n *node) unpin(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	resp, err := n.call(ctx, "pin/rm", url.Values{"arg": {id}}, http.NoBody, "")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// call calls a command. A status other than 200 is an error.
func (n *node) call(ctx context.Context, command string, options url.Values, body io.Reader, kind string) (*http.Response, error) {
	u := *n.url
	u.Path, u.RawQuery = "/api/v0/"+command, options.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), body)
	if err != nil {
		return nil, err
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			err = urlErr.Err // without the URL
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // the status is enough
	var reply struct {
		Message string `json:"Message"`
	}
	if json.Unmarshal(text, &reply) != nil || reply.Message == "" {
		reply.Message = strings.TrimSpace(string(text))
	}
	return nil, fmt.Errorf("HTTP %s: %.200s", resp.Status, reply.Message)
}

// cause returns the cause of ctx if it ended, otherwise err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watchdogReader resets a timer with each read.
type watchdogReader struct {
	io.Reader

	watchdog *time.Timer
}

// Read implements io.Reader.
func (a *watchdogReader) Read(b []byte) (int, error) {
	a.watchdog.Reset(stallTimeout)
	return a.Reader.Read(b)
}
