package run

import (
	"slices"
	"strconv"
	"strings"
)

// ProxyPort is where a task with network: allowlist finds its proxy: at this port of the
// loopback device of its own network.
const ProxyPort = 3128

// ProxyEnv returns the environment entries by which programs find the proxy of
// network: allowlist. Names are in both cases: curl heeds http_proxy only in the
// lower one, others only the upper. Programs go past the proxy to the task's own loopback
// device, unless hosts, which are allow_hosts, has that address: then the worker's is meant.
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
