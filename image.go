package muster

import (
	"strings"

	"github.com/muster-dev/muster/internal/lazyregexp"
)

// imagePattern is the grammar of github.com/distribution/reference.
var imagePattern = lazyregexp.New(`^((?:(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?` +
	`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)(?::(\w[\w.-]{0,127}))?(?:@(sha256:[0-9a-f]{64}))?$`)

// ParseImage splits an image reference into its full name, with the registry, and its version:
// "@" and the digest if there is one, else ":" and the tag, by default ":latest".
func ParseImage(ref string) (name, version string, ok bool) {
	m := imagePattern.Get().FindStringSubmatch(ref)
	if m == nil || len(m[1]) > 255 || IsSHA256(m[1]) { // 64 hex digits are an engine's image id
		return "", "", false
	}
	switch {
	case m[3] != "":
		version = "@" + m[3]
	case m[2] != "":
		version = ":" + m[2]
	default:
		version = ":latest"
	}
	return NormalizeImageName(m[1]), version, true
}

// ImageRegistry returns the registry of an image reference, such as docker.io or 127.0.0.1:5000; "" if the reference is invalid.
func ImageRegistry(ref string) string {
	name, _, _ := ParseImage(ref)
	host, _, _ := strings.Cut(name, "/")
	return host
}

// NormalizeImageName completes an image name, or a pattern with *, as Docker does: python becomes docker.io/library/python.
func NormalizeImageName(name string) string {
	host, rest, slash := strings.Cut(name, "/")
	switch {
	case !slash:
		return "docker.io/library/" + name
	case host != "localhost" && !strings.ContainsAny(host, ".:") && host == strings.ToLower(host):
		return "docker.io/" + name
	case host != "docker.io" && host != "index.docker.io":
		return name
	case strings.Contains(rest, "/"), strings.HasPrefix(rest, "*"):
		return "docker.io/" + rest
	default:
		return "docker.io/library/" + rest
	}
}
