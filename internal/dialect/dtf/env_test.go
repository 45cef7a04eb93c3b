package dtf_test

import (
	"os"
	"testing"
	"time"

	"github.com/muster-dev/muster/internal/builtin"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/dialect/dialecttest"
	"github.com/muster-dev/muster/internal/serverd"
	"github.com/muster-dev/muster/internal/workerd"
)

// testTimeout bounds each wait of these tests.
const testTimeout = 2 * time.Minute

// TestMain is also the worker's own program, which carries out the kinds that need nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// env is a Muster server in this process.
type env struct {
	server *dialecttest.Server
	client *client.Client
	data   string // of its worker
}

func startServer(tb testing.TB, cfg serverd.Config) *env {
	tb.Helper()
	s := dialecttest.Start(tb, cfg)
	return &env{server: s, client: s.Client, data: tb.TempDir()}
}

// worker adds a real worker that runs the kinds whose program is Muster's own, until the test ends or it is stopped.
func (w *env) worker(tb testing.TB) (stop func()) {
	tb.Helper()
	return w.server.StartWorker(tb, workerd.Config{Name: "here", Data: w.data, ShutdownGrace: time.Second})
}
