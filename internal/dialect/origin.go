package dialect

import (
	"context"
	"net/http"
	"net/netip"
	"sync/atomic"
)

// Headers by which a gateway says on whose behalf it sends a request to the server of its process. They are accepted on Pipe connections only.
const (
	headerAddress = "Muster-Client-Address"
	headerGateway = "Muster-Gateway"
)

type originKey struct{}

// origin is where a request to a gateway comes from.
type origin struct {
	address, gateway string
	denied           atomic.Bool // the server denied a request on its behalf, and recorded that
}

func withOrigin(ctx context.Context, addr netip.Addr, gateway string) context.Context {
	return context.WithValue(ctx, originKey{}, &origin{address: addressText(addr), gateway: gateway})
}

// originOf returns the origin of a context, nil for none.
func originOf(ctx context.Context) *origin {
	o, _ := ctx.Value(originKey{}).(*origin)
	return o
}

func addressText(addr netip.Addr) string {
	if !addr.IsValid() {
		return ""
	}
	return addr.String()
}

// originTransport sends the origin of the request whose context a request has.
type originTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t originTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	o := originOf(r.Context())
	if o == nil {
		return t.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set(headerAddress, o.address)
	r.Header.Set(headerGateway, o.gateway)
	resp, err := t.next.RoundTrip(r)
	if err == nil && denies(resp.StatusCode) {
		o.denied.Store(true)
	}
	return resp, err
}

// CloseIdleConnections is for http.Client.
func (t originTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// ReceiveOrigin passes the origin of a request to accept, which returns the context for next. Use it only for the connections of a Pipe.
func ReceiveOrigin(next http.Handler, accept func(ctx context.Context, address, gateway string) context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if gateway := r.Header.Get(headerGateway); gateway != "" {
			r = r.WithContext(accept(r.Context(), r.Header.Get(headerAddress), gateway))
		}
		next.ServeHTTP(w, r)
	})
}

func denies(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// recordDenials reports the requests that are denied, except those that the server denied: it has recorded what the key may not do.
func (l *Listener) recordDenials(next http.Handler) http.Handler {
	if l.deps.Denied == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := originOf(r.Context())
		next.ServeHTTP(&denialWriter{ResponseWriter: w, denied: func(status int) {
			if !o.denied.Load() {
				l.deps.Denied(o.address, status)
			}
		}}, r)
	})
}

// denialWriter calls denied for answers that deny a request.
type denialWriter struct {
	http.ResponseWriter

	denied func(status int)
}

// Unwrap is for http.ResponseController.
func (w *denialWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *denialWriter) WriteHeader(status int) {
	if denies(status) {
		w.denied(status)
	}
	w.ResponseWriter.WriteHeader(status)
}
