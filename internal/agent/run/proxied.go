package run

import "strconv"

// ProxyPort is where a task with network: allowlist finds its proxy: at this port of the
// loopback device of its own network.
const ProxyPort = 3128

// Proxied returns the environment entries by which programs find the proxy of
// network: allowlist. Names are in both cases: curl heeds http_proxy only in the
// lower one, others only the upper.
func Proxied() []string {
	at, own := "http://127.0.0.1:"+strconv.Itoa(ProxyPort), "localhost,127.0.0.1,::1"
	return []string{
		"http_proxy=" + at, "https_proxy=" + at, "all_proxy=" + at, "no_proxy=" + own,
		"HTTP_PROXY=" + at, "HTTPS_PROXY=" + at, "ALL_PROXY=" + at, "NO_PROXY=" + own,
	}
}
