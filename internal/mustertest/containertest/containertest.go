// Package containertest provides container engines for tests: one that all tests share, and others that a test may stop and
// kill. It also builds images and provides a registry that fails on demand.
package containertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/testkit"
)

// SharedEngine returns the address of the engine that all tests share, which scripts/engine starts. A test uses its own names
// there, removes what it creates, and does not stop the engine. Without an engine the test is skipped.
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

// API returns a client of the engine at host, with which a test inspects and changes it independently of the program under test.
func API(tb testing.TB, host string) *client.Client {
	tb.Helper()
	api, err := client.New(client.WithHost(host))
	testkit.NoError(tb, err)
	tb.Cleanup(func() { _ = api.Close() })
	return api
}

// Resources are the containers, networks and volumes of an engine: their descriptions by id.
type Resources map[string]string

// ListResources lists the containers of the worker with the data directory data on the engine at host, and all networks and
// volumes that are neither the engine's own nor of other containers: other tests use the engine at the same time.
func ListResources(tb testing.TB, host, data string) Resources {
	tb.Helper()
	list, err := listResources(tb.Context(), API(tb, host), data)
	testkit.NoError(tb, err)
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

// isMusterContainer reports whether a container with these labels is Muster's, and not of a worker with another data directory.
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

// AwaitCleanup waits until the engine at host has only the resources of before. The test fails if that takes longer than a minute.
func AwaitCleanup(tb testing.TB, host, data string, before Resources) {
	tb.Helper()
	api := API(tb, host)
	if err := testkit.Poll(tb.Context(), time.Minute, func() error {
		current, err := listResources(tb.Context(), api, data)
		maps.DeleteFunc(current, func(id, _ string) bool { _, existed := before[id]; return existed })
		if len(current) > 0 {
			err = errors.New("it still has " + strings.Join(slices.Sorted(maps.Values(current)), ", "))
		}
		return err
	}); err != nil {
		tb.Errorf("the engine at %s: %v", host, err)
	}
}
