package bridge

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/client"
)

// clientWithRole is a Muster server that only responds to /whoami, with this role; with an empty role it is not ready.
func clientWithRole(t *testing.T, role *atomic.Value) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		name, _ := role.Load().(string)
		w.Header().Set("Content-Type", "application/json")
		switch name {
		case "":
			w.WriteHeader(http.StatusBadGateway)
		case "unknown":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			_ = json.NewEncoder(w).Encode(client.Whoami{Key: "k1", Name: "ci", Role: name})
		}
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL, "mst_x", client.Options{RetryTimeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestUnsuitableKeyIsRefused(t *testing.T) {
	for name, want := range map[string]muster.Code{"unknown": muster.Unauthenticated, "join": muster.Forbidden, "viewer": muster.Forbidden} {
		var role atomic.Value
		role.Store(name)
		reachable, err := checkAuthorized(t.Context(), clientWithRole(t, &role))
		if !reachable || muster.CodeOf(err) != want || !strings.Contains(err.Error(), "submitter") {
			t.Errorf("%s: %v, %v", name, reachable, err)
		}
	}
	for _, name := range []string{"submitter", "admin"} {
		var role atomic.Value
		role.Store(name)
		if reachable, err := checkAuthorized(t.Context(), clientWithRole(t, &role)); !reachable || err != nil {
			t.Errorf("%s: %v, %v", name, reachable, err)
		}
	}
}

// A server that does not answer at first is asked again, and then refuses or not.
func TestBridgeWaitsForTheServer(t *testing.T) {
	for name, want := range map[string]muster.Code{"join": muster.Forbidden, "submitter": ""} {
		var role atomic.Value
		c := clientWithRole(t, &role)
		if reachable, err := checkAuthorized(t.Context(), c); reachable || err != nil {
			t.Errorf("%s: %v, %v", name, reachable, err)
		}
		role.Store(name)
		err := awaitAuthorized(t.Context(), c, slog.New(slog.DiscardHandler), time.Millisecond)
		if (want == "") != (err == nil) || err != nil && muster.CodeOf(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var role atomic.Value
	if err := awaitAuthorized(ctx, clientWithRole(t, &role), slog.New(slog.DiscardHandler), time.Millisecond); err != nil {
		t.Errorf("after its end: %v", err)
	}
}
