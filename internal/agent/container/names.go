package container

import (
	"log/slog"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// whole is an image's name with its registry and what it is of that name: a digest, which decides
// whatever the tag, or a tag.
func whole(ref string) (string, bool) {
	name, version, ok := muster.ParseImage(ref)
	return name + version, ok
}

// short leaves out of a whole name what Docker leaves out.
func short(ref string) string {
	if rest, ok := strings.CutPrefix(ref, "docker.io/library/"); ok {
		return rest
	}
	return strings.TrimPrefix(ref, "docker.io/")
}

// registry is where an image of a whole name lies.
func registry(ref string) string {
	host, _, _ := strings.Cut(ref, "/")
	return host
}

// resolved is an image by its digest. One that never was in a registry has none: it is named by its EventID alone,
// which is no name that a registry knows.
func resolved(ref string, img *docker.Image) string {
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

func attrs(ref string, err error) []any {
	return []any{slog.String("image", short(ref)), slog.Any("error", err)}
}
