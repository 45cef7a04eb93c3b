package container

import (
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/muster-dev/muster/internal/agent/docker"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// BenchmarkMake measures creating and removing a container of a local image, compared with only asking the engine for one ("bare").
func BenchmarkMake(b *testing.B) {
	host := containertest.SharedEngine(b)
	image := containertest.LoadBusybox(b, host)
	b.Run("ours", func(b *testing.B) {
		engine, err := docker.Open(host)
		if err != nil {
			b.Fatal(err)
		}
		defer engine.Close()
		c, err := New(Config{Engine: engine, Worker: "bench", Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Check(b.Context()); err != nil {
			b.Fatal(err)
		}
		silent := func(string) {}
		for b.Loop() {
			made, err := c.Create(b.Context(), newSpec(image, "true"), silent, silent)
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Remove(b.Context(), made); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		api := containertest.API(b, host)
		for b.Loop() {
			made, err := api.ContainerCreate(b.Context(), client.ContainerCreateOptions{Config: &container.Config{Image: image, Cmd: []string{"true"}}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := api.ContainerRemove(b.Context(), made.ID, client.ContainerRemoveOptions{Force: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
