//go:build linux

package load

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/mustertest"
	"github.com/muster-dev/muster/internal/mustertest/containertest"
)

// dockerRun is docker run --rm of a command in an image, by the engine's own program.
func dockerRun(b *testing.B, host, image string, argv ...string) *exec.Cmd {
	b.Helper()
	program, err := exec.LookPath("docker")
	if err != nil {
		b.Skip("docker is not installed: run scripts/need docker")
	}
	return exec.CommandContext(b.Context(), program, append([]string{"-H", host, "run", "--rm", image}, argv...)...)
}

// containerSpec is a job of n containers.
func containerSpec(image string, n int64, run ...string) *muster.Spec {
	s := arraySpec(muster.KindProcess, n, run...)
	s.Tasks[0].Image = image
	return s
}

// BenchmarkContainer measures the time from submitting a task in a container to its end, compared with docker run --rm of the same image and
// command; alternating, one at a time.
func BenchmarkContainer(b *testing.B) {
	const turns = 40
	host := containertest.SharedEngine(b)
	image := containertest.LoadBusybox(b, host)
	c := mustertest.New(b, b.TempDir())
	c.StartWorker("w1", b.TempDir(), "--engine", host)
	runJob(b, c, containerSpec(image, 2, "/bin/true"))
	var ours, bare, added []time.Duration
	for b.Loop() {
		for range turns {
			began := time.Now()
			if out, err := dockerRun(b, host, image, "/bin/true").CombinedOutput(); err != nil {
				b.Fatalf("docker run: %v: %s", err, out)
			}
			bare = append(bare, time.Since(began))
			ours = append(ours, runJob(b, c, containerSpec(image, 1, "/bin/true")))
			added = append(added, ours[len(ours)-1]-bare[len(bare)-1])
		}
	}
	for name, times := range map[string][]time.Duration{"": ours, "bare-": bare, "added-": added} {
		slices.Sort(times)
		b.ReportMetric(milliseconds(times[len(times)/2]), name+"p50-ms")
		b.ReportMetric(milliseconds(times[len(times)*9/10]), name+"p90-ms")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkContainers runs 100 short containers on a worker with 4 slots, compared with a shell loop of docker run --rm with the same image
// and command, and with four concurrent loops.
func BenchmarkContainers(b *testing.B) {
	const tasks, slots = 100, 4
	host := containertest.SharedEngine(b)
	image := containertest.LoadBusybox(b, host)
	c := mustertest.New(b, b.TempDir())
	c.StartWorker("w1", b.TempDir(), "--engine", host, "--slots", strconv.Itoa(slots))
	runJob(b, c, containerSpec(image, slots, "/bin/true"))
	shell := func(format string) time.Duration {
		run := dockerRun(b, host, image, "/bin/true")
		began := time.Now()
		if out, err := exec.CommandContext(b.Context(), "sh", append([]string{"-c", format, "sh"}, run.Args...)...).CombinedOutput(); err != nil {
			b.Fatalf("%s: %v: %s", format, err, out)
		}
		return time.Since(began)
	}
	for b.Loop() {
		loop := shell(fmt.Sprintf(`for i in $(seq %d); do "$@" || exit 1; done`, tasks))
		lanes := shell(fmt.Sprintf(`seq %d | xargs -P%d -I{} "$@"`, tasks, slots))
		ours := runJob(b, c, containerSpec(image, tasks, "/bin/true"))
		b.ReportMetric(tasks/loop.Seconds(), "loop-containers/s")
		b.ReportMetric(tasks/lanes.Seconds(), "xargs-containers/s")
		b.ReportMetric(tasks/ours.Seconds(), "containers/s")
		b.ReportMetric(loop.Seconds()/ours.Seconds(), "of-loop")
		b.ReportMetric(lanes.Seconds()/ours.Seconds(), "of-xargs")
	}
	b.ReportMetric(0, "ns/op")
}
