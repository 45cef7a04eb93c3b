package run

import (
	"slices"
	"strconv"
	"strings"
)

// ProxyPort is the port of the proxy on the loopback device of a task with network: allowlist.
const ProxyPort = 3128

// ProxyEnv returns the environment entries that make programs use the proxy of network: allowlist. Names are in both cases: curl reads only
// the lower-case http_proxy, others only the upper-case one. Connections to the task's own loopback device bypass the proxy, unless hosts
// (allow_hosts) has that address: then it means the worker's.
func ProxyEnv(hosts []string) []string {
	bypass := slices.DeleteFunc([]string{"localhost", "127.0.0.1", "::1"}, func(name string) bool {
		return slices.ContainsFunc(hosts, func(host string) bool {
			return host == name || strings.HasPrefix(host, name+":") || strings.HasPrefix(host, "["+name+"]")
		})
	})
	proxyURL, noProxy := "http://127.0.0.1:"+strconv.Itoa(ProxyPort), strings.Join(bypass, ",")
	return []string{
		"http_proxy=" + proxyURL, "https_proxy=" + proxyURL, "all_proxy=" + proxyURL, "no_proxy=" + noProxy,
		"HTTP_PROXY=" + proxyURL, "HTTPS_PROXY=" + proxyURL, "ALL_PROXY=" + proxyURL, "NO_PROXY=" + noProxy,
	}
}
