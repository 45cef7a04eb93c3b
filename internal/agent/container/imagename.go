package container

import (
	"log/slog"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// canonicalRef is an image's name with its registry and what it is of that name: a digest, which decides
// whatever the tag, or a tag.
func canonicalRef(ref string) (string, bool) {
	name, version, ok := muster.ParseImage(ref)
	return name + version, ok
}

// familiarRef leaves out of a whole name what Docker leaves out.
func familiarRef(ref string) string {
	if rest, ok := strings.CutPrefix(ref, "docker.io/library/"); ok {
		return rest
	}
	return strings.TrimPrefix(ref, "docker.io/")
}

// registryHost is where an image of a whole name lies.
func registryHost(ref string) string {
	host, _, _ := strings.Cut(ref, "/")
	return host
}

// digestRef is an image by its digest. One that never was in a registry has none: it is named by its EventID alone,
// which is no name that a registry knows.
func digestRef(ref string, img *docker.Image) string {
	name, version, _ := muster.ParseImage(ref)
	if strings.HasPrefix(version, "@") {
		return name + version
	}
	for _, digest := range img.Digests {
		if other, version, ok := muster.ParseImage(digest); ok && other == name {
			return name + version
		}
	}
	return img.ID
}

func imageAttrs(ref string, err error) []any {
	return []any{slog.String("image", familiarRef(ref)), slog.Any("error", err)}
}
