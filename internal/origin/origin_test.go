package origin_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/muster-dev/muster/internal/origin"
)

func TestSame(t *testing.T) {
	for _, c := range []struct {
		from, to string
		follow   bool
	}{
		{"http://a/x", "http://a/y", true},
		{"http://a/x", "http://a:80/y", true},
		{"https://a/x", "https://a:443/y", true},
		{"http://a/x", "http://b/x", false},
		{"http://a:8700/x", "http://a:8701/x", false},
		{"http://a/x", "https://a/x", false},
		{"https://a/x", "http://a/x", false},
		{"http://a/x", "http://a.b/x", false},
	} {
		via := httptest.NewRequest(http.MethodGet, c.from, nil)
		err := origin.CheckRedirect(httptest.NewRequest(http.MethodGet, c.to, nil), []*http.Request{via})
		if _, refused := errors.AsType[*origin.RedirectError](err); refused == c.follow {
			t.Errorf("%s to %s: %v", c.from, c.to, err)
		}
	}
}

func TestRedirectLoop(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }))
	defer s.Close()
	if resp, err := origin.Client(nil).Get(s.URL); err == nil {
		_ = resp.Body.Close()
		t.Error("a redirect loop was followed")
	}
}
