package muster

import "strings"

// HideCredentials returns an address for an error or a log: without user and password, also if it is no valid URL. One with an @ in its path only
// is returned as it is.
func HideCredentials(address string) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	start := 0
	if i := strings.Index(address, "://"); i >= 0 && i < at {
		start = i + len("://")
	}
	// Without a colon or an @ before the first slash, what precedes that is the name of a host. With a colon it may be a port, or a password with a slash.
	host, path, _ := strings.Cut(address[start:at], "/")
	if _, port, _ := strings.Cut(host, ":"); path != "" && !strings.Contains(host, "@") && strings.Trim(port, "0123456789") == "" {
		return address
	}
	return address[:start] + "xxxxx" + address[at:]
}

// RedactURL returns a URL for readers: without user, password and query, which may be a signature.
func RedactURL(url string) string {
	url, _, hasQuery := strings.Cut(HideCredentials(url), "?")
	if hasQuery {
		url += "?(hidden)"
	}
	return url
}
