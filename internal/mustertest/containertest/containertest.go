// Package containertest has real container engines for tests: a shared one, private ones
// that a test may stop and kill, images built from scratch, and a registry that fails
// on request.
package containertest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
)

// SharedEngine returns the address of the engine that all tests share, which scripts/engine
// starts. It is a guest's: what a test makes there has a name of its own and is
// removed by it, and the engine is not stopped. Without one the test skips.
func SharedEngine(tb testing.TB) string {
	tb.Helper()
	host := os.Getenv("MUSTER_TEST_ENGINE")
	if host == "" {
		tb.Skip("no container engine: run the tests with scripts/engine, or name one in MUSTER_TEST_ENGINE")
	}
	if _, err := API(tb, host).Ping(tb.Context(), client.PingOptions{}); err != nil {
		tb.Fatalf("the engine at %s, which MUSTER_TEST_ENGINE names: %v", host, err)
	}
	return host
}

// API returns a client of the engine at host, for what a test wants to see or do
// beside the program under test.
func API(tb testing.TB, host string) *client.Client {
	tb.Helper()
	api, err := client.New(client.WithHost(host))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = api.Close() })
	return api
}

// Resources are what an engine has of what tasks could leave behind, each with words for it.
type Resources map[string]string

// ListResources returns the containers that Muster made, and all networks and volumes that are not the engine's own, of the
// engine at host. Left out is what the containers of others are and have, those of a worker whose data dir is not
// data, and those that are not Muster's: tests that run meanwhile share the engine.
func ListResources(tb testing.TB, host, data string) Resources {
	tb.Helper()
	list, err := listResources(tb.Context(), API(tb, host), data)
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

func listResources(ctx context.Context, api *client.Client, data string) (Resources, error) {
	list := Resources{}
	volumes, err := api.VolumeList(ctx, client.VolumeListOptions{})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		list["volume "+v.Name] = "volume " + v.Name
	}
	containers, err := api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Items {
		if isMusterContainer(c.Labels, data) {
			list[c.ID] = fmt.Sprintf("container %s %q (%s)", c.ID[:12], c.Names, c.Status)
			continue
		}
		for _, m := range c.Mounts {
			delete(list, "volume "+m.Name)
		}
	}
	networks, err := api.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return nil, err
	}
	for _, n := range networks.Items {
		if n.Name != "bridge" && n.Name != "host" && n.Name != "none" { // every engine has those
			list[n.ID] = "network " + n.Name
		}
	}
	return list, nil
}

// isMusterContainer says whether a container with these labels is one of Muster's, and not of a worker with another data dir.
func isMusterContainer(labels map[string]string, data string) bool {
	if owner := labels["dev.muster.data"]; owner != "" {
		return owner == data
	}
	for label := range labels {
		if strings.HasPrefix(label, "dev.muster.") {
			return true
		}
	}
	return false
}

// AwaitCleanup waits until the engine at host has nothing more of what tasks of the worker with its data dir in data could
// leave behind than it had before; the test fails if that takes longer than a minute.
func AwaitCleanup(tb testing.TB, host, data string, before Resources) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	api := API(tb, host)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var leftovers []string
	for {
		current, err := listResources(ctx, api, data)
		if err == nil {
			maps.DeleteFunc(current, func(id, _ string) bool { _, existed := before[id]; return existed })
			if len(current) == 0 {
				return
			}
			leftovers = slices.Sorted(maps.Values(current))
		}
		select {
		case <-ctx.Done():
			tb.Errorf("the engine at %s still has %s (%v)", host, strings.Join(leftovers, ", "), err)
			return
		case <-tick.C:
		}
	}
}
