// Package origin keeps HTTP clients that carry a key at the server that the key is for.
package origin

import (
	"fmt"
	"net/http"
	"net/url"
)

// maxRedirects is how many redirects are followed in a row.
const maxRedirects = 5

// RedirectError says that a server redirects to another one.
type RedirectError struct{ From, To string }

// Error names both servers.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s redirects to %s, which is another server: it is not followed; if that is the right one, use its address", e.From, e.To)
}

// CheckRedirect is a CheckRedirect of an http.Client. It follows redirects to the same scheme, host and port only: others
// would lead a client on a private network to any address there, with its key.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	from, to := originOf(via[0].URL), originOf(req.URL)
	if from != to {
		return &RedirectError{From: from, To: to}
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("%s redirects more than %d times", from, maxRedirects)
	}
	return nil
}

// originOf returns the scheme, host and port of a URL.
func originOf(u *url.URL) string {
	host := u.Host
	if u.Port() == "" {
		host += map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	}
	return u.Scheme + "://" + host
}

// Client returns a copy of a client, nil for the default one, that follows redirects as Same does.
func Client(c *http.Client) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	copied := *c
	copied.CheckRedirect = CheckRedirect
	return &copied
}
