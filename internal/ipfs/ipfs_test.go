package ipfs

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/blob"
	"github.com/muster-dev/muster/internal/cid"
	"github.com/muster-dev/muster/internal/store"
)

// fakeNode implements the documented commands add and pin/rm. It computes CIDs with package cid, whose tests have vectors of Kubo.
type fakeNode struct {
	mu        sync.Mutex
	calls     []string
	failures  int    // times that it still refuses
	wrongHash string // that it calls every file
	streamErr string // X-Stream-Error of its responses
}

func (n *fakeNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Method != http.MethodPost { // as Kubo does
		http.Error(w, "405 - Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if n.failures > 0 {
		n.failures--
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"Message":"the disk is full","Code":0,"Type":"error"}`)
		return
	}
	q := r.URL.Query()
	switch r.URL.Path {
	case "/api/v0/pin/rm":
		n.calls = append(n.calls, "rm "+q.Get("arg"))
		_, _ = io.WriteString(w, `{"Pins":["`+q.Get("arg")+`"]}`)
	case "/api/v0/add":
		for name, want := range map[string]string{"cid-version": "0", "raw-leaves": "false", "chunker": "size-262144", "pin": "true"} {
			if q.Get(name) != want {
				n.calls = append(n.calls, name+" is "+q.Get(name))
			}
		}
		form, err := r.MultipartReader()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		part, err := form.NextPart()
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		id, err := cid.Sum(part)
		if err != nil {
			return // cut off
		}
		if n.wrongHash != "" {
			id = n.wrongHash
		}
		n.calls = append(n.calls, "add "+part.FileName())
		w.Header().Set("Trailer", "X-Stream-Error")
		_, _ = io.WriteString(w, `{"Name":"`+part.FileName()+`","Hash":"`+id+`","Size":"14"}`+"\n")
		if n.streamErr != "" {
			w.Header().Set("X-Stream-Error", n.streamErr)
		}
	default:
		http.NotFound(w, r)
	}
}

func (n *fakeNode) callList() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.calls, ", ")
}

// fakePins is a store.Pins in memory.
type fakePins struct {
	mu   sync.Mutex
	list []store.Content
	set  map[string]store.PinState
	done chan struct{} // holds a token after each SetPin
}

func (p *fakePins) Unpinned(_ context.Context, after store.Content, _ int) (out []store.Content, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.list {
		if c.CID > after.CID && p.set[c.CID] == store.Unpinned {
			out = append(out, c)
		}
	}
	return out, nil
}

func (p *fakePins) SetPin(_ context.Context, c store.Content, to store.PinState) error {
	p.mu.Lock()
	p.set[c.CID] = to
	p.mu.Unlock()
	p.done <- struct{}{}
	return nil
}

const (
	hello    = "QmZULkCELmmk5XNfCgTnCyFgAVxBRBXyDHGGMVoLFLiXEN"
	helloSum = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"
)

// begin runs a Giver of one file until the test ends.
func begin(t *testing.T, n *fakeNode, missing, wrong bool) *fakePins {
	t.Helper()
	web := httptest.NewServer(n)
	t.Cleanup(web.Close)
	blobs, err := blob.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if !missing {
		if err := blobs.Put(t.Context(), helloSum, 0, strings.NewReader("hello\n")); err != nil {
			t.Fatal(err)
		}
	}
	p := &fakePins{set: map[string]store.PinState{}, done: make(chan struct{}, 10), list: []store.Content{{CID: hello, Job: 1, Name: "out/model.pt", SHA256: helloSum, Size: 6}}}
	g, err := New(Config{Node: web.URL + "/", Pins: p, Verify: func(context.Context, store.Content) (bool, error) { return !wrong, nil }, Blobs: blobs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.interval = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPin(t *testing.T) {
	for _, c := range []struct {
		name    string
		node    *fakeNode
		missing bool
		wrong   bool
		pin     store.PinState
		got     string
	}{
		{"a file", &fakeNode{}, false, false, store.Pinned, "add model.pt"},
		{"after the node was away", &fakeNode{failures: 3}, false, false, store.Pinned, "add model.pt"},
		{"a node that cuts otherwise", &fakeNode{wrongHash: "bafkreigh2akiscaildc"}, false, false, store.PinRefused, "add model.pt, rm bafkreigh2akiscaildc"},
		{"a file that is gone", &fakeNode{}, true, false, store.PinRefused, ""},
		{"a file that is another one", &fakeNode{}, false, true, store.PinRefused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := begin(t, c.node, c.missing, c.wrong)
			<-p.done
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.set[hello] != c.pin || c.node.callList() != c.got {
				t.Errorf("the pin is %d, and the node received %q", p.set[hello], c.node.callList())
			}
		})
	}
}

// A node that fails behind its answer has not got the file.
func TestLateErrorsCount(t *testing.T) {
	web := httptest.NewServer(&fakeNode{streamErr: "pinning failed"})
	defer web.Close()
	n, err := newNode(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := n.add(t.Context(), "a", strings.NewReader("hello\n")); err == nil || !strings.Contains(err.Error(), "pinning failed") {
		t.Errorf("it is %q, %v", id, err)
	}
}

func TestParseNodeURL(t *testing.T) {
	for _, text := range []string{"", "127.0.0.1:5001", "ftp://a", "http://", "/ip4/127.0.0.1/tcp/5001", "http://a/api/v0", "http://a?b"} {
		if _, err := newNode(text); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}
