package muster

import "strings"

// HideCredentials returns an address for an error or a log: without its Credentials.
func HideCredentials(address string) string {
	if start, end := findCredentials(address); start < end {
		return address[:start] + "xxxxx" + address[end:]
	}
	return address
}

// Credentials returns the user and password in an address, also if it is no valid URL, as a part of address. It is "" for an address without, and for
// one with an @ in its path only.
func Credentials(address string) string {
	start, end := findCredentials(address)
	return address[start:end]
}

func findCredentials(address string) (start, end int) {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return 0, 0
	}
	if i := strings.Index(address, "://"); i >= 0 && i < at {
		start = i + len("://")
	}
	// Without a colon or an @ before the first slash, what precedes that is the name of a host. With a colon it may be a port, or a password with a slash.
	host, path, _ := strings.Cut(address[start:at], "/")
	if _, port, _ := strings.Cut(host, ":"); path != "" && !strings.Contains(host, "@") && strings.Trim(port, "0123456789") == "" {
		return 0, 0
	}
	return start, at
}
