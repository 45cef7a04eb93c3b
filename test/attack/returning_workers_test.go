//go:build linux

package attack

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/polllink"
	"github.com/muster-dev/muster/internal/link/wslink"
	"github.com/muster-dev/muster/internal/mustertest/testworker"
	"github.com/muster-dev/muster/internal/testkit"
)

// TestWorkersReturnAfterARestartWhileTheirAddressIsFlooded restarts the server of 60 workers that have one address: their tokens are not valid any more.
// All get new ones and are welcomed, while another client of the address sends invalid tokens.
func TestWorkersReturnAfterARestartWhileTheirAddressIsFlooded(t *testing.T) {
	t.Parallel()
	const fleet = 60
	e := newLimitedEnv(t, 1)
	a := e.from(attacker)
	server, err := url.Parse(e.url(""))
	testkit.NoError(t, err)
	var workers [fleet]testworker.Worker
	var credentials [fleet]*agent.Credentials
	for i := range fleet {
		w := e.join(fmt.Sprintf("w%d", i))
		id := agent.Identity{Worker: w.Worker, PrivateKey: base64.StdEncoding.EncodeToString(w.Private.Seed()), ServerID: w.Server, Server: e.url("")}
		workers[i], credentials[i] = w, agent.NewCredentials(id, server, a.http, t.TempDir(), slog.New(slog.DiscardHandler))
		_, err := credentials[i].Current(t.Context())
		testkit.NoError(t, err)
	}
	e.Server.Kill()
	e.StartServer()
	a.flood()
	ctx, cancel := context.WithTimeout(t.Context(), awaitTimeout)
	defer cancel()
	forged := strings.Join([]string{"eyJhbGciOiJFZERTQSIsImtpZCI6IngifQ", "e30", strings.Repeat("A", 86)}, ".")
	var others, returning sync.WaitGroup
	for range 20 {
		others.Go(func() {
			for ctx.Err() == nil {
				if resp, err := a.http.Do(a.request(http.MethodGet, "/api/v1/whoami", forged, nil).WithContext(ctx)); err == nil { //nolint:contextcheck // it gets ctx
					_ = resp.Body.Close()
				}
			}
		})
	}
	var welcomed atomic.Int32
	began := time.Now()
	for i := range fleet {
		returning.Go(func() {
			for ctx.Err() == nil {
				if reconnect(ctx, &link.Fallback{
					First:  &wslink.Dialer{Server: e.url(""), Credentials: credentials[i], HTTP: a.http},
					Second: &polllink.Dialer{Server: e.url(""), Credentials: credentials[i], HTTP: a.http},
				}, hello(workers[i], fmt.Sprintf("w%d", i))) == nil {
					welcomed.Add(1)
					return
				}
			}
		})
	}
	returning.Wait()
	t.Logf("the workers took %s", time.Since(began))
	if n := welcomed.Load(); n != fleet {
		t.Errorf("%d of %d workers have returned within %s", n, fleet, awaitTimeout)
	}
	cancel()
	others.Wait()
}

// TestAWrongClockIsExplained: a worker whose clock is wrong learns that with each try, also where too many requests without a key come from.
func TestAWrongClockIsExplained(t *testing.T) {
	t.Parallel()
	e := newLimitedEnv(t, 1)
	w := e.join("w")
	for try := range 15 {
		refusedBy(t, fmt.Sprintf("try %d", try), e.session(sessionRequest(t, w, 3*time.Minute)), http.StatusBadRequest, "ahead: it says 20")
	}
	testkit.NoError(t, e.session(sessionRequest(t, w, 0)))
}

// reconnect opens a session until its welcome.
func reconnect(ctx context.Context, d link.Dialer, h *link.Hello) error {
	conn, err := d.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Send(ctx, &link.ToServer{Hello: h}); err != nil {
		return err
	}
	f, err := conn.Recv(ctx)
	if err == nil && f.Welcome == nil {
		err = fmt.Errorf("it was answered %+v", f)
	}
	return err
}
