package wire

import "github.com/muster-dev/muster"

// CookieSession is the cookie that holds the API key of a browser.
const CookieSession = "muster_session"

// Session asks for a browser session.
type Session struct {
	Token string `json:"token" minLength:"1" maxLength:"256" doc:"an API key"`
}

// NewShare asks for a link to a job.
type NewShare struct {
	TTL muster.Duration `json:"ttl,omitempty" doc:"how long the link is valid: at most 30d; default: 24h"`
}

// Share is a link with which anyone can read one job until it expires.
type Share struct {
	URL       string      `json:"url" doc:"the link, from the server's root: the key is in its fragment, which browsers do not send" example:"/share#mst_viewer_…"`
	Secret    string      `json:"secret" doc:"the key of the link, which is not shown again"`
	Key       string      `json:"key" doc:"id of the key"`
	ExpiresAt muster.Time `json:"expires_at"`
}
