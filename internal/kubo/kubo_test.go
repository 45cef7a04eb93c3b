package kubo

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

// rpc is a node that speaks the documented form of the commands add and pin/rm. It names files as package cid does, which is held to a real Kubo there.
type rpc struct {
	mu     sync.Mutex
	calls  []string
	down   int    // times that it still refuses
	lies   string // that it calls every file
	broken string // what it says behind its answer
}

func (n *rpc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.Method != http.MethodPost { // as Kubo does
		http.Error(w, "405 - Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if n.down > 0 {
		n.down--
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
		id, err := cid.Of(part)
		if err != nil {
			return // broken off
		}
		if n.lies != "" {
			id = n.lies
		}
		n.calls = append(n.calls, "add "+part.FileName())
		w.Header().Set("Trailer", "X-Stream-Error")
		_, _ = io.WriteString(w, `{"Name":"`+part.FileName()+`","Hash":"`+id+`","Size":"14"}`+"\n")
		if n.broken != "" {
			w.Header().Set("X-Stream-Error", n.broken)
		}
	default:
		http.NotFound(w, r)
	}
}

func (n *rpc) heard() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(n.calls, ", ")
}

// pins is a store.Pins in memory.
type pins struct {
	mu   sync.Mutex
	list []store.Content
	set  map[string]store.PinState
	done chan struct{} // holds a token after each SetPin
}

func (p *pins) Unpinned(_ context.Context, after store.Content, _ int) (out []store.Content, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.list {
		if c.CID > after.CID && p.set[c.CID] == store.Unpinned {
			out = append(out, c)
		}
	}
	return out, nil
}

func (p *pins) SetPin(_ context.Context, c store.Content, to store.PinState) error {
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
func begin(t *testing.T, n *rpc, missing, wrong bool) *pins {
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
	p := &pins{set: map[string]store.PinState{}, done: make(chan struct{}, 10), list: []store.Content{{CID: hello, Job: 1, Name: "out/model.pt", SHA256: helloSum, Size: 6}}}
	g, err := New(Config{Node: web.URL + "/", Pins: p, Prove: func(context.Context, store.Content) (bool, error) { return !wrong, nil }, Blobs: blobs, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	g.look = time.Millisecond
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

func TestGives(t *testing.T) {
	for _, c := range []struct {
		name    string
		node    *rpc
		missing bool
		wrong   bool
		pin     store.PinState
		heard   string
	}{
		{"a file", &rpc{}, false, false, store.Pinned, "add model.pt"},
		{"after the node was away", &rpc{down: 3}, false, false, store.Pinned, "add model.pt"},
		{"a node that cuts otherwise", &rpc{lies: "bafkreigh2akiscaildc"}, false, false, store.PinRefused, "add model.pt, rm bafkreigh2akiscaildc"},
		{"a file that is gone", &rpc{}, true, false, store.PinRefused, ""},
		{"a file that is another one", &rpc{}, false, true, store.PinRefused, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := begin(t, c.node, c.missing, c.wrong)
			<-p.done
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.set[hello] != c.pin || c.node.heard() != c.heard {
				t.Errorf("the pin is %d, and the node heard %q", p.set[hello], c.node.heard())
			}
		})
	}
}

// A node that fails behind its answer has not got the file.
func TestLateErrorsCount(t *testing.T) {
	web := httptest.NewServer(&rpc{broken: "pinning failed"})
	defer web.Close()
	n, err := newNode(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := n.add(t.Context(), "a", strings.NewReader("hello\n")); err == nil || !strings.Contains(err.Error(), "pinning failed") {
		t.Errorf("it is %q, %v", id, err)
	}
}

func TestNodesAreURLs(t *testing.T) {
	for _, text := range []string{"", "127.0.0.1:5001", "ftp://a", "http://", "/ip4/127.0.0.1/tcp/5001", "http://a/api/v0", "http://a?b"} {
		if _, err := newNode(text); muster.CodeOf(err) != muster.Invalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}
