// Package origin prevents HTTP clients from sending a key to another server.
package origin

import (
	"fmt"
	"net/http"
	"net/url"
)

// maxRedirects is how many redirects a request follows.
const maxRedirects = 5

// RedirectError is the error of a redirect to another server.
type RedirectError struct{ From, To string }

// Error implements error.
func (e *RedirectError) Error() string {
	return fmt.Sprintf("%s redirects to another server, %s: if that is the right one, use its address", e.From, e.To)
}

// CheckRedirect is for http.Client. It follows only redirects to the same scheme, host and port: others
// could send the key to any address in the client's network.
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

// Client returns a copy of c, or of the default client if c is nil, with CheckRedirect.
func Client(c *http.Client) *http.Client {
	if c == nil {
		c = http.DefaultClient
	}
	copied := *c
	copied.CheckRedirect = CheckRedirect
	return &copied
}
