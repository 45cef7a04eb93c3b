package obs

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/muster-dev/muster"
)

// Endpoint serves the metrics of a registry at a separate address, without a key.
type Endpoint struct {
	listener net.Listener
	http     *http.Server
}

// Listen listens on an address, host:port; port 0 chooses a free one. Run serves requests.
func Listen(ctx context.Context, address string, r *Registry, log *slog.Logger) (*Endpoint, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "cannot serve metrics at %s: %w; set --metrics to an address of this machine, such as 127.0.0.1:9700", address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", r.Handler(log))
	log.Info("serving metrics", slog.String("url", "http://"+listener.Addr().String()+"/metrics"))
	return &Endpoint{listener: listener, http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: scrapeTimeout + 15*time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}, nil
}

// Run serves until ctx ends, and closes the port.
func (e *Endpoint) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = e.http.Close() }) // scrapes are retried
	defer stop()
	if err := e.http.Serve(e.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
