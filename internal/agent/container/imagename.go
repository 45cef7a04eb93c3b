package container

import (
	"log/slog"
	"strings"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/docker"
)

// canonicalRef returns an image's name with registry and digest, or tag if it has no digest.
func canonicalRef(ref string) (string, bool) {
	name, version, ok := muster.ParseImage(ref)
	return name + version, ok
}

// familiarRef shortens a canonical name like Docker does.
func familiarRef(ref string) string {
	if rest, ok := strings.CutPrefix(ref, "docker.io/library/"); ok {
		return rest
	}
	return strings.TrimPrefix(ref, "docker.io/")
}

func registryHost(ref string) string { return muster.ImageRegistry(ref) }

// digestRef returns an image's name with its digest, or the image ID if it was never in a registry.
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
