package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// IDMap says which users and groups of the machine those of a user namespace are.
type IDMap struct{ Users, Groups []IDRange }

// IDRange maps Size ids from Inside on to those from Outside on.
type IDRange struct{ Inside, Outside, Size int }

// remapSize is how many ids the users are given whom Docker remaps to by default: see userns-remap in dockerd(8).
const remapSize = 1 << 16

// MapTo is the map of an engine that remaps root of its containers to a user, and the others to those that follow.
func MapTo(root int) IDMap {
	all := []IDRange{{0, root, remapSize}}
	return IDMap{Users: all, Groups: all}
}

// IDMap returns the map of a container that Podman has created with ContainerSpec.UserNamespace. It is not in Docker's API, only in Podman's own.
func (e *Engine) IDMap(ctx context.Context, id string) (IDMap, error) {
	m, err := e.idMap(ctx, id)
	return m, e.wrapError(ctx, "the users of the container cannot be inspected", err)
}

func (e *Engine) idMap(ctx context.Context, id string) (m IDMap, err error) {
	dial := e.api.Load().Dialer()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://podman/v3.0.0/libpod/containers/"+url.PathEscape(id)+"/json", http.NoBody)
	if err != nil {
		return m, err
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return m, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return m, fmt.Errorf("Podman answers %s", res.Status) //nolint:staticcheck // a name
	}
	var answer struct {
		HostConfig struct {
			IDMappings struct{ UidMap, GidMap []string } //nolint:revive // the names of the API
		}
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxInspection)).Decode(&answer); err != nil {
		return m, err
	}
	m.Users, err = parseRanges(answer.HostConfig.IDMappings.UidMap)
	if err != nil {
		return m, err
	}
	m.Groups, err = parseRanges(answer.HostConfig.IDMappings.GidMap)
	return m, err
}

// maxInspection is the maximum size of the description of a container, in bytes.
const maxInspection = 4 << 20

// parseRanges parses INSIDE:OUTSIDE:SIZE.
func parseRanges(list []string) (ranges []IDRange, err error) {
	for _, text := range list {
		var r IDRange
		if n, err := fmt.Sscanf(text, "%d:%d:%d", &r.Inside, &r.Outside, &r.Size); err != nil || n != 3 || r.Inside < 0 || r.Outside <= 0 || r.Size <= 0 {
			return nil, fmt.Errorf("invalid map of ids %q", text)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, errors.New("it has no user namespace")
	}
	return ranges, nil
}
